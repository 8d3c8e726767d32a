"""Where a step goes: medians over steps, of all ranks and of those that stand out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from frtop_tui.job.statistics import JobStatistics, StepSplit

MOST_NAMED: Final = 4
"""Ranks with a row of their own."""


class StepRow(Struct, frozen=True):
    """Medians in ns but for the last two; None where that is not recorded. `rank` None: of all.

    Communication took between `blocked_ns` and `pending_ns` of a step, and `own_ns` is what no op
    was pending in: a rank that others wait for has more of it than they.
    """

    rank: int | None
    steps: int
    took_ns: int
    own_ns: int
    blocked_ns: int
    pending_ns: int
    data_ns: int | None = None
    forward_ns: int | None = None
    backward_ns: int | None = None
    optimizer_ns: int | None = None
    steps_per_s: float = 0.0
    samples_per_s: float | None = None  # of one rank; of all ranks together where `rank` is None
    p95_ns: int = 0  # of how long steps took; the nearest rank
    max_ns: int = 0


def step_rows(found: JobStatistics) -> list[StepRow]:
    """The medians of all ranks first, then ranks with the most time of their own."""
    every = [step for steps in found.steps.values() for step in steps]
    if not every:
        return []
    rows = [_row(rank, steps) for rank, steps in found.steps.items() if steps]
    rates = [row.samples_per_s for row in rows if row.samples_per_s is not None]
    total = sum(rates) if len(rates) == len(rows) else None
    pace = median(row.steps_per_s for row in rows)
    job = StepRow(None, len(every), *_medians(every), pace, total, *_longest(every))
    rows.sort(key=lambda row: (-row.own_ns, row.rank))
    return [job, *rows[:MOST_NAMED]]


def _row(rank: int, steps: Sequence[StepSplit]) -> StepRow:
    seconds = sum(step.took_ns for step in steps) / 1e9
    sampled = [step.samples for step in steps]
    known = sum(one for one in sampled if one is not None) if None not in sampled else None
    return StepRow(
        rank,
        len(steps),
        *_medians(steps),
        len(steps) / seconds if seconds else 0.0,
        known / seconds if known is not None and seconds else None,
        *_longest(steps),
    )


def _medians(
    steps: Sequence[StepSplit],
) -> tuple[int, int, int, int, int | None, int | None, int | None, int | None]:
    return (
        _median([step.took_ns for step in steps]),
        _median([step.took_ns - step.pending_ns for step in steps]),
        _median([step.blocked_ns for step in steps]),
        _median([step.pending_ns for step in steps]),
        _known(steps, lambda step: step.data_ns),
        _known(steps, lambda step: step.forward_ns),
        _known(steps, lambda step: step.backward_ns),
        _known(steps, lambda step: step.optimizer_ns),
    )


def _longest(steps: Sequence[StepSplit]) -> tuple[int, int]:
    """The time that 95 % of the steps do not exceed, and that of the longest one."""
    took = sorted(step.took_ns for step in steps)
    return took[-(-95 * len(took) // 100) - 1], took[-1]


def _median(values: Sequence[int]) -> int:
    return round(median(values))


def _known(steps: Iterable[StepSplit], value: Callable[[StepSplit], int | None]) -> int | None:
    values = [one for step in steps if (one := value(step)) is not None]
    return _median(values) if values else None
