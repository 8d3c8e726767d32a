"""The first frame and a capture of 64 ranks with full rings, on 8 hosts and on one."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.hosts import Hosts
from bench.terminal import Terminal

HOSTS: Final = 8
RANKS: Final = 8
REPEATS: Final = 3


def main() -> None:
    """Prints the seconds from `frtop` to the first full frame, and a capture's seconds and size."""
    with Hosts(HOSTS, RANKS, 0.0) as hosts:
        frames = [_first_frame(hosts.connect, hosts.world) for _ in range(REPEATS)]
        print(f"{hosts.world} ranks on {HOSTS} agents, one machine, medians of {REPEATS}")
        print(
            f"  `frtop` to the first full frame   {statistics.median(frames):5.2f} s   (budget 2)"
        )
        _captures(hosts)
    with Hosts(1, HOSTS * RANKS, 0.0) as hosts:
        print(f"{hosts.world} ranks on one agent, medians of {REPEATS}")
        _captures(hosts)


def _captures(hosts: Hosts) -> None:
    captures = [_capture(hosts.connect) for _ in range(REPEATS)]
    seconds = statistics.median(took for took, _, _ in captures)
    _, size, opened = captures[-1]
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"  `frtop capture`, start to exit    {seconds:5.2f} s, {size / 1e6:.1f} MB   (budget 3)")
    print(f"  `frtop diagnose FILE` of it       {opened:5.2f} s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  the largest of these processes    {peak:5.0f} MB")
    print(f"  load of this machine              {load:5.1f} per core")


def _first_frame(connect: list[str], world: int) -> float:
    """Seconds from the start of the program to a screen with all ranks reporting."""
    begin = time.monotonic()
    with Terminal("--connect", *connect) as terminal:
        terminal.wait_for(f"{world}/{world} reporting")
        return time.monotonic() - begin


def _capture(connect: list[str]) -> tuple[float, int, float]:
    """Returns the seconds of a capture, its size in bytes, and the seconds to read it again."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.cap"
        begin = time.monotonic()
        _frtop("capture", "--connect", *connect, "-o", str(file))
        written = time.monotonic()
        _frtop("diagnose", str(file))
        return written - begin, file.stat().st_size, time.monotonic() - written


def _frtop(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "frtop_tui", *arguments], check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


if __name__ == "__main__":
    main()
