"""A window of time in parts: how late each rank is, or how slow each group, in each of them.

A part is a training step where steps are known, else an equal share of the window. Lateness is
summed within a part, so that what evens out from op to op evens out before anything is compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from frtop_tui.diagnosis.thresholds import (
    MOST_SLOW_PARTS,
    MOST_STEPS_TOGETHER,
    PARTS_WITHOUT_STEPS,
)
from frtop_tui.job.statistics import JobStatistics, SampledOp, StepSplit

One = TypeVar("One", int, str)
"""What is compared: ranks, or groups by their names."""


class Part(NamedTuple, Generic[One]):
    """One part of the window, on the operator's clock.

    `delays` are in ns behind the earliest, of all that are compared; differences of up to
    `error_ns` say nothing.
    """

    from_ns: int
    to_ns: int
    delays: Mapping[One, int]
    error_ns: int = 0


class Episode(NamedTuple):
    """Ops of one group that overlap: whoever is late to several of them costs that time once."""

    ops: tuple[SampledOp, ...]

    @property
    def first_ns(self) -> int:
        return self.ops[0].first_ns

    @property
    def last_ns(self) -> int:
        return max(op.last_ns for op in self.ops)

    @property
    def error_ns(self) -> int:
        return max(op.error_ns or 0 for op in self.ops)

    def delays(self, ranks: Iterable[int]) -> dict[int, int]:
        """By how much each rank comes after the first one, where that is most."""
        if len(self.ops) == 1:
            arrivals, first_ns = self.ops[0].arrivals, self.ops[0].first_ns
            return {rank: arrivals[rank] - first_ns for rank in ranks}
        firsts = [(op.arrivals, op.first_ns) for op in self.ops]
        return {rank: max(times[rank] - first for times, first in firsts) for rank in ranks}


def episodes_of(ops: Sequence[SampledOp]) -> list[Episode]:
    """Ops, oldest first, put together where a rank issued the next before the last had come.

    So do buckets of gradients, which are reduced while the backward pass goes on.
    """
    found: list[list[SampledOp]] = []
    last_ns = 0
    for op in ops:
        if found and op.first_ns < last_ns:
            found[-1].append(op)
            last_ns = max(last_ns, op.last_ns)
        else:
            found.append([op])
            last_ns = op.last_ns
    return [Episode(tuple(one)) for one in found]


def boundaries(
    statistics: JobStatistics, ranks: Sequence[int], from_ns: int, to_ns: int, stride: int = 1
) -> list[int]:
    """Where the parts of `from_ns` to `to_ns` begin and end: steps of one of `ranks`, if known.

    Of quick steps only some are told. They say little of the time between them, so parts are equal
    then: they have several steps each.

    Args:
        statistics: of the job.
        ranks: whose steps count.
        from_ns: begin of the first part.
        to_ns: end of the last part.
        stride: one op of so many is sampled. In so many steps each op of a step has its turn.
    """
    steps = [one for one in known_steps(statistics, ranks) if from_ns <= one.end_ns <= to_ns]
    ends = [one.end_ns for one in steps]
    are_most = 2 * sum(one.took_ns for one in steps) >= to_ns - from_ns
    if are_most and len(ends) > PARTS_WITHOUT_STEPS // 2:
        # Where few steps are known, it counts more that there are parts enough to prove anything.
        for_each_op = min(stride, MOST_STEPS_TOGETHER, len(ends) // (PARTS_WITHOUT_STEPS // 2))
        together = max(-(-len(ends) // MOST_SLOW_PARTS), for_each_op)
        return ends[(len(ends) - 1) % together :: together]
    length = max(1, (to_ns - from_ns) // PARTS_WITHOUT_STEPS)
    return [from_ns + length * n for n in range(PARTS_WITHOUT_STEPS)] + [to_ns]


def known_steps(statistics: JobStatistics, ranks: Sequence[int]) -> tuple[StepSplit, ...]:
    """The steps of that one of `ranks` of which most are known."""
    return max((statistics.steps.get(rank, ()) for rank in ranks), key=len, default=())


def in_parts(
    bounds: Sequence[int], episodes: Sequence[Episode], ranks: Sequence[int]
) -> tuple[list[Part[int]], list[list[Episode]]]:
    """Episodes summed part by part, and those of each part; parts without any are left out."""
    content: list[list[Episode]] = [[] for _ in bounds[1:]]
    for episode in episodes:
        # The last to come ends the wait: it belongs to the step that it held up.
        index = bisect_right(bounds, episode.last_ns) - 1
        if 0 <= index < len(content):
            content[index].append(episode)
    parts = []
    for index, those in enumerate(content):
        if those:
            sums = dict.fromkeys(ranks, 0)
            for episode in those:
                for rank, delay in episode.delays(ranks).items():
                    sums[rank] += delay
            least = min(sums.values())
            delays = {rank: total - least for rank, total in sums.items()}
            # A clock that is wrong is wrong in the same way for all of them.
            error_ns = sum(episode.error_ns for episode in those)
            parts.append(Part(bounds[index], bounds[index + 1], delays, error_ns))
    return parts, [those for those in content if those]
