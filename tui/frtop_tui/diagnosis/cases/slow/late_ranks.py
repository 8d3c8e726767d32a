"""Ranks that arrive late at the collectives of one group, and by how much.

Late in a group is not slow yet: a rank may have waited elsewhere. `to_blame` tells that apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    members: tuple[int, ...]  # those that were compared, they among them
    since_ns: int  # operator's clock; with `at_least` it may be longer
    until_ns: int  # of the last op
    at_least: bool
    late: int  # sampled ops since then that they were late in, of `sampled`
    sampled: int
    late_ns: int  # by how much: the median, weighted by the time that it cost
    error_ns: int  # by how much clocks may make that wrong
    # of all time, that the others lose by it; at least that, where `most_share` is more
    share: float
    sure: bool  # whether that is beyond doubt; else they are suspected
    kind: str = ""
    site: wire.Site | None = None  # the line of the ops in which that is most
    stride: int = 1  # one op of so many was sampled
    most_share: float = 0.0  # the same at most
    # where the steps show it, and not the sampled ops: steps in which they did more of their own,
    # of `steps`; else 0
    late_steps: int = 0
    steps: int = 0

    @property
    def is_open(self) -> bool:
        """Whether nobody knows what ops cost that were not sampled."""
        return self.most_share > self.share

    @property
    def late_ops(self) -> int:
        """In about how many ops they were late, those included that were not sampled."""
        return self.late * self.stride


class Arrivals(NamedTuple):
    """When the same ranks arrived at the sampled ops of a group, in parts of the window."""

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
    """Those that tell who of `peers` is late; arguments as for `late_ranks`."""
    # Of a large group a few ops show as much, and each arrival costs time.
    most = max(64, MOST_ARRIVALS // max(1, tests * len(group.members)))
    ops = usable_ops(group, peers, on_device=on_device)[-most:]
    if not ops:
        return Arrivals((), (), ())
    bounds = boundaries(statistics, peers, ops[0].first_ns, ops[-1].last_ns, group.stride)
    parts, content = in_parts(bounds, episodes_of(ops), peers)
    scales = _scales(statistics, group, peers, parts, content)
    scaled = [_scaled(part, scale) for part, scale in zip(parts, scales, strict=True)]
    return Arrivals(ops, scaled, content)


def late_ranks(
    statistics: JobStatistics,
    group: SampledGroup,
    peers: Sequence[int],
    tests: int = 1,
    *,
    on_device: bool = False,
) -> LateRanks | None:
    """Those of `peers` that arrive late at the ops of `group`; None if nobody does.

    `peers` are members with the same work, `tests` counts the groups that are looked at, and with
    `on_device` its ops may be of devices.
    """
    ops, parts, content = arrivals_of(statistics, group, peers, tests, on_device=on_device)
    found, by_steps = straggling(parts, tests), None
    if group.stride > 1 and (found is None or not found.sure):
        by_steps = _shown_by_steps(statistics, peers, parts, tests)
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
    # A rank that is a little last by chance is not late: half as much as usual counts.
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
    """Ops that need all, of which it is known when each of `peers` arrived, on clocks that compare.

    The host of a device issues ahead of it. That it issues late costs nothing, unless the op was
    over soon after: then the device had nothing else to do.
    """
    found = []
    for op in group.arrivals:
        if op.kind not in NEED_ALL or op.error_ns is None or not op.complete:
            continue
        if on_device and (op.ended_ns is None or op.ended_ns - op.last_ns > op.skew_ns):
            continue
        # More of them are sampled where there were fewer for a while.
        if is_chosen(op.number, group.stride) and all(rank in op.arrivals for rank in peers):
            found.append(op)
    return found


def _shown_by_steps(
    statistics: JobStatistics, peers: Sequence[int], parts: Sequence[Part[int]], tests: int
) -> Straggling[int] | None:
    """Those who do more of their own in step after step, if the sampled ops say the same.

    A rank may be late to one op of each step, and that one is rarely sampled. What is not recorded
    may pass for a rank's own work: so it has to arrive later than the others, too.
    """
    if not any_wait_was_seen(statistics, peers):
        return None
    most = max(PARTS_WITHOUT_STEPS // 2, MOST_ARRIVALS // max(1, tests * len(peers)))
    found = straggling(own_parts(statistics, peers, most), tests)
    if found is None:
        return None
    late = {
        rank: sum(part.delays[rank] for part in parts if part.to_ns > found.since_ns)
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
    """By part, how much time the sampled ops are an example of.

    Where ops are waited for one by one, each stands for those that were not sampled. Else one
    lateness may show in many ops of a step: then each step with a sampled op stands for those
    without. Where no steps are known either, they stand for all: what that costs at most.
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
    """Whether nothing tells if ops that were not sampled cost as much as those that were."""
    known = waits_are_known(statistics, peers, 0) or known_steps(statistics, peers)
    return group.stride > 1 and not known


def _scaled(part: Part[int], scale: float) -> Part[int]:
    if scale == 1:
        return part
    delays = {rank: round(scale * delay) for rank, delay in part.delays.items()}
    return part._replace(delays=delays, error_ns=round(scale * part.error_ns))


def _most_lost(
    statistics: JobStatistics,
    group: SampledGroup,
    peers: Sequence[int],
    found: Straggling[int],
) -> float:
    """At most which share of the time the others can lose in this group, where few are sampled."""
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
    """Of each op in which one of `who` is the last, by how much they arrive after the others."""
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
    """The kind of op, and its line, to which ranks arrive late for the longest in sum.

    Of several that cost about as much it is always the same one: what is said must not change from
    look to look.
    """
    sums: defaultdict[tuple[str, wire.Site | None], int] = defaultdict(int)
    for size, op in late:
        sums[op.kind, op.site] += size
    most = max(sums.values())
    alike = (call for call, total in sums.items() if 2 * total >= most)
    return min(alike, key=lambda call: (call[0], astuple(call[1] or wire.Site("", 0, ""))))


def _weighted_median(sizes: Sequence[int]) -> int:
    """The size up to which half of the sum comes: many small ones do not hide a large one."""
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
    """Of all that are late those of whom nothing else explains it, the costliest first.

    `known` are the places of ranks that send and receive. Whoever leaves late the long ops of
    `links` arrives late at the next.
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
