"""Runs the ranks of a small job on this machine, one process each, with one thread each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Never

from frtop_probe.ring.folder import SHARED_MEMORY

LIMIT_S: Final = 300.0
CACHE: Final = Path(__file__).parent.parent / ".bench-cache"
"""Has the native kernels that are measured. Those of the user's own jobs stay as they are."""
KERNELS: Final[dict[str, dict[str, str]]] = {
    "Python": {"FRTOP_NATIVE": "0"},
    "native": {"FRTOP_NATIVE": "1", "XDG_CACHE_HOME": str(CACHE)},
}
"""The recorder's kernels, with the variables that choose them."""


def kernels() -> list[str]:
    """Returns which kernels can be measured here; compiles the native ones."""
    import torch  # noqa: PLC0415

    from frtop_probe.recorder.native import library  # noqa: PLC0415
    from frtop_probe.recorder.native.build import BuildError, build  # noqa: PLC0415

    os.environ["XDG_CACHE_HOME"] = str(CACHE)
    try:
        if not (library.cache() / library.name(library.built_for(torch))).exists():
            build(torch)
    except BuildError as error:
        print(f"no native kernels: {error}", flush=True)
        return ["Python"]
    return list(KERNELS)


def run(
    module: str,
    *arguments: str,
    ranks: int = 2,
    variables: dict[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> list[str]:
    """Runs `python -m MODULE ARGUMENTS...` as each rank; returns what each printed.

    They get a folder of their own for rings (in shared memory, as any job), no agent, kernels in
    Python, and `variables` in their environment.

    Raises:
        subprocess.CalledProcessError: a rank failed.
        subprocess.TimeoutExpired: a rank took longer than `limit_s`.
    """
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        Path(folder).chmod(0o700)
        environment = {
            **os.environ, "FRTOP_DIR": folder, "FRTOP_AGENT": "0", "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1", **KERNELS["Python"],
            **(variables or {}),
        }  # fmt: skip
        command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
        running = [
            subprocess.Popen(
                command, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
            )
            for rank in range(ranks)
        ]
        try:
            printed = [one.communicate(timeout=limit_s)[0] for one in running]
        finally:
            for one in running:
                one.kill()
                one.wait()
    for one in running:
        if one.returncode:
            raise subprocess.CalledProcessError(one.returncode, command)
    return printed


def report(found: object) -> Never:
    """Prints what a rank found, as JSON, and ends it at once.

    If the interpreter ends before gloo's threads have released their last tensors, torch aborts the
    process, with frtop or without (`docs/in-a-job.md`).
    """
    print(json.dumps(found), flush=True)
    os._exit(0)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def alternate(
    child: Callable[[str], dict[str, list[float]]], modes: Sequence[str], rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Measures in a new child for each mode in turn; returns all blocks, by call and mode."""
    pooled: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for mode in modes:
            for name, blocks in child(mode).items():
                pooled.setdefault(name, {}).setdefault(mode, []).extend(blocks)
    return pooled


def begin_fake_rank(*, recorder: bool) -> Any:
    """Makes this process rank 0 of 8 on the fake backend; returns torch."""
    import torch  # noqa: PLC0415 - only the children need torch
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415

    torch.set_num_threads(1)
    if recorder:
        frtop_probe.start()
    torch.distributed.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    return torch
