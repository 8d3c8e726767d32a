"""Reads what a process holds, and fits how it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

WINDOWS: Final = 12
"""Parts of a run: in each the lowest memory counts, so that what comes and goes does not."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment; `at_s` is since the beginning of the soak.

    `memory` are bytes that are its own or its share of what it has in common with others, of
    anonymous and shared memory: files that it has mapped are not there, since the page cache of a
    machine with other work comes and goes. `allocated` are bytes of that which are in use; see
    `soak/allocated`.
    """

    at_s: float
    memory: int
    descriptors: int
    threads: int
    allocated: int = 0


def sample(pid: int, at_s: float, folder: Path) -> Sample | None:
    """Returns None if it has ended; `folder` is where processes write what they have allocated."""
    try:
        with Path(f"/proc/{pid}/smaps_rollup").open(encoding="ascii") as file:
            sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in file if " kB" in line}
        memory = sizes["Pss_Anon:"] + sizes["Pss_Shmem:"]
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
        allocated = folder / str(pid)
        known = int(allocated.read_text() or 0) if allocated.exists() else 0
        return Sample(at_s, memory, descriptors, threads, known)
    except (OSError, KeyError):
        return None


def growth(samples: Sequence[Sample], what: str = "memory") -> float:
    """Returns bytes an hour: the median slope between the lowest points of all windows."""
    points = _lowest([(one.at_s, getattr(one, what)) for one in samples])
    return 3600 * median((b - a) / (later - at) for (at, a), (later, b) in combinations(points, 2))


def _lowest(samples: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The lowest point of each window."""
    begin, end = samples[0][0], samples[-1][0]
    width = (end - begin) / WINDOWS
    lowest: dict[int, tuple[float, int]] = {}
    for at_s, size in samples:
        window = min(int((at_s - begin) / width), WINDOWS - 1)
        if window not in lowest or size < lowest[window][1]:
            lowest[window] = (at_s, size)
    return list(lowest.values())


def risen(counts: Sequence[int]) -> int:
    """Returns by how much the lowest count of the last third is above that of the first."""
    third = len(counts) // 3
    return min(counts[-third:]) - min(counts[:third])


def shifted(counts: Sequence[int]) -> float:
    """The same for the median, where even the lowest count depends on what lives at the moment."""
    third = len(counts) // 3
    return median(counts[-third:]) - median(counts[:third])
