"""Positions of all ranks in the grid: hosts in reading order, as many as fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from frtop_tui.diagnosis.model import Frame, JudgedRank

UNKNOWN_HOST = "unreachable"
CELLS: Final = (4, 3, 2)
"""Columns that a rank may get."""


@dataclass(frozen=True, slots=True)
class HostRun:
    """Consecutive ranks of one host in one row; `x` is the column of the first letter."""

    label: str
    ranks: tuple[int, ...]
    x: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The grid. `positions` gives (row, column) of each rank's `cell` columns."""

    rows: tuple[tuple[HostRun, ...], ...]
    label_width: int
    positions: Mapping[int, tuple[int, int]]
    order: tuple[int, ...]
    cell: int = 1


class _HostNames:
    """The hosts of the last ranks it was called with: several panes ask for each frame."""

    def __init__(self) -> None:
        self._of: Mapping[int, JudgedRank] | None = None
        self._names: frozenset[str] = frozenset()

    def __call__(self, ranks: Mapping[int, JudgedRank]) -> frozenset[str]:
        if ranks is not self._of:
            self._of = ranks
            self._names = frozenset(map(attrgetter("host"), ranks.values()))
        return self._names


host_names: Final = _HostNames()


def natural_key(text: str) -> list[tuple[int, str]]:
    """Sort key that puts node2 before node10."""
    parts = re.split(r"(\d{1,18})", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def short_hosts(hosts: Sequence[str]) -> dict[str, str]:
    """Host names without their domain, if they still differ."""
    short = {host: host.partition(".")[0] for host in hosts}
    return short if len(set(short.values())) == len(short) else {host: host for host in hosts}


def lay_out(ranks_of: Mapping[str, Sequence[int]], width: int, height: int = 0) -> Layout:
    """Hosts in reading order, as many side by side as fit; large hosts take several runs.

    Ranks get the widest cells with which all rows fit into `height`.
    """
    if sum(map(len, ranks_of.values())) <= width * height:
        for cell in CELLS:
            found = _lay_out(ranks_of, width, cell)
            if len(found.rows) <= height:
                return found
    return _lay_out(ranks_of, width, 1)


def _lay_out(ranks_of: Mapping[str, Sequence[int]], width: int, cell: int) -> Layout:
    names = short_hosts(list(ranks_of))
    label_width = min(16, max((len(name) for name in names.values()), default=0))
    longest = max((len(ranks) for ranks in ranks_of.values()), default=1)
    room = max(1, (width - label_width - 1) // cell)
    length = min(longest, room) if room < 8 or longest <= 8 else min(longest, room - room % 8)
    pitch = label_width + 1 + length * cell + 2
    columns = max(1, (width + 2) // pitch)
    # A power of two: hosts are numbered and racked that way, so their columns align.
    columns = 1 if longest > length else 1 << (columns.bit_length() - 1)
    runs: list[tuple[str, tuple[int, ...]]] = []
    for host in sorted(ranks_of, key=lambda name: (name == UNKNOWN_HOST, natural_key(name))):
        ranks = ranks_of[host]
        for start in range(0, len(ranks), length):
            label = names[host] if start == 0 else ""
            runs.append((label, tuple(ranks[start : start + length])))
    rows: list[tuple[HostRun, ...]] = []
    positions: dict[int, tuple[int, int]] = {}
    for start in range(0, len(runs), columns):
        row = tuple(
            HostRun(label, ranks, index * pitch + label_width + 1)
            for index, (label, ranks) in enumerate(runs[start : start + columns])
        )
        for run in row:
            for index, rank in enumerate(run.ranks):
                positions[rank] = (len(rows), run.x + index * cell)
        rows.append(row)
    return Layout(tuple(rows), label_width, positions, tuple(positions), cell)


def ranks_by_host(frame: Frame) -> dict[str, list[int]]:
    """Ranks of every host, then those that never reported."""
    hosts: dict[str, list[int]] = {}
    for number in sorted(frame.ranks):
        hosts.setdefault(frame.ranks[number].host, []).append(number)
    world = frame.job.world_size if frame.job else 0
    unknown = [number for number in range(world) if number not in frame.ranks]
    if unknown:
        hosts[UNKNOWN_HOST] = unknown
    return hosts
