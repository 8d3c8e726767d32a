"""Starts the ranks of a job: four on one GPU with NCCL over sockets, or on gloo without a GPU."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpu_kit import needs, processes

BACKEND: Final = "GPU_KIT_BACKEND"
ONE_GPU: Final = {
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MAX_CTAS": "2",
    "NCCL_DEBUG": "WARN",
}
"""Set beside a `NCCL_HOSTID` per rank: NCCL refuses two ranks of one host on one GPU.

The kit's own environment overrides these."""


LAST_S: Final = 3.0
"""The time that the other ranks get to end once one has failed."""


@dataclass(slots=True)
class Ranks:
    """The ranks of one job. `pids` are those of the programs, even under `frtop run`."""

    address: str
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    pipe: int = -1

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.running]

    def alive(self) -> list[int]:
        """Returns the ranks whose processes have not ended."""
        return [rank for rank, one in enumerate(self.running) if one.poll() is None]

    def statuses(self) -> list[int | None]:
        return [process.poll() for process in self.running]

    def broken(self) -> bool:
        """Returns whether any rank has ended: if the job has not begun, the others wait."""
        return len(self.alive()) < len(self.running)

    def wait(self, seconds: float) -> bool:
        """Waits until all have ended, or some time after one has failed; returns whether all have.

        The ranks that are left wait for the one that failed.
        """
        failed = wait_for(lambda: not self.alive() or any(self.statuses()), seconds)
        return wait_for(lambda: not self.alive(), LAST_S if failed else 0.0)

    def kill(self) -> None:
        for process in self.running:
            if process.poll() is None:
                processes.signal_group(process, signal.SIGKILL)
        for process in self.running:
            process.wait()
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def logs(self, characters: int = 1500) -> dict[str, str]:
        """Returns the end of what each rank printed; ranks that printed nothing are left out."""
        ends = {
            f"rank {path.stem.removeprefix('rank')}": path.read_text(errors="replace")[-characters:]
            for path in sorted(self.folder.glob("rank*.log"))
        }
        return {name: end for name, end in ends.items() if end.strip()}


def start(
    program: Sequence[str],
    folder: Path,
    *,
    world: int = 4,
    prepared: bool = False,
    variables: dict[str, str] | None = None,
    with_pipe: bool = False,
) -> Ranks:
    """Starts a Python program as each rank.

    Args:
        program: what follows `python`.
        folder: for logs, and for what the ranks exchange; it is made.
        world: number of ranks.
        prepared: start it with `frtop run`, as a user would.
        variables: more environment.
        with_pipe: pass a pipe that stays open, as programs of the zoo expect.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    ranks = Ranks(f"127.0.0.1:{port}", folder)
    reading = -1
    if with_pipe:
        reading, ranks.pipe = os.pipe()
    command = [sys.executable, "-W", "ignore", *program]
    if prepared:
        command = needs.frtop("run", "--", *command)
    for rank in range(world):
        environment = {
            **(ONE_GPU | {"NCCL_HOSTID": f"gpu-kit-{rank}"} if on_gpu() else {}),
            **os.environ,
            "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "GPU_KIT_FOLDER": str(folder),
            **({"ZOO_DUMP": str(reading)} if with_pipe else {}),
            **(variables or {}),
        }  # fmt: skip
        log, passed = folder / f"rank{rank}.log", [reading] if with_pipe else []
        ranks.running.append(processes.start(command, environment, log, pass_fds=passed))
    if with_pipe:
        os.close(reading)
    return ranks


def on_gpu() -> bool:
    return os.environ.get(BACKEND) == "nccl"


def wait_for(condition: Callable[[], object], seconds: float) -> bool:
    """Waits until something holds; returns whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
