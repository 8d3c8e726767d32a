"""What changed between two statistics of one job, or of two runs of it: more than the noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import Final, Literal

from msgspec import Struct

from frtop_probe import wire
from frtop_probe.wire.statistics import OCTAVE
from frtop_tui.job.groups import members_of
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledOp

BUCKET: Final = 2 ** (1 / OCTAVE) - 1
"""A quantile is that of a bucket: this is its largest error, as a share."""
SURE: Final = 3.0
"""A change counts if it exceeds this many standard errors: with a hundred unchanged rows, one in
four comparisons shows a change."""
_MEDIAN: Final = 1.2533
"""Standard error of a median, as a multiple of that of a mean."""
_P95: Final = 1.645
_DEVIATION: Final = 1.4826
"""Standard deviation, as a multiple of the median deviation."""
FEWEST: Final = 8
"""With fewer values, the noise is unknown, so we do not compare them."""

Change = Literal["new", "gone", "slower", "faster", "same", "unknown"]
Line = tuple[str, wire.Site | None, int, int]
"""Kind, line, members, class of size: names and numbers of groups are not the same in two runs."""
LineKey = tuple[str, wire.Site | None, int, int, bool, bool]
"""Kind, line, members, class of size, p2p, on a device."""


class Measured(Struct, frozen=True):
    """One figure before and after, in ns, and the noise of the difference."""

    before_ns: int | None
    after_ns: int | None
    noise_ns: int | None = None
    change: Change = "unknown"

    @property
    def ratio(self) -> float | None:
        if not self.before_ns or self.after_ns is None:
            return None
        return self.after_ns / self.before_ns


class LineChange(Struct, frozen=True):
    """The ops of one line, before and after; a row is None if there were none."""

    before: CallRow | None
    after: CallRow | None
    duration: Measured
    skew: Measured

    @property
    def row(self) -> CallRow:
        row = self.after or self.before
        assert row is not None
        return row


class StatisticsChange(Struct, frozen=True):
    """All lines, those whose ops take the most time first, and the steps of all ranks."""

    lines: tuple[LineChange, ...]
    step: Measured
    steps_by_rank: dict[int, Measured]


def compare(before: JobStatistics, after: JobStatistics) -> StatisticsChange:
    """What changed from one to the other."""
    rows = _by_key(before.calls), _by_key(after.calls)
    skews = _skews(before), _skews(after)
    lines = [
        _line(rows[0].get(key), rows[1].get(key), skews[0].get(key, ()), skews[1].get(key, ()))
        for key in {**rows[1], **rows[0]}
    ]
    lines.sort(key=lambda line: -line.row.total_ns)
    took = _steps(before), _steps(after)
    ranks = sorted(took[0].keys() | took[1].keys())
    every = [[ns for steps in one.values() for ns in steps] for one in took]
    by_rank = {rank: measured(took[0].get(rank, ()), took[1].get(rank, ())) for rank in ranks}
    return StatisticsChange(tuple(lines), measured(every[0], every[1]), by_rank)


def measured(before: Sequence[int], after: Sequence[int]) -> Measured:
    """Compares the medians of two samples."""
    first = round(median(before)) if before else None
    second = round(median(after)) if after else None
    if first is None or second is None or min(len(before), len(after)) < FEWEST:
        return Measured(first, second)
    noise = SURE * sqrt(_error(before, first) ** 2 + _error(after, second) ** 2)
    return Measured(first, second, round(noise), _change(first, second, noise))


def _error(values: Sequence[int], middle: int) -> float:
    """The standard error of a median."""
    deviation = _DEVIATION * median(abs(value - middle) for value in values)
    return _MEDIAN * deviation / sqrt(len(values))


def _change(before: int, after: int, noise: float) -> Change:
    if abs(after - before) <= noise:
        return "same"
    return "slower" if after > before else "faster"


def _line(
    before: CallRow | None, after: CallRow | None, skew: Sequence[int], later: Sequence[int]
) -> LineChange:
    duration = Measured(
        before.p50_ns if before is not None else None, after.p50_ns if after is not None else None
    )
    if before is None or after is None:
        change: Change = "new" if before is None else "gone"
        if _is_rare(after or before):
            change = "unknown"
        duration = Measured(duration.before_ns, duration.after_ns, None, change)
    elif duration.before_ns and duration.after_ns and min(before.timed, after.timed) >= FEWEST:
        noise = SURE * sqrt(_spread(before) ** 2 + _spread(after) ** 2)
        noise += BUCKET * max(duration.before_ns, duration.after_ns)
        found = _change(duration.before_ns, duration.after_ns, noise)
        duration = Measured(duration.before_ns, duration.after_ns, round(noise), found)
    return LineChange(before, after, duration, measured(skew, later))


def _is_rare(row: CallRow | None) -> bool:
    """Whether its absence elsewhere shows nothing: a broadcast at the start, a checkpoint."""
    return row is None or row.count < FEWEST * max(1, len(row.ranks))


def _spread(row: CallRow) -> float:
    """The standard error of a row's median, estimated from its 95th percentile."""
    far = (row.p95_ns or 0) - (row.p50_ns or 0)
    return _MEDIAN * far / _P95 / sqrt(row.timed)


def _by_key(rows: Sequence[CallRow]) -> dict[LineKey, CallRow]:
    """The rows by what two runs have in common; names and numbers of groups may differ."""
    found: dict[LineKey, CallRow] = {}
    for row in rows:
        key = (*line_of_row(row), row.p2p, row.on_device)
        known = found.get(key)
        if known is None or row.count > known.count:
            found[key] = row
    return found


def line_of_row(row: CallRow) -> Line:
    """What identifies a row in two runs."""
    members = len(members_of(row.groups[0].ranks)) if row.groups else 0
    return (row.kind, row.site, members, row.size.bit_length())


def line_of_op(op: SampledOp, members: int) -> Line:
    """The same for one op, in a group of this size."""
    size = 1 << op.bytes.bit_length() if op.bytes else 0
    return (op.kind, op.site, members, size.bit_length())


def _skews(statistics: JobStatistics) -> dict[LineKey, list[int]]:
    """Skews of the complete ops of each row."""
    found: dict[LineKey, list[int]] = {}
    rows = _by_key(statistics.calls)
    by_line: dict[Line, LineKey] = {key[:4]: key for key in rows}
    for group in statistics.groups:
        for op in group.arrivals:
            key = by_line.get(line_of_op(op, len(group.members)))
            if key is not None and op.complete:
                found.setdefault(key, []).append(op.skew_ns)
    return found


def _steps(statistics: JobStatistics) -> dict[int, list[int]]:
    return {
        rank: [step.took_ns for step in steps] for rank, steps in statistics.steps.items() if steps
    }
