"""The cost of the recorder per op, on the fake backend: no communication and no waiting.

Processes with Python and with native kernels alternate; inside each, blocks without and with the
recorder alternate. The fastest block of each kind counts, because other load on the machine only
adds time. Before each op of a cold block, the program changes 4 MB of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import gloo_job

ROUNDS: Final = 3
BLOCKS: Final = 16
CALLS: Final = 700
CALLS_OF_MANY: Final = 150
"""Of ops among a thousand ranks, which take a millisecond."""
COLD_CALLS: Final = 150
COLD_BYTES: Final = 4 << 20
"""A tensor of this size is changed before each op of a cold block, as a training step would."""
BUDGET_US: Final = 1.0
COLD_BUDGET_US: Final = 3.0
WORLDS: Final = (8, 64, 1024)

MANY: Final = 1_000_000
SHAPES: Final = 3000
"""More shapes than the recorder keeps keys for, so each op has a new key."""
Blocks = dict[str, dict[str, list[list[float]]]]
"""By whether it is recorded, and op: median, p99 and p99.9 of each block, in µs."""


def main() -> None:
    """Prints for each op what it takes without the recorder, and what each kernel adds."""
    kernels = gloo_job.kernels()
    print("recorder, µs an op, fake backend, 8 ranks or as shown: the bare op, and what each kernel"
          f" adds to median, p99, p99.9 (budget of native kernels: median {BUDGET_US:+.0f}, cold "
          f"{COLD_BUDGET_US:+.0f})")  # fmt: skip
    print(f"{'op':<38}{'bare':>8}{''.join(f'{kernel:>24}' for kernel in kernels)}")
    for world in WORLDS:
        pooled: dict[str, Blocks] = {}
        for _, kernel in itertools.product(range(ROUNDS), kernels):
            for state, ops in _child(kernel, "cost", world).items():
                of_kernel = pooled.setdefault(kernel, {}).setdefault(state, {})
                for op, blocks in ops.items():
                    of_kernel.setdefault(op, []).extend(blocks)
        for op in pooled[kernels[0]]["bare"]:
            bare, added = 0.0, ""
            for kernel in kernels:
                without, recorded = (
                    [min(column) for column in zip(*pooled[kernel][state][op], strict=True)]
                    for state in ("bare", "recorded")
                )
                bare = min(bare or without[0], without[0])
                figures = (one - other for one, other in zip(recorded, without, strict=True))
                added += "".join(f"{one:>+8.1f}" for one in figures)
            print(f"{op:<38}{bare:>8.1f}{added}", flush=True)
    for kernel in kernels:
        grown: float = _child(kernel, "memory", WORLDS[0])  # type: ignore[assignment]
        print(f"resident memory that {MANY:,} ops of new shapes add, {kernel}: {grown:+.1f} MB "
              "(budget 1 MB)")  # fmt: skip


def _child(kernel: str, what: str, world: int) -> Blocks:
    (printed,) = gloo_job.run(
        "bench.recorder_cost", what, str(world), ranks=1, variables=gloo_job.KERNELS[kernel]
    )
    blocks: Blocks = json.loads(printed)
    return blocks


def measure(what: str, world: int) -> Blocks:
    """Runs in a child; returns its blocks, without and with the recorder."""
    import torch  # noqa: PLC0415 - only the children need torch
    import torch.distributed as dist  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    from bench.recorder_switch import RecorderSwitch  # noqa: PLC0415

    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    switch = RecorderSwitch(torch)
    if what == "memory":
        return _memory(dist)  # type: ignore[return-value]
    ops = _ops(dist) if world == WORLDS[0] else _varying(dist, world)
    spoiler = torch.zeros(COLD_BYTES // 4)
    found: Blocks = {"bare": {}, "recorded": {}}
    for name, op in ops.items():
        for block in range(BLOCKS):
            switch.set(bool(block % 2))
            blocks = found["recorded" if block % 2 else "bare"]
            calls = CALLS if world < WORLDS[-1] else CALLS_OF_MANY
            blocks.setdefault(name, []).append(_block(op, calls))
            if world == WORLDS[0]:
                cold = _block(op, COLD_CALLS, lambda: spoiler.add_(1.0))
                blocks.setdefault(f"cold: {name}", []).append(cold)
    return found


def _ops(dist: Any) -> dict[str, Callable[[], object]]:
    import torch  # noqa: PLC0415

    small, large = torch.ones(64), torch.ones(512)
    listed = [torch.ones(64) for _ in range(8)]
    functional, name = torch.ops._c10d_functional, dist.group.WORLD.group_name  # noqa: SLF001
    return {
        "all_reduce": lambda: dist.all_reduce(small),
        "all_reduce, line 300 of a function": _deep_in_a_function(partial(dist.all_reduce, small)),
        "all_reduce async": lambda: dist.all_reduce(small, async_op=True),
        "broadcast": lambda: dist.broadcast(small, 0),
        "all_gather (8 tensors)": lambda: dist.all_gather(listed, small),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(large, small),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(small, large),
        "all_to_all_single": lambda: dist.all_to_all_single(large, large),
        "barrier": dist.barrier,
        "isend": lambda: dist.isend(small, 1),
        "functional all_reduce and wait_tensor": lambda: functional.wait_tensor(
            functional.all_reduce(small, "sum", name)
        ),
    }


def _deep_in_a_function(op: Callable[[], object]) -> Callable[[], object]:
    """Returns a function that calls an op in its last line, after many lines that it does not run.

    To find the line of a call, Python walks through all lines before it.
    """
    lines = "".join(f"        unused{n} = {n} + {n}\n" for n in range(300))
    names: dict[str, Any] = {"op": op}
    text = f"def step():\n    if op is None:\n{lines}    return op()\n"
    exec(compile(text, "train.py", "exec"), names)
    step: Callable[[], object] = names["step"]
    return step


def _varying(dist: Any, world: int) -> dict[str, Callable[[], object]]:
    """Ops whose shapes or splits differ each time, and the same ops with constant ones."""
    import torch  # noqa: PLC0415

    table = random.Random(1)
    flat, target = torch.ones(20 * world), torch.ones(20 * world)
    turn = itertools.count()
    splits = [[table.randrange(20) for _ in range(world)] for _ in range(400_000 // world)]

    def exchange(*, new: bool) -> object:
        n = next(turn) if new else 0
        sent, taken = splits[n % len(splits)], splits[(7 * n + 1) % len(splits)]
        return dist.all_to_all_single(target[: sum(taken)], flat[: sum(sent)], taken, sent)

    return {
        f"all_reduce, new shapes, {world}": lambda: dist.all_reduce(flat[: next(turn) % 1200 + 1]),
        f"all_to_all_single, {world} splits": partial(exchange, new=False),
        f"all_to_all_single, {world} new splits": partial(exchange, new=True),
    }


def _memory(dist: Any) -> float:
    """The MB by which the process grows while it issues many ops, after it has issued some."""
    import torch  # noqa: PLC0415

    flat = torch.ones(SHAPES)
    before = 0
    for n in range(MANY + MANY // 10):
        if n == MANY // 10:
            before = _resident()
        dist.all_reduce(flat[: n % SHAPES + 1])
    return (_resident() - before) / 1e6


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _block(
    op: Callable[[], object], calls: int, before: Callable[[], object] | None = None
) -> list[float]:
    """Times an op many times, each time after `before`, which is not timed."""
    clock = time.perf_counter_ns
    for _ in range(calls // 7):
        op()
    samples = []
    for _ in range(calls):
        if before:
            before()
        begin = clock()
        op()
        samples.append((clock() - begin) / 1000)
    cuts = statistics.quantiles(samples, n=1000)
    return [statistics.median(samples), cuts[989], cuts[998]]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
