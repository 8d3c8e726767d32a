"""Work of ranks between ops: computing, writing to slow file systems, killing their agent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import torch

from frtop_probe.agent import announcement
from frtop_probe.ring.folder import candidates

PART_BYTES: Final = 64 * 1024


def compute(seconds: float, share: float = 1.0) -> None:
    """Computes for some seconds, using about `share` of a core."""
    end = time.monotonic() + seconds
    matrix = torch.rand(100, 100)
    while time.monotonic() < end:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.02 * share:
            matrix = (matrix @ matrix).softmax(1)
        if share < 1:
            time.sleep(0.02 * (1 - share))


def slow_file(path: Path, bytes_per_s: int) -> Path:
    """Creates a file that accepts a limited rate: a pipe that another process drains.

    That process is not a child of the job, and never sees the end of the pipe.
    """
    os.mkfifo(path)
    pause = PART_BYTES / bytes_per_s
    drain = f"while dd bs={PART_BYTES} count=1 iflag=fullblock; do sleep {pause}; done"
    subprocess.run(
        ["sh", "-c", f"({drain}) <>{path} >/dev/null 2>&1 &"], check=True, close_fds=True
    )
    return path


def kill_agent() -> None:
    """Waits for this host's agent and kills it; the ranks start another one."""
    while (agent := announcement.find_agent(candidates()[0])) is None:
        time.sleep(0.05)
    os.kill(agent.pid, signal.SIGKILL)
