"""Runs the ranks of a small job on gloo on this machine, one process each, with one thread each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

LIMIT_S: Final = 300.0


def run(
    module: str, *arguments: str, ranks: int = 2, variables: dict[str, str] | None = None
) -> list[str]:
    """Runs `python -m MODULE ARGUMENTS...` as each rank; returns what each printed.

    They get a folder of their own for rings, no agent, and `variables` of the environment.

    Raises:
        subprocess.CalledProcessError: a rank failed.
        subprocess.TimeoutExpired: a rank took longer than `LIMIT_S`.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        environment = {
            **os.environ, "FRTOP_DIR": folder, "FRTOP_AGENT": "0", "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
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
            printed = [one.communicate(timeout=LIMIT_S)[0] for one in running]
        finally:
            for one in running:
                one.kill()
                one.wait()
    for one in running:
        if one.returncode:
            raise subprocess.CalledProcessError(one.returncode, command)
    return printed


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port
