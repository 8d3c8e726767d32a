"""The cost of recording modules: a call of a module, an op, and whole training steps.

Processes without the recorder, with it, and with it and modules alternate. The fastest block
counts, because other load on the machine only adds time.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROUNDS: Final = 3
BLOCKS: Final = 8
CALLS: Final = 1000
STEPS: Final = 12
MODES: Final = ("bare", "with", "modules")
BUDGET_US: Final = 5.0
"""Of a call of a module."""
ONE: Final = (
    "call of a module",
    "call of a module with a hook of its own",
    "all_reduce in ten modules",
    "all_reduce outside of modules",
)
JOBS: Final = ("DDP", "FSDP2", "tensor parallel")


def main() -> None:
    """Prints the fastest block of each, in µs, and the difference."""
    pooled: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for mode in MODES:
            for name, blocks in _child(mode, 1)[0].items():
                pooled.setdefault(name, {}).setdefault(mode, []).extend(blocks)
    print(f"modules, µs per call, one process, fake backend (budget {BUDGET_US:+.0f} a call)")
    _table(pooled)
    steps: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for mode in MODES:
            for name, blocks in _child(mode, 2)[0].items():
                steps.setdefault(name, {}).setdefault(mode, []).extend(blocks)
    print("steps, µs, two ranks, gloo: 13 modules are called in each")
    _table(steps)


def _table(pooled: dict[str, dict[str, list[float]]]) -> None:
    print(f"{'':<42}{'bare':>10}{'recorder':>10}{'modules':>10}{'for modules':>13}")
    for name, found in pooled.items():
        bare, ours, modules = (min(found[mode]) for mode in MODES)
        print(f"{name:<42}{bare:>10.1f}{ours:>10.1f}{modules:>10.1f}{modules - ours:>+13.1f}")


def _child(mode: str, ranks: int) -> list[dict[str, list[float]]]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        Path(folder).chmod(0o700)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        settings = {
            "FRTOP_DIR": folder, "FRTOP_AGENT": "0", "FRTOP_MODULES": str(int(mode == "modules")),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        children = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "bench.module_cost", mode, str(ranks)],
                env={**os.environ, **settings, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
            )
            for rank in range(ranks)
        ]
        outputs = [child.communicate(timeout=300)[0] for child in children]
    found: list[dict[str, list[float]]] = [json.loads(out) for out in outputs]
    return found


def measure(mode: str, ranks: int) -> dict[str, list[float]]:
    """Runs in a child; returns the time of each block in µs per call."""
    import torch  # noqa: PLC0415 - only the children need torch
    import torch.distributed as dist  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415

    torch.set_num_threads(1)
    if mode != "bare":
        frtop_probe.start()
    if ranks == 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
        calls, count = _calls(torch), CALLS
    else:
        dist.init_process_group("gloo")
        calls, count = _steps(torch), STEPS
    found = {name: [_block(call, count) for _ in range(BLOCKS)] for name, call in calls.items()}
    dist.destroy_process_group()
    return found


def _calls(torch: Any) -> dict[str, Callable[[], object]]:
    dist = torch.distributed
    given, one = torch.ones(1), torch.ones(1)

    class Reducing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, value: Any) -> Any:
            dist.all_reduce(one)
            return value

    class Nested(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, value: Any) -> Any:
            return self.inner(value)

    plain, hooked, deep = torch.nn.Identity(), torch.nn.Identity(), Reducing()
    hooked.register_forward_hook(lambda *_: None)
    for _ in range(9):
        deep = Nested(deep)
    calls = (
        lambda: plain(given), lambda: hooked(given), lambda: deep(given),
        lambda: dist.all_reduce(one),
    )  # fmt: skip
    return dict(zip(ONE, calls, strict=True))


def _steps(torch: Any) -> dict[str, Callable[[], object]]:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))

    def model() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(*(
            torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(4)
        ))  # fmt: skip

    ddp = torch.nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.3)
    sharded, parallel = model(), model()
    for block in sharded:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for block, style in zip(parallel, [ColwiseParallel(), RowwiseParallel()] * 2, strict=True):
        parallelize_module(block, mesh, {"0": style})
    given = torch.ones(16, 256)

    def step(net: Any) -> Callable[[], object]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        def run() -> None:
            optimizer.zero_grad()
            net(given).sum().backward()
            optimizer.step()

        return run

    return dict(zip(JOBS, map(step, (ddp, sharded, parallel)), strict=True))


def _block(call: Callable[[], object], count: int) -> float:
    call()
    begin = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - begin) / count / 1000


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
