"""The cost of the recorder per training step: two ranks, gloo, DistributedDataParallel.

Blocks with the recorder on and off alternate inside one process, because two runs differ by
more than a percent anyway. Both ranks switch at the same step.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any, Final

RANKS: Final = 2
BLOCKS: Final = 160
STEPS: Final = 4
BUDGET_PERCENT: Final = 1.0


def main() -> None:
    """Prints the median step time with the recorder on and off, and their ratio."""
    found = _measure()
    print(f"recorder, DDP step of {RANKS} ranks on gloo, {found['ops']} ops a step")
    print(f"{'':6}{'off':>10}{'on':>10}{'added':>9}   per pair of blocks: median, quartiles")
    _report("wall", found, f"   (budget {BUDGET_PERCENT:+.0f}%)")
    _report("cpu", found, "   (all threads of the process)")


def _report(clock: str, found: dict[str, Any], remark: str) -> None:
    on, off = found[clock]["on"], found[clock]["off"]
    pairs = [statistics.median(a) / statistics.median(b) for a, b in zip(on, off, strict=True)]
    median_on, median_off = (statistics.median(chain(*blocks)) for blocks in (on, off))
    low, middle, high = statistics.quantiles(pairs, n=4)
    print(
        f"{clock:6}{median_off:>7.2f} ms{median_on:>7.2f} ms"
        f"{100 * (median_on / median_off - 1):>+8.2f}%"
        f"   {100 * (middle - 1):+.2f}%, {100 * (low - 1):+.2f}% … {100 * (high - 1):+.2f}%{remark}"
    )


def _measure() -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        base = {
            **os.environ,
            "FRTOP_DIR": folder,
            "FRTOP_AGENT": "0",
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }
        children = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "bench.ddp_step", "rank"],
                env={**base, "RANK": str(rank)},
                stdout=subprocess.PIPE,
            )
            for rank in range(RANKS)
        ]
        out = [child.communicate(timeout=300)[0] for child in children]
    found: dict[str, Any] = json.loads(out[0])
    return found


def train() -> dict[str, object]:
    """Runs one rank; returns step times in ms by clock, state of the recorder, and block."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415 - only the ranks need these
    from frtop_probe.recorder.lifecycle import lifecycle  # noqa: PLC0415

    frtop_probe.start()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(64, 512)
    assert lifecycle.recorder is not None
    enabled, groups = lifecycle.recorder.enabled, lifecycle.recorder.groups.known
    wall: dict[str, list[list[float]]] = {"on": [], "off": []}
    cpu: dict[str, list[list[float]]] = {"on": [], "off": []}
    ops = 0
    for block in range(-10, 2 * BLOCKS):
        enabled[0] = bool(block % 2)
        before, walls, cpus = _issued(groups), [], []
        for _ in range(STEPS):
            begin, used = time.perf_counter(), time.process_time()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            walls.append(1000 * (time.perf_counter() - begin))
            cpus.append(1000 * (time.process_time() - used))
        if enabled[0]:
            ops = (_issued(groups) - before) // STEPS
        if block >= 0:
            wall["on" if enabled[0] else "off"].append(walls)
            cpu["on" if enabled[0] else "off"].append(cpus)
    dist.destroy_process_group()
    return {"wall": wall, "cpu": cpu, "ops": ops}


def _issued(groups: dict[int, Any]) -> int:
    return sum(group.number + group.p2p for group in groups.values())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(train()))
    else:
        main()
