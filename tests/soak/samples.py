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
    machine with other work comes and goes.
    """

    at_s: float
    memory: int
    descriptors: int
    threads: int


def sample(pid: int, at_s: float) -> Sample | None:
    """Returns None if it has ended."""
    try:
        with Path(f"/proc/{pid}/smaps_rollup").open(encoding="ascii") as file:
            sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in file if " kB" in line}
        memory = sizes["Pss_Anon:"] + sizes["Pss_Shmem:"]
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        return Sample(
            at_s, memory, descriptors, sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
        )
    except (OSError, KeyError):
        return None


def growth(samples: Sequence[Sample]) -> float:
    """Returns bytes an hour: the median slope between the lowest points of all windows."""
    begin, end = samples[0].at_s, samples[-1].at_s
    width = (end - begin) / WINDOWS
    lowest: dict[int, Sample] = {}
    for one in samples:
        window = min(int((one.at_s - begin) / width), WINDOWS - 1)
        if window not in lowest or one.memory < lowest[window].memory:
            lowest[window] = one
    points = list(lowest.values())
    return 3600 * median(
        (b.memory - a.memory) / (b.at_s - a.at_s) for a, b in combinations(points, 2)
    )


def risen(counts: Sequence[int]) -> int:
    """Returns by how much the lowest count of the last third is above that of the first."""
    third = len(counts) // 3
    return min(counts[-third:]) - min(counts[:third])
