"""Splits a window of time into parts, and measures how late each rank is in each part.

A part is one or more training steps if steps are known, else an equal share of the window. Delays
are summed within a part, so ranks that are late in turn count as equally late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from frtop_tui.diagnosis.thresholds import (
    MOST_SLOW_PARTS,
    MOST_STEPS_TOGETHER,
    PARTS_WITHOUT_STEPS,
)
from frtop_tui.job.statistics import JobStatistics, SampledOp, StepSplit

One = TypeVar("One", int, str)
"""What is compared: ranks, or groups by name."""


@dataclass(frozen=True, slots=True)
class Part(Generic[One]):
    """One part of the window, on the operator's clock.

    `delays` are the ns by which each rank or group arrives after the earliest; clocks may explain a
    difference of up to `error_ns`.
    """

    from_ns: int
    to_ns: int
    delays: Mapping[One, int]
    error_ns: int = 0


class Episode(NamedTuple):
    """Overlapping ops of one group. A rank that is late to several of them counts once."""

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
        """How long after the first rank each one arrives, at the op where it is latest."""
        if len(self.ops) == 1:
            arrivals, first_ns = self.ops[0].arrivals, self.ops[0].first_ns
            return {rank: arrivals[rank] - first_ns for rank in ranks}
        firsts = [(op.arrivals, op.first_ns) for op in self.ops]
        return {rank: max(times[rank] - first for times, first in firsts) for rank in ranks}


def episodes_of(ops: Sequence[SampledOp]) -> list[Episode]:
    """Groups ops, oldest first, into episodes.

    Ops overlap if a rank issues the next before all have entered the last, as with buckets of
    gradients that are reduced during the backward pass.
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

    They are ends of training steps of one of `ranks`, if these are known for most of the window;
    else all parts are equally long. An agent sends only some of very quick steps. With one op in
    `stride` sampled, it takes that many steps until each op of a step was sampled once.
    """
    steps = [one for one in known_steps(statistics, ranks) if from_ns <= one.end_ns <= to_ns]
    ends = [one.end_ns for one in steps]
    are_most = 2 * sum(one.took_ns for one in steps) >= to_ns - from_ns
    if are_most and len(ends) > PARTS_WITHOUT_STEPS // 2:
        # A part of `stride` steps has every op, but there must be enough parts.
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
        # The last arrival ends the wait, so it belongs to the step that was held up.
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
            # A wrong clock is equally wrong in each episode, so errors add up.
            error_ns = sum(episode.error_ns for episode in those)
            parts.append(Part(bounds[index], bounds[index + 1], delays, error_ns))
    return parts, [those for those in content if those]


MIN_STEPS = 5
"""Fewer steps have no meaningful median."""
MOST_LOOKED_AT = 65_536
"""Steps of all ranks together, the newest of each, to see whether waits are known."""


def own_ns(step: StepSplit) -> int:
    """The time of a step without what communication surely took."""
    return step.took_ns - step.blocked_ns


def least_own_ns(step: StepSplit) -> int:
    """The time of a step without pending ops, and so without unseen waits."""
    return step.took_ns - step.pending_ns


def device_ns(step: StepSplit) -> int | None:
    """Forward, backward and optimizer, as far as recorded."""
    phases = (step.forward_ns, step.backward_ns, step.optimizer_ns)
    return sum(phase for phase in phases if phase is not None) if any(phases) else None


def excess_ns(
    statistics: JobStatistics,
    ranks: Sequence[int],
    peers: Sequence[int],
    since_ns: int,
    of: Callable[[StepSplit], int | None] = own_ns,
    *,
    of_peers: Callable[[StepSplit], int | None] | None = None,
) -> int | None:
    """How much more than their peers `ranks` have of something: the median over common steps.

    Steps that end after `since_ns` count, by `of`, for peers by `of_peers` if given. None if too
    few steps are known.
    """
    theirs = _by_number(statistics, ranks, since_ns, of)
    rest = [one for one in peers if one not in ranks]
    others = _by_number(statistics, rest, since_ns, of_peers or of)
    common = theirs.keys() & others.keys()
    if len(common) < MIN_STEPS:
        return None
    return round(median(median(theirs[n]) - median(others[n]) for n in common))


def most_excess_ns(
    statistics: JobStatistics, ranks: Sequence[int], peers: Sequence[int], since_ns: int
) -> int | None:
    """The most own work that `ranks` may have beyond their peers; see `excess_ns`.

    Peers with unseen waits, as in DDP's C++, seem to work as much as the rank that they wait for.
    """
    return excess_ns(statistics, ranks, peers, since_ns, of_peers=least_own_ns)


def step_ns(statistics: JobStatistics, ranks: Sequence[int], since_ns: int) -> int | None:
    """How long a step takes: the median over `ranks`."""
    steps = (step for rank in ranks for step in statistics.steps.get(rank, ()))
    every = [step.took_ns for step in steps if step.end_ns > since_ns]
    return round(median(every)) if len(every) >= MIN_STEPS else None


def own_parts(statistics: JobStatistics, peers: Sequence[int], most: int) -> list[Part[int]]:
    """The last `most` steps that all of `peers` have, with the excess of own work of each.

    Unlike ops, steps are not sampled: they show what happens once in many ops.
    """
    # Twice as many, as some ranks' answers may be older than others'.
    newest = (statistics.steps.get(rank, ())[-2 * most :] for rank in peers)
    steps = [{one.number: one for one in those} for those in newest]
    common = set.intersection(*(set(those) for those in steps)) if steps else set[int]()
    parts = []
    for number in sorted(common)[-most:]:
        own = {rank: own_ns(those[number]) for rank, those in zip(peers, steps, strict=True)}
        least, first = min(own.values()), steps[0][number]
        delays = {rank: time_ns - least for rank, time_ns in own.items()}
        parts.append(Part(first.end_ns - first.took_ns, first.end_ns, delays))
    return parts


def any_wait_was_seen(statistics: JobStatistics, peers: Sequence[int]) -> bool:
    """Whether any wait of `peers` was recorded: then a rank with less of it worked more."""
    return any(step.blocked_ns for rank in peers for step in statistics.steps.get(rank, ()))


def waits_are_known(statistics: JobStatistics, peers: Sequence[int], since_ns: int) -> bool:
    """Whether waits were recorded for most ops; otherwise own time proves nothing."""
    each = max(MIN_STEPS, MOST_LOOKED_AT // max(1, len(peers)))
    blocked_ns = pending_ns = 0
    for rank in peers:
        for step in statistics.steps.get(rank, ())[-each:]:
            if step.end_ns > since_ns:
                blocked_ns += step.blocked_ns
                pending_ns += step.pending_ns
    return 0 < blocked_ns >= pending_ns / 2


def _by_number(
    statistics: JobStatistics,
    ranks: Sequence[int],
    since_ns: int,
    of: Callable[[StepSplit], int | None],
) -> dict[int, list[int]]:
    """The known values of `ranks`, by the step's number."""
    found: dict[int, list[int]] = {}
    for rank in ranks:
        for step in statistics.steps.get(rank, ()):
            value = of(step) if step.end_ns > since_ns else None
            if value is not None:
                found.setdefault(step.number, []).append(value)
    return found
