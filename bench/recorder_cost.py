"""The cost of the recorder per op, on the fake backend: no communication and no waiting.

Processes with and without the recorder alternate; inside a process with the recorder, blocks
with the recorder on and off alternate. The fastest block of each kind counts, because other
load on the machine only adds time.
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

from bench.gloo_job import run

ROUNDS: Final = 3
BLOCKS: Final = 16
CALLS: Final = 700
BUDGET_US: Final = 12.0
WORLDS: Final = (8, 64, 1024)

MANY: Final = 1_000_000
SHAPES: Final = 3000
"""More shapes than the recorder keeps keys for, so each op has a new key."""
Blocks = dict[str, dict[str, list[list[float]]]]
"""By state of the recorder and op: median, p99 and p99.9 of each block, in µs."""


def main() -> None:
    """Prints median and p99 per op in µs, and the difference from the bare op."""
    pooled: Blocks = {}
    for _ in range(ROUNDS):
        for world, mode in itertools.product(WORLDS, ("bare", "with")):
            for state, ops in _child(mode, world).items():
                for op, blocks in ops.items():
                    pooled.setdefault(state, {}).setdefault(op, []).extend(blocks)
    print(f"recorder, µs per op, fake backend, 8 ranks or as shown (budget {BUDGET_US:+.0f})")
    titles = ("bare", "off", "on", "added", "p99", "added", "p99.9", "added")
    print(f"{'op':<36}{''.join(f'{title:>8}' for title in titles)}")
    for op in pooled["bare"]:
        fastest = {state: [min(column) for column in zip(*ops[op], strict=True)]
                    for state, ops in pooled.items()}  # fmt: skip
        bare, off, on = (fastest[state] for state in ("bare", "off", "on"))
        columns = [f"{bare[0]:>8.1f}{off[0]:>8.1f}{on[0]:>8.1f}{on[0] - bare[0]:>+8.1f}"]
        columns += [f"{on[n]:>8.1f}{on[n] - bare[n]:>+8.1f}" for n in (1, 2)]
        print(f"{op:<36}{''.join(columns)}")
    print(f"resident memory that {MANY:,} ops of new shapes add: {_grown():+.1f} MB (budget 1 MB)")


def _grown() -> float:
    found: float = _child("memory", WORLDS[0])  # type: ignore[assignment]
    return found


def _child(mode: str, world: int) -> Blocks:
    (printed,) = run("bench.recorder_cost", mode, str(world), ranks=1)
    blocks: Blocks = json.loads(printed)
    return blocks


def measure(mode: str, world: int) -> Blocks:
    """Runs in a child; returns its blocks by state of the recorder and op."""
    import torch.distributed as dist  # noqa: PLC0415 - only the children need torch
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    ops = _ops(dist) if world == WORLDS[0] else _varying(dist, world)
    if mode == "memory":
        return _memory(dist)  # type: ignore[return-value]
    if mode == "bare":
        return {"bare": {name: [_block(op) for _ in range(BLOCKS)] for name, op in ops.items()}}
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.start()
    assert lifecycle.recorder is not None
    found: Blocks = {"on": {}, "off": {}}
    for name, op in ops.items():
        for block in range(BLOCKS):
            on = bool(block % 2)
            lifecycle.recorder.enabled[0] = on
            state = found["on" if on else "off"]
            state.setdefault(name, []).append(_block(op))
    return found


def _ops(dist: Any) -> dict[str, Callable[[], object]]:
    import torch  # noqa: PLC0415

    small, large = torch.ones(64), torch.ones(512)
    listed = [torch.ones(64) for _ in range(8)]
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

    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415

    lifecycle.start()
    flat = torch.ones(SHAPES)
    before = 0
    for n in range(MANY + MANY // 10):
        if n == MANY // 10:
            before = _resident()
        dist.all_reduce(flat[: n % SHAPES + 1])
    return (_resident() - before) / 1e6


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _block(op: Callable[[], object]) -> list[float]:
    clock = time.perf_counter_ns
    for _ in range(100):
        op()
    samples = []
    for _ in range(CALLS):
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
