"""Ranks that arrive late at the collectives of one group, and by how much.

A rank that is late in a group need not be slow: it may have waited elsewhere. `to_blame` decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from msgspec.structs import astuple

from frtop_probe import wire
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.diagnosis.cases.slow.parts import (
    Episode,
    Part,
    any_wait_was_seen,
    boundaries,
    episodes_of,
    excess_ns,
    in_parts,
    known_steps,
    most_excess_ns,
    own_parts,
    step_ns,
    waits_are_known,
)
from frtop_tui.diagnosis.cases.slow.roles import NEED_ALL, Place
from frtop_tui.diagnosis.cases.slow.slow_links import SlowLink
from frtop_tui.diagnosis.cases.slow.straggling import Straggling, straggling
from frtop_tui.diagnosis.thresholds import (
    EXPLAINED_SHARE,
    MIN_SLOW_SHARE,
    MOST_ARRIVALS,
    PARTS_WITHOUT_STEPS,
)
from frtop_tui.job.groups import members_of
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, SampledGroup, SampledOp


class LateRanks(NamedTuple):
    """Ranks that arrive late in one group."""

    group: GroupKey
    ranks: tuple[int, ...]  # as few as explain it
    members: tuple[int, ...]  # all that were compared, including `ranks`
    since_ns: int  # operator's clock; with `at_least` it may be longer
    until_ns: int  # of the last op
    at_least: bool
    late: int  # in how many of the `sampled` ops since then they were late
    sampled: int
    late_ns: int  # by how much: the median, weighted by the time that it cost
    error_ns: int  # how wrong the clocks may make that
    share: float  # of all time that the others lose; a lower bound if `most_share` is larger
    sure: bool  # beyond doubt; else only suspected
    kind: str = ""
    site: wire.Site | None = None  # the line at which they are late most
    stride: int = 1  # one op in `stride` was sampled
    most_share: float = 0.0  # the upper bound of `share`
    # if steps show it and sampled ops do not: in how many of `steps` they had more own work
    late_steps: int = 0
    steps: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the cost of ops that were not sampled is unknown."""
        return self.most_share > self.share

    @property
    def late_ops(self) -> int:
        """In about how many ops they were late, sampled or not."""
        return self.late * self.stride


class Arrivals(NamedTuple):
    """When ranks with the same work arrived at a group's sampled ops, by parts of the window."""

    group: SampledGroup
    peers: Sequence[int]
    tests: int  # how many groups are searched
    ops: Sequence[SampledOp]
    parts: Sequence[Part[int]]
    content: Sequence[Sequence[Episode]]  # of each part


def arrivals_of(
    statistics: JobStatistics,
    group: SampledGroup,
    peers: Sequence[int],
    tests: int = 1,
    *,
    on_device: bool = False,
) -> Arrivals:
    """The arrivals of `peers`; `on_device` if the group's ops may run on devices."""
    # In a large group a few ops show as much, and each arrival costs time.
    most = max(64, MOST_ARRIVALS // max(1, tests * len(group.members)))
    ops = usable_ops(group, peers, on_device=on_device)[-most:]
    if not ops:
        return Arrivals(group, peers, tests, (), (), ())
    bounds = boundaries(statistics, peers, ops[0].first_ns, ops[-1].last_ns, group.stride)
    parts, content = in_parts(bounds, episodes_of(ops), peers)
    scales = _scales(statistics, group, peers, parts, content)
    scaled = [_scaled(part, scale) for part, scale in zip(parts, scales, strict=True)]
    return Arrivals(group, peers, tests, ops, scaled, content)


def late_ranks(statistics: JobStatistics, seen: Arrivals) -> LateRanks | None:
    """The ranks that arrive late; None if nobody does."""
    group, peers, tests, ops, parts, content = seen
    found, by_steps = straggling(parts, tests), None
    if group.stride > 1 and (found is None or not found.sure):
        by_steps = _shown_by_steps(statistics, seen)
        found = by_steps or found
    if found is None:
        return None
    since = [those for those in content if those[-1].last_ns >= found.since_ns]
    until_ns = ops[-1].last_ns
    most_share = min(found.share, _most_lost(statistics, group, peers, found))
    if most_share < MIN_SLOW_SHARE:
        return None
    is_open = _is_cost_open(statistics, group, peers)
    share = most_share / group.stride if is_open else most_share
    sizes = _lateness([op for part in since for one in part for op in one.ops], peers, found.who)
    if not sizes:
        return None
    late_ns = _weighted_median([size for size, _ in sizes])
    # Ranks are last by a little by chance: only half of the usual lateness counts.
    late = [(size, op) for size, op in sizes if 2 * size >= late_ns]
    kind, site = _call_of(late)
    return LateRanks(
        group.group,
        found.who,
        tuple(peers),
        found.since_ns,
        until_ns,
        found.at_least,
        len(late),
        sum(len(one.ops) for part in since for one in part),
        late_ns,
        round(median(op.error_ns or 0 for _, op in late)),
        share,
        found.sure,
        kind,
        site,
        group.stride,
        most_share,
        by_steps.late if by_steps is not None else 0,
        by_steps.parts if by_steps is not None else 0,
    )


def usable_ops(group: SampledGroup, peers: Sequence[int], *, on_device: bool) -> list[SampledOp]:
    """Ops that need all members, with the arrival of each of `peers` on comparable clocks.

    A host issues ahead of its device. Issuing late costs nothing, unless the op ended soon after:
    then the device had nothing else to do.
    """
    found = []
    for op in group.arrivals:
        if op.kind not in NEED_ALL or op.error_ns is None or not op.complete:
            continue
        if on_device and (op.ended_ns is None or op.ended_ns - op.last_ns > op.skew_ns):
            continue
        # After a quiet time more ops are sampled.
        if is_chosen(op.number, group.stride) and all(rank in op.arrivals for rank in peers):
            found.append(op)
    return found


def _shown_by_steps(statistics: JobStatistics, seen: Arrivals) -> Straggling[int] | None:
    """Ranks with more own work in step after step, if the sampled ops agree.

    A rank may be late to one op of each step, which is rarely sampled. Own work may also be a wait
    that was not recorded, so the rank has to arrive later than the others, too.
    """
    peers, tests = seen.peers, seen.tests
    if not any_wait_was_seen(statistics, peers):
        return None
    most = max(PARTS_WITHOUT_STEPS // 2, MOST_ARRIVALS // max(1, tests * len(peers)))
    found = straggling(own_parts(statistics, peers, most), tests)
    if found is None:
        return None
    late = {
        rank: sum(part.delays[rank] for part in seen.parts if part.to_ns > found.since_ns)
        for rank in peers
    }
    others = max(late[rank] for rank in peers if rank not in found.who)
    return found if min(late[rank] for rank in found.who) > others else None


def _scales(
    statistics: JobStatistics,
    group: SampledGroup,
    peers: Sequence[int],
    parts: Sequence[Part[int]],
    content: Sequence[Sequence[Episode]],
) -> list[float]:
    """By part, the factor from sampled ops to all ops.

    If every op is waited for, a sampled one stands for `stride` ops. Otherwise one lateness may
    show in many ops of a step, so a step with a sampled op stands for the steps without. If steps
    are unknown, too, the factor is `stride`: an upper bound.
    """
    is_open = _is_cost_open(statistics, group, peers)
    if group.stride == 1 or is_open or waits_are_known(statistics, peers, 0):
        return [float(group.stride)] * len(parts)
    took = median(step.took_ns for step in known_steps(statistics, peers)) or 1
    scales = []
    for part, those in zip(parts, content, strict=True):
        seen = len({int((one.last_ns - part.from_ns) / took) for one in those})
        steps = (part.to_ns - part.from_ns) / took
        scales.append(max(1.0, min(float(group.stride), steps / seen)))
    return scales


def _is_cost_open(statistics: JobStatistics, group: SampledGroup, peers: Sequence[int]) -> bool:
    """Whether ops that were not sampled may cost less than those that were."""
    known = waits_are_known(statistics, peers, 0) or known_steps(statistics, peers)
    return group.stride > 1 and not known


def _scaled(part: Part[int], scale: float) -> Part[int]:
    if scale == 1:
        return part
    delays = {rank: round(scale * delay) for rank, delay in part.delays.items()}
    return replace(part, delays=delays, error_ns=round(scale * part.error_ns))


def _most_lost(
    statistics: JobStatistics,
    group: SampledGroup,
    peers: Sequence[int],
    found: Straggling[int],
) -> float:
    """An upper bound of the share of time that the others lose, if few ops are sampled."""
    if group.stride == 1:
        return 1.0
    took = step_ns(statistics, peers, found.since_ns)
    own = most_excess_ns(statistics, found.who, peers, found.since_ns)
    if took and own is not None:
        return max(0, own) / took
    return 1.0


def _lateness(
    ops: Sequence[SampledOp], peers: Sequence[int], who: Sequence[int]
) -> list[tuple[int, SampledOp]]:
    """For each op in which one of `who` is last: how long after the others they arrive."""
    others = [rank for rank in peers if rank not in who]
    found = []
    for op in ops:
        last = max(op.arrivals[rank] for rank in who)
        if last > max(op.arrivals[rank] for rank in others):
            usual = median(op.arrivals[rank] for rank in others)
            late = median(op.arrivals[rank] for rank in who)
            if late > usual:
                found.append((round(late - usual), op))
    return found


def _call_of(late: Sequence[tuple[int, SampledOp]]) -> tuple[str, wire.Site | None]:
    """The kind and line of the ops with the most lateness in sum.

    If several cost about as much, always the same one is chosen, so that the text does not flicker.
    """
    sums: defaultdict[tuple[str, wire.Site | None], int] = defaultdict(int)
    for size, op in late:
        sums[op.kind, op.site] += size
    most = max(sums.values())
    alike = (call for call, total in sums.items() if 2 * total >= most)
    return min(alike, key=lambda call: (call[0], astuple(call[1] or wire.Site("", 0, ""))))


def _weighted_median(sizes: Sequence[int]) -> int:
    """The size at which half of the sum is reached: many small ones do not hide a large one."""
    left = sum(sizes) / 2
    for size in sorted(sizes):
        left -= size
        if left <= 0:
            return size
    return sizes[-1]


def to_blame(
    statistics: JobStatistics,
    found: Sequence[LateRanks],
    known: Mapping[int, Place],
    links: Sequence[SlowLink],
) -> list[LateRanks]:
    """The late ranks whose lateness nothing else explains, the costliest first.

    `known` are the places of ranks that send and receive. A rank that leaves the long ops of
    `links` late arrives late at the next op.
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
            costs_enough = nearest.share >= MIN_SLOW_SHARE  # else it is a suspicion
            first.append(nearest._replace(sure=nearest.sure and costs_enough))
        named.update(one.ranks)
    return first


def _nearest(one: LateRanks, roots: Sequence[LateRanks]) -> LateRanks:
    """Of the groups in which the same ranks are as late, the one with the most late ops.

    Lateness at many ops adds up in the next op of another group, which is farther from the cause.
    """
    same = [
        other
        for other in roots
        if other.ranks == one.ranks and other.most_share >= EXPLAINED_SHARE * one.share
    ]
    nearest = max(same, key=lambda other: other.late_ops)
    return nearest._replace(share=max(other.share for other in same))


def _waited_elsewhere(one: LateRanks, found: Sequence[LateRanks]) -> bool:
    """Whether others hold these ranks up in another group for most of their lateness."""
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
    """Whether `one` holds up `other`, too: then neither explains the other."""
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
    """Whether these ranks waited elsewhere for most of their lateness.

    They did if their recorded waits are longer than the others', and did not if they had more own
    work. In between, not all waits are recorded: ranks that receive may have waited for a message;
    others waited if even the upper bound of their own work is too small.
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
