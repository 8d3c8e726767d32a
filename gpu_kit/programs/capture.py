"""Captures a CUDA graph in global mode while another thread does what the argument says.

The variants: `alone`, `status` (status-only looks), `dump` (full dumps from a relaxed thread),
`unretired` (the same, while an op that was issued before the capture is not over), `plain` (full
dumps from an ordinary thread, which should break the capture), `recorder` (frtop's recorder).

`torch.cuda.graph` synchronizes first, and the watchdog retires ops within 0.1 s. So an op that is
to be open during a capture has to be issued after that.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from frtop_probe.recorder.tensors.cuda_driver import relax_this_thread
from gpu_kit import facts, status
from gpu_kit.programs.joining import Here, dump, join, say_joined

REPLAYS: Final = 50
LAYERS: Final = 10
CAPTURE_S: Final = 1.5
_CUDA: Final[Any] = torch.cuda
SLEEP_CYCLES: Final = 4_000_000_000
"""About 2 s on the device."""
OPEN: Final = ("unretired", "plain")
_kept: Final[list[torch.Tensor]] = []


class Disturbance:
    """The other thread. The capturing thread sets `wanted` and `ended`."""

    def __init__(self, here: Here, variant: str) -> None:
        self._here, self._variant = here, variant
        self.count, self.unretired, self.error = 0, 0, ""
        self.wanted, self.ended = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.wanted.wait()
        act = self._act()
        if act is None:
            return
        try:
            if self._variant in ("dump", "unretired"):
                relax_this_thread()
            while not self.ended.is_set():
                act()
                self.count += 1
                time.sleep(0.02)
        except Exception as error:  # noqa: BLE001 - what fails is the result
            self.error = f"{type(error).__name__}: {error}"[:300]

    def _act(self) -> Callable[[], None] | None:
        backend = self._here.backend
        if self._variant == "status":
            return lambda: self._note(dump(backend, False, True))
        if self._variant in ("dump", "unretired", "plain"):
            return lambda: self._note(dump(backend, True, False))
        return None

    def _note(self, data: bytes) -> None:
        self.unretired = max(self.unretired, int(status.entries_of(data)["unretired"]))


def main() -> None:
    variant = sys.argv[1]
    if variant == "recorder":
        import frtop_probe  # noqa: PLC0415

        frtop_probe.start()
    here = join()
    tensor = torch.ones(1 << 16, device=here.device)
    dist.all_reduce(tensor)
    here.synchronize()
    say_joined(here, 0.0, right=True)
    disturbance = Disturbance(here, variant)
    _CUDA._sleep(1000)  # noqa: SLF001 - its kernel is loaded before the capture
    with torch.cuda.stream(_CUDA.Stream()):  # a first pass outside, as captures need it
        _layers(tensor)
    here.synchronize()
    tensor.fill_(1.0)
    here.synchronize()
    here.meet("ready")
    graph, error = torch.cuda.CUDAGraph(), ""
    try:
        _capture(here, variant, graph, tensor, disturbance)
    except Exception as failure:  # noqa: BLE001 - a broken capture is a result
        error = f"{type(failure).__name__}: {str(failure).splitlines()[0]}"[:300]
    disturbance.ended.set()
    disturbance.wanted.set()  # in case the capture did not even begin
    disturbance.thread.join(5.0)
    values, replay_ms = ([], 0.0) if error else _replayed(here, graph, tensor)
    facts.say(
        "captured", variant=variant, rank=here.rank, world=here.world, error=error, values=values,
        replay_ms=replay_ms, looks=disturbance.count, unretired=disturbance.unretired,
        other_thread=disturbance.error, stuck=disturbance.thread.is_alive(),
    )  # fmt: skip
    here.meet("over", 20.0)


def _capture(
    here: Here, variant: str, graph: Any, tensor: torch.Tensor, other: Disturbance
) -> None:
    stream, open_op = _CUDA.Stream(), variant in OPEN
    if open_op:
        _issue_behind_a_sleep(here)
    else:
        torch.cuda.synchronize()  # as `torch.cuda.graph` does
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="global")
        try:
            other.wanted.set()
            end = time.monotonic() + CAPTURE_S
            _layers(tensor, reduce=not open_op)
            while time.monotonic() < end:
                tensor.mul_(1.0)
                time.sleep(0.05)
        finally:
            graph.capture_end()


def _issue_behind_a_sleep(here: Here) -> None:
    with torch.cuda.stream(_CUDA.Stream()):
        _CUDA._sleep(SLEEP_CYCLES)  # noqa: SLF001
        _kept.append(torch.ones(1000, device=here.device))
        dist.all_reduce(_kept[0], async_op=True)


def _layers(tensor: torch.Tensor, *, reduce: bool = True) -> None:
    """Halves and reduces; variants with an open op have one rank, so a sum changes nothing."""
    for _ in range(LAYERS):
        tensor.mul_(0.5)
        if reduce:
            dist.all_reduce(tensor)


def _replayed(here: Here, graph: Any, tensor: torch.Tensor) -> tuple[list[float], float]:
    """Returns the values after 1 and 3 replays from ones, and the ms per replay of many."""
    values = []
    for count in (1, 3):
        tensor.fill_(1.0)
        for _ in range(count):
            graph.replay()
        here.synchronize()
        values.append(float(tensor[0]))
    tensor.fill_(0.0)
    here.synchronize()
    began = time.monotonic()
    for _ in range(REPLAYS):
        graph.replay()
    here.synchronize()
    return values, 1e3 * (time.monotonic() - began) / REPLAYS


if __name__ == "__main__":
    main()
