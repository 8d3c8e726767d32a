"""A table of what torch's allocator did in some ranks while they were profiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.features.profile.model import CPU, RankAllocations
from frtop_tui.job.naming import folded, printable, shortened
from frtop_tui.job.units import byte_size, how_often
from frtop_tui.text.document import aligned

ALIKE: Final = 0.05
"""Ranks are alike if none of their figures differs by more than this share of the peak."""
MOST_ROWS: Final = 8
"""Rows per kind of device: if no two ranks are alike, the largest are shown."""
_FEW: Final = 1 << 20
"""Differences below this many bytes do not count."""
_HEAD: Final = ("torch's allocator", "ranks", "at start", "at end", "peak", "reserved", "")
_WORDS: Final = frozenset({"torch's allocator", "ranks", ""})
OF_CPU: Final = "CPU: only blocks that were allocated while the profile ran"


def allocation_lines(found: Sequence[RankAllocations]) -> list[str]:
    """A row for ranks that are alike, with their largest figures; other rows are marked."""
    if not found:
        return []
    kinds: defaultdict[str, list[RankAllocations]] = defaultdict(list)
    for one in found:
        kinds[one.device.partition(":")[0]].append(one)
    parts = [part for kind in sorted(kinds) for part in _of_kind(kind, kinds[kind])]
    parts += [OF_CPU] if CPU in kinds else []
    head, *rows = aligned([_HEAD, *(part for part in parts if not isinstance(part, str))], _WORDS)
    table = iter(rows)
    lines = (part if isinstance(part, str) else next(table) for part in parts)
    return [printable(line) for line in (head, *lines)]


def allocation_rows(found: Sequence[RankAllocations]) -> list[dict[str, Any]]:
    """The same for JSON, a row per rank and device; for the CPU some values are not known."""
    unknown = {"start": None, "reserved": None}
    return [{**asdict(one), **(unknown if one.device == CPU else {})} for one in found]


def allocation_document(found: Sequence[RankAllocations]) -> dict[str, Any]:
    """The object of `frtop statistics --by memory --json`; keys are only ever added."""
    return {"schema": "frtop-allocations-1", "rows": allocation_rows(found)}


def _of_kind(kind: str, found: Sequence[RankAllocations]) -> Iterator[tuple[str, ...] | str]:
    """Cells of rows, then sentences."""
    rows: list[list[RankAllocations]] = []
    for one in sorted(found, key=lambda one: -one.peak):
        row = next((row for row in rows if _alike(row[0], one)), None)
        if row is None:
            rows.append([one])
        else:
            row.append(one)
    rows.sort(key=lambda row: -len(row))  # rows of equal size keep the order of their peaks
    usual = len(rows[0]) * 2 > len(found)
    for place, row in enumerate(rows[:MOST_ROWS]):
        yield (*_cells(kind, row), "differs" if usual and place else "")
    if more := [one.rank for row in rows[MOST_ROWS:] for one in row]:
        yield f"and {folded(more)}"
    for one in found:
        if one.out_of_memory:
            times = how_often(one.out_of_memory)
            yield f"rank {one.rank}: out of memory on {one.device}, {times}"


def _alike(one: RankAllocations, other: RankAllocations) -> bool:
    most = max(_FEW, ALIKE * max(one.peak, other.peak))
    pairs = ((one.start, other.start), (one.end, other.end), (one.peak, other.peak),
             (one.reserved, other.reserved))  # fmt: skip
    return all(abs(ours - theirs) <= most for ours, theirs in pairs)


def _cells(kind: str, row: Sequence[RankAllocations]) -> tuple[str, ...]:
    names = {one.device for one in row}
    name = next(iter(names)) if len(names) == 1 else kind
    end, peak = max(one.end for one in row), max(one.peak for one in row)
    if kind == CPU:
        return name, _ranks(row), "-", _change(end), _change(peak), "-"
    start, reserved = max(one.start for one in row), max(one.reserved for one in row)
    return name, _ranks(row), byte_size(start), byte_size(end), byte_size(peak), byte_size(reserved)


def _ranks(row: Sequence[RankAllocations]) -> str:
    return shortened(fold({one.rank for one in row}), 40)


def _change(size: int) -> str:
    return f"-{byte_size(-size)}" if size < 0 else f"+{byte_size(size)}"
