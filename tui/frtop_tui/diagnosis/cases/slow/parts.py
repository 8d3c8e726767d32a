"""Splits a window of time into parts, and says how late each rank is in each part.

A part is one or more training steps where steps are known, else an equal share of the window.
Delays are summed within a part, so ranks that are late in turn count as equally late.
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

    `delays` says by how many ns each rank, or each group, comes after the earliest. Clocks may be
    the reason of a difference of up to `error_ns`.
    """

    from_ns: int
    to_ns: int
    delays: Mapping[One, int]
    error_ns: int = 0


class Episode(NamedTuple):
    """Ops of one group that overlap. A rank that is late to several of them is counted once."""

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
        """How long after the first rank each one comes: to the op to which it is latest."""
        if len(self.ops) == 1:
            arrivals, first_ns = self.ops[0].arrivals, self.ops[0].first_ns
            return {rank: arrivals[rank] - first_ns for rank in ranks}
        firsts = [(op.arrivals, op.first_ns) for op in self.ops]
        return {rank: max(times[rank] - first for times, first in firsts) for rank in ranks}


def episodes_of(ops: Sequence[SampledOp]) -> list[Episode]:
    """Puts ops into episodes. Ops overlap if a rank issues the next before all are in the last.

    So do buckets of gradients, which are reduced while the backward pass goes on.

    Args:
        ops: oldest first.
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
    """The times at which the parts of a window begin and end, in order.

    They are ends of training steps of one of `ranks`, if these are known for most of the window.
    Else all parts are equally long. Of quick steps an agent sends only some, so that most of the
    window is in no known step.

    Args:
        statistics: of the job.
        ranks: whose steps count.
        from_ns: where the first part starts.
        to_ns: where the last part ends.
        stride: one op in `stride` is sampled, so it takes as many steps until each op of a step
            was sampled once.
    """
    steps = [one for one in known_steps(statistics, ranks) if from_ns <= one.end_ns <= to_ns]
    ends = [one.end_ns for one in steps]
    are_most = 2 * sum(one.took_ns for one in steps) >= to_ns - from_ns
    if are_most and len(ends) > PARTS_WITHOUT_STEPS // 2:
        # A part with `stride` steps has every op; but few known steps must still make enough parts.
        for_each_op = min(stride, MOST_STEPS_TOGETHER, len(ends) // (PARTS_WITHOUT_STEPS // 2))
        together = max(-(-len(ends) // MOST_SLOW_PARTS), for_each_op)
        return ends[(len(ends) - 1) % together :: together]
    length = max(1, (to_ns - from_ns) // PARTS_WITHOUT_STEPS)
    return [from_ns + length * n for n in range(PARTS_WITHOUT_STEPS)] + [to_ns]


def known_steps(statistics: JobStatistics, ranks: Sequence[int]) -> tuple[StepSplit, ...]:
    """The steps of one of `ranks`: the one with the most known steps."""
    return max((statistics.steps.get(rank, ()) for rank in ranks), key=len, default=())


def in_parts(
    bounds: Sequence[int], episodes: Sequence[Episode], ranks: Sequence[int]
) -> tuple[list[Part[int]], list[list[Episode]]]:
    """Puts episodes into parts. Returns the parts that have any, and the episodes of each."""
    content: list[list[Episode]] = [[] for _ in bounds[1:]]
    for episode in episodes:
        # The last rank to arrive ends the wait, so its time tells which step was held up.
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
            # A wrong clock is wrong by the same time for each episode, so errors add up.
            error_ns = sum(episode.error_ns for episode in those)
            parts.append(Part(bounds[index], bounds[index + 1], delays, error_ns))
    return parts, [those for those in content if those]
