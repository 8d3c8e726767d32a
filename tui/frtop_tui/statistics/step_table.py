"""Where a step's time goes: medians of all ranks, of stages, and of ranks that stand out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from frtop_probe.wire.values import Real
from frtop_tui.job.groups import members_of
from frtop_tui.job.statistics import JobStatistics, StepSplit

MOST_NAMED: Final = 4
"""How many ranks have a row of their own."""
MOST_STEPS: Final = 65_536
"""Steps of all ranks together, the newest of each: a table of them takes 0.3 s."""
FEWEST_STEPS: Final = 12
"""Steps per rank, however many ranks there are."""
MOST_STAGES: Final = 16
"""Stages with a row of their own: those that wait longest."""


class StepRow(Struct, frozen=True):
    """Medians in ns, except rates and the longest steps; None if not recorded.

    `rank` is None for several ranks: all, or those of a `stage`. Communication took between
    `blocked_ns` and `pending_ns` of a step, and no op was pending during `own_ns`: a rank that
    others wait for has more of it than they do. `bubble_ns` is how long it waited for messages.
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
    steps_per_s: Real = 0.0
    samples_per_s: Real | None = None  # of one rank; all ranks together where `rank` is None
    p95_ns: int = 0  # of the duration of steps, by nearest rank
    max_ns: int = 0
    bubble_ns: int | None = None
    stage: int | None = None
    ranks: tuple[int, ...] = ()  # of the stage


def step_rows(found: JobStatistics) -> list[StepRow]:
    """The medians of all ranks first, then the ranks with the most own time."""
    newest = newest_steps(found)
    if not newest:
        return []
    every = [step for steps in newest.values() for step in steps]
    paces = [_pace(steps) for steps in newest.values()]
    rates = [samples for _, samples in paces if samples is not None]
    total = sum(rates) if len(rates) == len(paces) else None
    pace = median(steps_per_s for steps_per_s, _ in paces)
    job = StepRow(
        None, len(every), *_medians(every), pace, total, *_longest(every), _bubble_ns(every)
    )
    own = {rank: _own_ns(steps) for rank, steps in newest.items()}
    named = sorted(own, key=lambda rank: (-own[rank], rank))[:MOST_NAMED]
    return [job, *(_row(rank, newest[rank]) for rank in named)]


def stage_rows(found: JobStatistics) -> list[StepRow]:
    """A row for each stage of pipelines, by stage; none if ranks send no messages.

    A rank's stage is its place in the group in which it sends and receives.
    """
    of_stage: defaultdict[int, set[int]] = defaultdict(set)
    stage_of: dict[int, int] = {}
    for key in {key for call in found.calls if call.p2p for key in call.groups}:
        for stage, rank in enumerate(sorted(members_of(key.ranks))):
            if stage_of.setdefault(rank, stage) != stage:
                return []  # two ways to number them
            of_stage[stage].add(rank)
    newest, rows = newest_steps(found), []
    for stage, ranks in sorted(of_stage.items()):
        steps = [step for rank in sorted(ranks) for step in newest.get(rank, ())]
        if steps:
            row = StepRow(
                None, len(steps), *_medians(steps), *_pace(steps), *_longest(steps),
                _bubble_ns(steps), stage, tuple(sorted(ranks)),
            )  # fmt: skip
            rows.append(row)
    longest = sorted(rows, key=lambda row: row.bubble_ns or 0, reverse=True)[:MOST_STAGES]
    return [row for row in rows if row in longest]


def has_bubbles(found: JobStatistics) -> bool:
    """Whether ranks send messages, as the stages of a pipeline do."""
    return any(call.p2p for call in found.calls) or any(
        step.bubble_ns is not None for steps in found.steps.values() for step in steps[-1:]
    )


def newest_steps(found: JobStatistics) -> Mapping[int, Sequence[StepSplit]]:
    """The steps of each rank that count: all, or, with very many ranks, the newest ones."""
    known = {rank: steps for rank, steps in found.steps.items() if steps}
    each = max(FEWEST_STEPS, MOST_STEPS // max(1, len(known)))
    return {rank: steps[-each:] for rank, steps in known.items()}


def _row(rank: int, steps: Sequence[StepSplit]) -> StepRow:
    return StepRow(
        rank, len(steps), *_medians(steps), *_pace(steps), *_longest(steps), _bubble_ns(steps)
    )


def _pace(steps: Sequence[StepSplit]) -> tuple[float, float | None]:
    """Steps per second of one rank, and samples per second if all its steps report them."""
    seconds = sum(step.took_ns for step in steps) / 1e9
    if not seconds:
        return 0.0, None
    samples = [step.samples for step in steps if step.samples is not None]
    known = len(samples) == len(steps)
    return len(steps) / seconds, sum(samples) / seconds if known else None


def _bubble_ns(steps: Sequence[StepSplit]) -> int | None:
    return _known(steps, lambda step: step.bubble_ns)


def _own_ns(steps: Sequence[StepSplit]) -> int:
    return _median([step.took_ns - step.pending_ns for step in steps])


def _medians(
    steps: Sequence[StepSplit],
) -> tuple[int, int, int, int, int | None, int | None, int | None, int | None]:
    return (
        _median([step.took_ns for step in steps]),
        _own_ns(steps),
        _median([step.blocked_ns for step in steps]),
        _median([step.pending_ns for step in steps]),
        _known(steps, lambda step: step.data_ns),
        _known(steps, lambda step: step.forward_ns),
        _known(steps, lambda step: step.backward_ns),
        _known(steps, lambda step: step.optimizer_ns),
    )


def _longest(steps: Sequence[StepSplit]) -> tuple[int, int]:
    """The time that 95 % of the steps do not exceed, and the time of the longest one."""
    took = sorted(step.took_ns for step in steps)
    return took[-(-95 * len(took) // 100) - 1], took[-1]


def _median(values: Sequence[int]) -> int:
    return round(median(values))


def _known(steps: Iterable[StepSplit], value: Callable[[StepSplit], int | None]) -> int | None:
    values = [one for step in steps if (one := value(step)) is not None]
    return _median(values) if values else None
