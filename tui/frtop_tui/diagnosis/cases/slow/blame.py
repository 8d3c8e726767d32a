"""Follows lateness through groups to the ranks where it begins.

A rank that waits for a slow neighbour in one group arrives late at the next group, through no fault
of its own. It is the wait-for graph once more, by sums of time instead of ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frtop_tui.diagnosis.cases.slow.late_ranks import LateRanks
from frtop_tui.diagnosis.cases.slow.roles import Place
from frtop_tui.diagnosis.cases.slow.slow_links import SlowLink
from frtop_tui.diagnosis.cases.slow.step_times import (
    excess_ns,
    most_excess_ns,
    step_ns,
    waits_are_known,
)
from frtop_tui.diagnosis.thresholds import EXPLAINED_SHARE, MIN_SLOW_SHARE
from frtop_tui.job.groups import members_of
from frtop_tui.job.statistics import JobStatistics


def to_blame(
    statistics: JobStatistics,
    found: Sequence[LateRanks],
    known: Mapping[int, Place],
    links: Sequence[SlowLink],
) -> list[LateRanks]:
    """Of all that are late those of whom nothing else explains it, the costliest first.

    Args:
        statistics: in which they were found.
        found: who is late, group by group.
        known: the places of ranks that send and receive.
        links: whose ops take long: who comes out of them late, arrives late at the next.
    """
    order = sorted(found, key=lambda one: one.share, reverse=True)
    roots = [one for one in order if not _waited_elsewhere(one, order)]
    roots = [one for one in roots if not _by_link(one, links)]
    roots = [one for one in roots if not _only_waited(statistics, one, known)]
    named: set[int] = set()
    first = []
    for one in roots:  # once for all groups
        if named.isdisjoint(one.ranks):
            nearest = _nearest(one, roots)
            costs_enough = nearest.share >= MIN_SLOW_SHARE  # else only perhaps
            first.append(nearest._replace(sure=nearest.sure and costs_enough))
        named.update(one.ranks)
    return first


def _nearest(one: LateRanks, roots: Sequence[LateRanks]) -> LateRanks:
    """Of groups in which the same ranks are late for as long, the one with the most late ops.

    Lateness to many ops adds up in the next op of another group: it says less of where it begins.
    """
    same = [
        other
        for other in roots
        if other.ranks == one.ranks and other.most_share >= EXPLAINED_SHARE * one.share
    ]
    nearest = max(same, key=lambda other: other.late_ops)
    return nearest._replace(share=max(other.share for other in same))


def _waited_elsewhere(one: LateRanks, found: Sequence[LateRanks]) -> bool:
    """Whether others keep these ranks in another group for most of the time that they are late."""
    ranks = set(one.ranks)
    return any(
        other.group != one.group
        and ranks.isdisjoint(other.ranks)
        and not ranks.isdisjoint(other.members)
        and other.most_share >= EXPLAINED_SHARE * one.share
        and not _holds_up(other, one)
        for other in found
    )


def _holds_up(other: LateRanks, one: LateRanks) -> bool:
    """Whether `one` keeps `other` just as well: then neither explains the other."""
    return not set(other.ranks).isdisjoint(one.members) and one.share > other.share


def _by_link(one: LateRanks, links: Sequence[SlowLink]) -> bool:
    """Whether slow ops of another group explain it."""
    ranks = set(one.ranks)
    return any(
        link.share >= EXPLAINED_SHARE * one.share
        and any(
            group != one.group and not ranks.isdisjoint(members_of(group.ranks))
            for group in link.groups
        )
        for link in links
    )


def _only_waited(statistics: JobStatistics, one: LateRanks, known: Mapping[int, Place]) -> bool:
    """Whether these ranks waited elsewhere for most of the time that they are late.

    It is so where they were seen to wait for longer than the others, and not where they did more
    of their own. In between waits were not seen: ranks that receive may only have waited for a
    message; others have, if they did too little of their own even where no wait was seen.
    """
    took = step_ns(statistics, one.members, one.since_ns)
    own = excess_ns(statistics, one.ranks, one.members, one.since_ns)
    most = most_excess_ns(statistics, one.ranks, one.members, one.since_ns)
    receive = any(known.get(rank) for rank in one.ranks)
    if took is None or own is None or most is None:
        return receive
    needed = EXPLAINED_SHARE * one.share * took
    if own <= -needed:
        return True
    if own >= needed and waits_are_known(statistics, one.members, one.since_ns):
        return False
    return receive or most < needed
