"""Rank 2 does not enter an op until it is released; each of the others waits in its own way.

Meanwhile a thread of each rank looks at the recorder's status, the tensor and the full dump, the
riskiest last. Each look has a thread of its own and a deadline. The reader of frtop's recorder
reads the tensor.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from frtop_probe.recorder.tensors.cuda_driver import CudaDriver, relax_this_thread
from frtop_probe.recorder.tensors.device_reader import Copy, DeviceReader
from frtop_probe.recorder.tensors.tensor_memory import UnreadableTensor
from gpu_kit import facts, status
from gpu_kit.programs.joining import Here, dump, join, say_joined

ABSENT: Final = 2
WARM_UP: Final = 5
LOOKS: Final = 300
ELEMENTS: Final = 1 << 20
WAITS: Final = {0: "item", 1: "synchronize", 3: "pageable"}
SETTLED_S: Final = 2.0
MADE_S: Final = 20.0
READ_S: Final = 1.0
SHOWN: Final = 16
"""Bytes of the tensor that a fact shows."""
RELEASED_S: Final = 60.0
WORK_S: Final = 5.0


def main() -> None:
    here = join()
    tensor = torch.ones(ELEMENTS, device=here.device)
    dist.all_reduce(tensor)
    here.synchronize()
    began = time.monotonic()
    for _ in range(WARM_UP - 1):
        dist.all_reduce(tensor)
    here.synchronize()
    ms_per_op = 1e3 * (time.monotonic() - began) / (WARM_UP - 1)
    before = float(tensor[0])
    say_joined(here, ms_per_op, right=before == here.world**WARM_UP)
    reader = _reader(here)
    time.sleep(0.5)  # the watchdog looks ten times a second
    base = _status(here)
    facts.say("before", rank=here.rank, status=base)
    here.meet("ready")
    watcher = threading.Thread(target=_watch, args=(here, tensor, reader), daemon=True)
    watcher.start()
    if here.rank == ABSENT:
        here.wait_for_file("release", RELEASED_S)
    _enter(here, tensor)
    right = bool((tensor == before * here.world).all())
    facts.say("released", rank=here.rank, right=right)
    time.sleep(0.5)
    facts.say("after", rank=here.rank, status=_status(here))
    here.meet("over", 20.0)
    if here.on_gpu:
        _work(here)
    sys.stdout.flush()
    dist.destroy_process_group()


def _enter(here: Here, tensor: torch.Tensor) -> None:
    """Issues the op, and waits for it as `WAITS` says."""
    facts.say("entering", rank=here.rank, at=time.monotonic())
    host = torch.empty(ELEMENTS)
    dist.all_reduce(tensor)
    facts.say("issued", rank=here.rank, at=time.monotonic())
    how = WAITS.get(here.rank, "item")
    if how == "item":
        tensor[0].item()
    elif how == "pageable":
        host.copy_(tensor)
    here.synchronize()


def _watch(here: Here, tensor: torch.Tensor, reader: DeviceReader | None) -> None:
    time.sleep(SETTLED_S)
    looks: list[tuple[str, float, Callable[[], dict[str, Any]]]] = [
        ("status", 5.0, lambda: {"status": _status(here), "times": _times(here)}),
        ("get_error", 2.0, lambda: {"error": str(here.backend.get_error())}),
        ("issued number", 2.0, lambda: {"number": _issued()}),
    ]
    if reader is not None:
        looks.append(("read", 4.0, lambda: _read(reader, tensor)))
    looks += [
        ("dump active", 4.0, lambda: _dumped(here, active=True)),
        ("dump", 4.0, lambda: _dumped(here, active=False)),
    ]
    for name, deadline_s, look in looks:
        _look(here, name, deadline_s, look)
    facts.say("watched", rank=here.rank, at=time.monotonic())


def _look(here: Here, name: str, deadline_s: float, look: Callable[[], dict[str, Any]]) -> None:
    """Notes that a look begins, and its result; a look that holds the GIL has none."""
    facts.say("look began", rank=here.rank, look=name)

    def run() -> None:
        began = time.monotonic()
        try:
            values = look()
        except Exception as error:  # noqa: BLE001 - whatever fails is what this is about
            values = {"failure": f"{type(error).__name__}: {error}"[:300]}
        values["look_ms"] = round(1e3 * (time.monotonic() - began), 3)
        facts.say("look", rank=here.rank, look=name, **values)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline_s)


def _status(here: Here) -> list[int] | None:
    found = status.default_group(status.parse(dump(here.backend, False, True)))
    return None if found is None else [found.enqueued, found.started, found.completed]


def _times(here: Here) -> dict[str, float]:
    backend, times = here.backend, []
    for _ in range(LOOKS):
        began = time.perf_counter_ns()
        dump(backend, False, True)
        times.append(time.perf_counter_ns() - began)
        time.sleep(0.002)
    return status.summary_us(times)


def _dumped(here: Here, *, active: bool) -> dict[str, Any]:
    unrelaxed = relax_this_thread() if here.on_gpu else ""
    return {"unrelaxed": unrelaxed, **status.entries_of(dump(here.backend, True, active))}


def _issued() -> int:
    group: Any = dist.group.WORLD
    return int(group._get_sequence_number_for_group())  # noqa: SLF001


def _reader(here: Here) -> DeviceReader | None:
    """Returns frtop's reader of this device, made before the hang."""
    if not here.on_gpu:
        return None
    reader = DeviceReader(CudaDriver(), here.device.index or 0, 4 * ELEMENTS)
    deadline = time.monotonic() + MADE_S
    while reader.state.phase == "making" and time.monotonic() < deadline:
        time.sleep(0.01)
    if obstacle := reader.state.obstacle(time.monotonic(), ""):
        facts.say("no reader", rank=here.rank, why=obstacle)
        return None
    return reader


def _read(reader: DeviceReader, tensor: torch.Tensor) -> dict[str, Any]:
    """Reads the whole tensor."""
    begin = time.monotonic()
    copy = Copy(tensor, tensor.data_ptr(), tensor.nbytes)
    try:
        found = reader.read(copy, READ_S, lambda: True)
    except UnreadableTensor as why:
        return {"ready": False, "error": str(why)}
    ms = round(1e3 * (time.monotonic() - begin), 3)
    return {"ready": True, "ms": ms, "size": len(found), "bytes": found[:SHOWN].hex()}


def _work(here: Here) -> None:
    """Does real work, for the power that it takes."""
    one = torch.randn(4096, 4096, device=here.device, dtype=torch.bfloat16)
    facts.say("working", rank=here.rank)
    end = time.monotonic() + WORK_S
    while time.monotonic() < end:
        for _ in range(20):
            one @ one
        torch.cuda.synchronize()
    facts.say("worked", rank=here.rank)


if __name__ == "__main__":
    main()
