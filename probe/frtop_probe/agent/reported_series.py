"""Follows the values that a rank reports: what is new since the last update, and what is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_probe.ring.layout import MarkKind, StatusCell
from frtop_probe.ring.marks import ReportRow, read_reports, watched
from frtop_probe.ring.reader import Ring
from frtop_probe.statistics.reported_values import ReportedValue, added, packed, remembered

LATE: Final = 64
"""Marks that are read again: a thread may write one after others have written newer ones."""
MOST_SENT: Final = 16
"""Most values of a name in an update. Of more, steps are left out by their number alone, so that
ranks and hosts send the same ones."""


@dataclass(slots=True)
class _Series:
    """The values of one name; `fresh` are those that have not been sent."""

    first: int
    values: list[ReportedValue] = field(default_factory=list)
    fresh: list[ReportedValue] = field(default_factory=list)
    not_finite: int = 0


class ReportedSeries:
    """The reported values of one ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._read = 0
        """Number of the newest mark that was read."""
        self._settled = False
        """Whether no newer mark came since, so that late ones are read as well."""
        self._taken = frozenset[int]()
        """Those of the newest marks that were values."""
        self._series: dict[int, _Series] = {}

    def fresh(self) -> tuple[wire.ReportedValues, ...]:
        """Reads the ring; returns the values that have not been sent, by name."""
        self._take_new()
        found = []
        for number, one in self._series.items():
            if one.fresh and (name := self._ring.reports.get(number)) is not None:
                found.append(packed(name, _thinned(one.fresh), one.first, one.not_finite))
                one.fresh = []
        return tuple(found)

    def full(self) -> tuple[wire.ReportedValues, ...]:
        """All that is remembered, as of the last reading."""
        names = self._ring.reports
        return tuple(
            packed(names[number], one.values, one.first, one.not_finite)
            for number, one in self._series.items()
            if number in names
        )

    def _take_new(self) -> None:
        ring = self._ring
        is_same = ring.cell(StatusCell.MARKS) == self._read
        if (is_same and self._settled) or MarkKind.REPORT not in watched(ring):
            return
        self._settled = is_same
        read, head = read_reports(ring, max(0, self._read - LATE))
        has_gap = head - self._read > ring.shape.marks
        rows = [row for row in read if row.sequence not in self._taken]
        self._read = head
        self._taken = frozenset(row.sequence for row in read if row.sequence > head - LATE)
        if has_gap:  # of the older ones nothing is certain
            for one in self._series.values():
                one.first = -1
        for row in rows:
            self._take(row)
        for one in self._series.values():
            one.values = remembered(one.values, len(self._series))

    def _take(self, row: ReportRow) -> None:
        if row.name not in self._ring.reports:
            return
        one = self._series.setdefault(row.name, _Series(row.step))
        if one.first < 0:
            one.first = row.step
        last = one.values[-1] if one.values else None
        times = last.times + 1 if last is not None and last.step == row.step else 1
        new = ReportedValue(row.step, row.value, times)
        added(one.values, new)
        added(one.fresh, new)
        one.not_finite += not math.isfinite(row.value)


def _thinned(values: list[ReportedValue]) -> list[ReportedValue]:
    """Leaves out steps of a fast job, but neither the newest nor what is not finite."""
    stride = 1
    while len(values) > MOST_SENT * stride:
        stride *= 2
    odd = [one for one in values[:-1] if not math.isfinite(one.value)][:MOST_SENT]
    return [one for one in values if one.step % stride == 0 or one is values[-1] or one in odd]
