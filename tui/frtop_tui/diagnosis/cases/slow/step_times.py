"""What ranks do of their own in their steps, compared with ranks that have the same work.

A step's time without that in which communication kept it for certain. It needs no clocks, and a
rank that waited elsewhere has no more of it than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from frtop_tui.diagnosis.cases.slow.parts import Part
from frtop_tui.job.statistics import JobStatistics, StepSplit

MIN_STEPS = 5
"""Fewer steps have no median worth the name."""
MOST_LOOKED_AT = 65_536
"""Of all ranks together, the newest steps of each, to see whether waits are known."""


def own_ns(step: StepSplit) -> int:
    """The time of a step that no communication took for certain."""
    return step.took_ns - step.blocked_ns


def least_own_ns(step: StepSplit) -> int:
    """The time of a step in which no op was pending: waits that nobody saw are not in it."""
    return step.took_ns - step.pending_ns


def data_ns(step: StepSplit) -> int | None:
    """The time that fetches took; None where they are not recorded."""
    return step.data_ns


def device_ns(step: StepSplit) -> int | None:
    """Forward, backward and optimizer, as far as all are recorded."""
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

    Args:
        statistics: with steps of both.
        ranks: in question.
        peers: whom to compare with; `ranks` among them are left out.
        since_ns: steps that end later are compared.
        of: what is compared.
        of_peers: with what of the peers; by default with the same.

    Returns:
        None where too few steps of both are known.
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
    """How much more than their peers `ranks` do of their own at most; see `excess_ns`.

    Peers that wait where nobody sees it, as in the C++ of DDP, seem to do as much as who keeps
    them waiting.
    """
    return excess_ns(statistics, ranks, peers, since_ns, of_peers=least_own_ns)


def step_ns(statistics: JobStatistics, ranks: Sequence[int], since_ns: int) -> int | None:
    """How long a step takes: the median of those of `ranks`."""
    known = _by_number(statistics, ranks, since_ns, lambda step: step.took_ns)
    every = [took for one in known.values() for took in one]
    return round(median(every)) if len(every) >= MIN_STEPS else None


def own_parts(statistics: JobStatistics, peers: Sequence[int], most: int) -> list[Part[int]]:
    """The last `most` steps that all of `peers` have, each with how much more each did of its own.

    Unlike ops, steps are not sampled one by one: they show what happens once in many ops.
    """
    # Twice as many, as the answers of some ranks may be older than those of others.
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
    """Whether steps show that communication kept any of `peers`: who has less of it did more."""
    return any(step.blocked_ns for rank in peers for step in statistics.steps.get(rank, ()))


def waits_are_known(statistics: JobStatistics, peers: Sequence[int], since_ns: int) -> bool:
    """Whether it was seen of most ops that somebody waited: else own time is no news."""
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
    """By the step's number what is known of `ranks`."""
    found: dict[int, list[int]] = {}
    for rank in ranks:
        for step in statistics.steps.get(rank, ()):
            value = of(step) if step.end_ns > since_ns else None
            if value is not None:
                found.setdefault(step.number, []).append(value)
    return found
