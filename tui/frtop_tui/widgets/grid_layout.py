"""Where every rank stands in the grid: hosts in reading order, as many as fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frtop_tui.diagnosis.model import Frame

UNKNOWN_HOST = "not heard"


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of ranks of one host: its place is (row, column of its first letter)."""

    label: str
    ranks: tuple[int, ...]
    x: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where every rank stands. `places` gives (row, column) of a rank's letter."""

    rows: tuple[tuple[Cell, ...], ...]
    label_width: int
    places: Mapping[int, tuple[int, int]]
    order: tuple[int, ...]


def natural(text: str) -> list[tuple[int, str]]:
    """Sort key that puts node2 before node10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def short_hosts(hosts: Sequence[str]) -> dict[str, str]:
    """Host names without their domain, as long as they still differ."""
    short = {host: host.partition(".")[0] for host in hosts}
    return short if len(set(short.values())) == len(short) else {host: host for host in hosts}


def lay_out(by_host: Mapping[str, Sequence[int]], width: int) -> Layout:
    """Hosts in reading order, as many side by side as fit; large hosts in several runs."""
    names = short_hosts(list(by_host))
    label_width = min(16, max((len(name) for name in names.values()), default=0))
    longest = max((len(ranks) for ranks in by_host.values()), default=1)
    room = max(1, width - label_width - 1)
    run = min(longest, room) if room < 8 or longest <= 8 else min(longest, room - room % 8)
    pitch = label_width + 1 + run + 2
    columns = max(1, (width + 2) // pitch)
    # Powers of two: hosts are numbered and racked that way, and so their columns align.
    columns = 1 if longest > run else 1 << (columns.bit_length() - 1)
    cells: list[tuple[str, tuple[int, ...]]] = []
    for host in sorted(by_host, key=lambda name: (name == UNKNOWN_HOST, natural(name))):
        ranks = by_host[host]
        for start in range(0, len(ranks), run):
            label = names[host] if start == 0 else ""
            cells.append((label, tuple(ranks[start : start + run])))
    rows: list[tuple[Cell, ...]] = []
    places: dict[int, tuple[int, int]] = {}
    for start in range(0, len(cells), columns):
        row = tuple(
            Cell(label, ranks, index * pitch + label_width + 1)
            for index, (label, ranks) in enumerate(cells[start : start + columns])
        )
        for cell in row:
            for index, rank in enumerate(cell.ranks):
                places[rank] = (len(rows), cell.x + index)
        rows.append(row)
    return Layout(tuple(rows), label_width, places, tuple(places))


def by_host(frame: Frame) -> dict[str, list[int]]:
    """Ranks of every host; ranks of the job that nobody spoke of stand at the end."""
    hosts: dict[str, list[int]] = {}
    for number in sorted(frame.ranks):
        hosts.setdefault(frame.ranks[number].host, []).append(number)
    world = frame.job.world_size if frame.job else 0
    unknown = [number for number in range(world) if number not in frame.ranks]
    if unknown:
        hosts[UNKNOWN_HOST] = unknown
    return hosts
