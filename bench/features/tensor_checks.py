"""The cost of sampled numbers: what an op waits for, and what is computed beside it, per MiB.

There is one process with a gloo group of its own. An all_reduce of one rank copies nothing over a
network, so the added time is ours. The fastest block counts, because other load only adds time.
Messages go to another process and back, as an isend, which is read at its issue and at its wait,
and a receive.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from bench.gloo_job import run

SIZES_MIB: Final = (0.001, 1.0, 8.0, 25.0)
MESSAGES_MIB: Final = (0.001, 1.0, 8.0)
BLOCKS: Final = 7
BYTES: Final = 25 * 2**20
"""About what the tensors of one block take: less than half the buffer, so that usually all ops are
sampled."""


def main() -> None:
    """Prints µs per op without and with samples, and what a MiB costs in both threads."""
    found = _child()
    print("numbers: an all_reduce of one rank, µs; its input and its result are sampled")
    print(f"{'MiB':>8}{'off':>10}{'on':>10}{'added':>10}{'µs/MiB':>10}{'counted, µs/MiB':>18}")
    for size, one in found.items():
        mib = 2 * float(size)
        added = one["on"] - one["off"]
        print(f"{float(size):>8.3g}{one['off']:>10.1f}{one['on']:>10.1f}{added:>+10.1f}"
              f"{added / mib:>10.0f}{one['counted'] / mib:>18.0f}")  # fmt: skip
    print("the thread that waits for the op copies; a thread of low priority counts")
    print("an isend to another rank and a recv from it: three samples on each rank")
    print(f"{'MiB':>8}{'off':>10}{'on':>10}{'added':>10}{'µs/MiB':>10}")
    for size, one in _child("messages", 2).items():
        added = one["on"] - one["off"]
        print(f"{float(size):>8.3g}{one['off']:>10.1f}{one['on']:>10.1f}{added:>+10.1f}"
              f"{added / (3 * float(size)):>10.0f}")  # fmt: skip


def _child(what: str = "child", ranks: int = 1) -> dict[str, dict[str, float]]:
    printed = run("bench.features.tensor_checks", what, ranks=ranks)[0]
    found: dict[str, dict[str, float]] = json.loads(printed)
    return found


def measure_messages() -> dict[str, dict[str, float]]:
    """Runs in two ranks; returns µs per message to the other rank and back, by MiB."""
    import torch  # noqa: PLC0415 - only the child needs torch
    import torch.distributed as dist  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415
    from frtop_probe.features.tensor_checks.in_rank.watch import WatchPlan  # noqa: PLC0415
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    frtop_probe.start()
    dist.init_process_group("gloo")
    assert lifecycle.recorder is not None
    numbers: Any = lifecycle.recorder.watch
    peer = 1 - dist.get_rank()
    found: dict[str, dict[str, float]] = {}
    for size in MESSAGES_MIB:
        tensor = torch.randn(max(1, int(size * 2**18)))
        here = torch.empty_like(tensor)
        ops = max(1, min(200, int(BYTES / (3 * tensor.nbytes))))

        def block(tensor: Any = tensor, here: Any = here, ops: int = ops) -> float:
            begin = time.perf_counter_ns()
            for _ in range(ops):
                work: Any = dist.isend(tensor, peer)
                dist.recv(here, peer)
                work.wait()
            return (time.perf_counter_ns() - begin) / 1000 / ops

        one = {"off": float("inf"), "on": float("inf")}
        for _ in range(BLOCKS):
            dist.barrier()
            one["off"] = min(one["off"], block())
            numbers.start(WatchPlan(1, 10**6, time.monotonic_ns() + 10**12))
            dist.barrier()
            took = block()
            numbers.stop(join=True)
            if not numbers.thinned:
                one["on"] = min(one["on"], took)
        found[str(size)] = one
    return found


def measure() -> dict[str, dict[str, float]]:
    """Runs in a child; returns µs per op, by MiB of its tensor."""
    import torch  # noqa: PLC0415 - only the child needs torch
    import torch.distributed as dist  # noqa: PLC0415
    from torch._C._distributed_c10d import HashStore  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415
    from frtop_probe.features.tensor_checks.in_rank.watch import WatchPlan  # noqa: PLC0415
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    frtop_probe.start()
    dist.init_process_group("gloo", rank=0, world_size=1, store=HashStore())
    assert lifecycle.recorder is not None
    numbers: Any = lifecycle.recorder.watch
    found: dict[str, dict[str, float]] = {}
    for size in SIZES_MIB:
        tensor = torch.randn(max(1, int(size * 2**18)))
        ops = max(1, min(200, int(BYTES / (2 * tensor.nbytes))))
        one = {"off": float("inf"), "on": float("inf"), "counted": float("inf")}
        for _ in range(BLOCKS):
            one["off"] = min(one["off"], _block(dist, tensor, ops))
            numbers.start(WatchPlan(1, 10**6, time.monotonic_ns() + 10**12))
            took = _block(dist, tensor, ops)
            while numbers.count - numbers.begun_at < 2 * (ops - numbers.thinned):
                time.sleep(0.005)
            numbers.stop(join=True)
            if not numbers.thinned:  # on a busy host the buffer fills up, and ops are left out
                one["on"] = min(one["on"], took)
            one["counted"] = min(one["counted"], _counting(numbers, torch, tensor))
        assert not numbers.skipped, "the buffer was full"
        found[str(size)] = one
    return found


def _block(dist: Any, tensor: Any, ops: int) -> float:
    begin = time.perf_counter_ns()
    for _ in range(ops):
        dist.all_reduce(tensor)
    return (time.perf_counter_ns() - begin) / 1000 / ops


def _counting(numbers: Any, torch: Any, tensor: Any) -> float:
    """CPU time, in µs, of counting one op's two samples."""
    from frtop_probe.features.tensor_checks.in_rank.stats import SampleStats  # noqa: PLC0415

    data = memoryview(bytearray(tensor.numpy().tobytes()))
    begin = time.thread_time_ns()
    for _ in range(2):
        stats = SampleStats()
        stats.add(torch, tensor.dtype, data)
        stats.by_name()
    assert numbers.count
    return (time.thread_time_ns() - begin) / 1000


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure_messages() if sys.argv[1] == "messages" else measure()))
    else:
        main()
