"""The cost of the recorder per op, on the fake backend: no communication and no waiting.

Processes with and without the recorder alternate; inside a process with the recorder, blocks
with the recorder on and off alternate. The fastest block of each kind counts, because other
load on the machine only adds time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROUNDS: Final = 3
BLOCKS: Final = 16
CALLS: Final = 700
BUDGET_US: Final = 12.0

Blocks = dict[str, dict[str, list[list[float]]]]
"""By state of the recorder and op: median and p99 of each block, in µs."""


def main() -> None:
    """Prints median and p99 per op in µs, and the difference to the bare op."""
    pooled: Blocks = {}
    for _ in range(ROUNDS):
        for mode in ("bare", "with"):
            for state, ops in _child(mode).items():
                for op, blocks in ops.items():
                    pooled.setdefault(state, {}).setdefault(op, []).extend(blocks)
    print(f"recorder, µs per op, fake backend of 8 ranks (budget {BUDGET_US:+.0f} median)")
    print(f"{'op':<24}{'bare':>8}{'off':>8}{'on':>8}{'added':>8}{'p99':>8}{'added':>8}")
    for op in pooled["bare"]:
        fastest = {state: [min(column) for column in zip(*ops[op], strict=True)]
                    for state, ops in pooled.items()}  # fmt: skip
        (bare, bare_p99), (off, _), (on, p99) = (fastest[s] for s in ("bare", "off", "on"))
        print(
            f"{op:<24}{bare:>8.1f}{off:>8.1f}{on:>8.1f}{on - bare:>+8.1f}"
            f"{p99:>8.1f}{p99 - bare_p99:>+8.1f}"
        )


def _child(mode: str) -> Blocks:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        environment = {**os.environ, "FRTOP_DIR": folder, "FRTOP_AGENT": "0"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.recorder_cost", mode],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    blocks: Blocks = json.loads(done.stdout)
    return blocks


def measure(mode: str) -> Blocks:
    """Runs in a child; returns its blocks by state of the recorder and op."""
    import torch.distributed as dist  # noqa: PLC0415 - only the children need torch
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    ops = _ops(dist)
    if mode == "bare":
        return {"bare": {name: [_block(op) for _ in range(BLOCKS)] for name, op in ops.items()}}
    from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415

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
        "all_reduce async": lambda: dist.all_reduce(small, async_op=True),
        "broadcast": lambda: dist.broadcast(small, 0),
        "all_gather (8 tensors)": lambda: dist.all_gather(listed, small),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(large, small),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(small, large),
        "all_to_all_single": lambda: dist.all_to_all_single(large, large),
        "barrier": dist.barrier,
        "isend": lambda: dist.isend(small, 1),
    }


def _block(op: Callable[[], object]) -> list[float]:
    clock = time.perf_counter_ns
    for _ in range(100):
        op()
    samples = []
    for _ in range(CALLS):
        begin = clock()
        op()
        samples.append((clock() - begin) / 1000)
    return [statistics.median(samples), statistics.quantiles(samples, n=100)[98]]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
