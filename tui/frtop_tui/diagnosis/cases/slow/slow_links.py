"""Groups whose ops take long once all members have arrived, and what these have in common.

Similar groups move the same data in the same calls. If some of them take longer in part after part,
the rank or host that is in all of these and in none of the others has the slow link; if there is
none, it is a link between the members. Time counts from the last arrival, so that no late member,
and no work before the op, makes a link slow. Ops on devices say nothing: hosts issue them early,
and they wait there for earlier work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from frtop_probe import wire
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.diagnosis.cases.slow.parts import Part, boundaries
from frtop_tui.diagnosis.cases.slow.roles import axis_of, on_devices
from frtop_tui.diagnosis.cases.slow.straggling import Straggling, straggling
from frtop_tui.diagnosis.thresholds import SLOW_LINK
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics, SampledGroup, SampledOp


class SlowLink(NamedTuple):
    """Ops of some groups that take longer than those of similar groups."""

    groups: tuple[GroupKey, ...]  # with slow ops, among `alike` similar groups
    alike: int
    ranks: tuple[int, ...]  # in all of these and no other group; all members if not `common`
    common: bool
    host: str  # of all `ranks`, if hosts differ
    since_ns: int
    until_ns: int
    at_least: bool
    transfer_ns: int  # from the last arrival to the end, the median; in the others `usual_ns`
    usual_ns: int
    skew_ns: int  # from the first to the last arrival, the median
    share: float  # of the time that their members lose
    sure: bool
    members: tuple[int, ...]
    sampled: int
    kind: str = ""
    bytes: int = 0
    site: wire.Site | None = None


class _Call(NamedTuple):
    """Ops of one kind and size, from one line, in similar groups."""

    axis: tuple[str, int, int]  # see `axis_of`
    kind: str
    site: wire.Site | None
    size: int  # bit length of their bytes


class _Compared(NamedTuple):
    """Similar groups, in one call: the slow ones and the others."""

    call: _Call
    ops: Mapping[str, Sequence[SampledOp]]
    seen: Straggling[str] | None
    slow: Sequence[SampledGroup]
    others: Sequence[SampledGroup]
    until_ns: int


def slow_links(statistics: JobStatistics, frame: BaseFrame) -> list[SlowLink]:
    """Slow groups of each call, the costliest first; `frame` has hosts and groups."""
    hosts = {rank: view.host for rank, view in frame.ranks.items()}
    compared = [
        _compare(statistics, call, [group for group, _ in those], [ops for _, ops in those])
        for call, those in _by_call(statistics.groups, frame, hosts).items()
        if len(those) > 1 and _are_apart([group for group, _ in those])
    ]
    quick = [group for one in compared for group in one.others]
    several = len(set(hosts.values())) > 1
    found = []
    for one in compared:
        if one.seen is not None:
            ranks, common = _in_common(one.slow, quick, hosts)
            names = {hosts.get(rank, "") for rank in ranks}
            host = names.pop() if several and common and len(names) == 1 else ""
            described = _described(one, one.seen)
            found.append(described._replace(ranks=ranks, common=common, host=host))
    return sorted(found, key=lambda one: one.share, reverse=True)


def _by_call(
    groups: Sequence[SampledGroup], frame: BaseFrame, hosts: Mapping[int, str]
) -> dict[_Call, list[tuple[SampledGroup, Sequence[SampledOp]]]]:
    """The similar groups of each call, with their ops whose begin and end are known."""
    descriptions = {group.key: group.description for group in frame.groups}
    unknown = on_devices(frame)
    found: defaultdict[_Call, dict[GroupKey, tuple[SampledGroup, list[SampledOp]]]]
    found = defaultdict(dict)
    for group in groups:
        if group.group in unknown:
            continue
        axis = axis_of(group, descriptions.get(group.group, ""), hosts)
        for op in group.arrivals:
            if op.complete and op.bytes and op.transfer_ns and is_chosen(op.number, group.stride):
                call = _Call(axis, op.kind, op.site, op.bytes.bit_length())
                found[call].setdefault(group.group, (group, []))[1].append(op)
    return {call: [*those.values()] for call, those in found.items()}


def _are_apart(groups: Sequence[SampledGroup]) -> bool:
    """Whether no rank is in two of them: else they are different axes, however they are called."""
    return sum(len(group.members) for group in groups) == len(_union(g.members for g in groups))


def _compare(
    statistics: JobStatistics,
    call: _Call,
    groups: Sequence[SampledGroup],
    several: Sequence[Sequence[SampledOp]],
) -> _Compared:
    ops = {group.group.ranks: those for group, those in zip(groups, several, strict=True)}
    from_ns = max(those[0].last_ns for those in several)
    until_ns = min(those[-1].last_ns for those in several)
    bounds = boundaries(statistics, groups[0].members, from_ns, until_ns)
    parts = _parts(bounds, ops, {group.group.ranks: group.stride for group in groups})
    seen = straggling(parts, len(groups))
    if seen is not None and _times_as_long(ops, seen) < SLOW_LINK:
        seen = None
    who = seen.who if seen is not None else ()
    slow = [group for group in groups if group.group.ranks in who]
    others = [group for group in groups if group.group.ranks not in who]
    return _Compared(call, ops, seen, slow, others, until_ns)


def _times_as_long(ops: Mapping[str, Sequence[SampledOp]], seen: Straggling[str]) -> float:
    """How many times as long as in the slowest of the other groups an op takes in the slow ones.

    With more ops in the same time, each one may take that much longer.
    """
    recent = {
        name: [op for op in those if op.last_ns >= seen.since_ns] for name, those in ops.items()
    }
    medians = {name: median(map(_transfer_ns, those)) for name, those in recent.items() if those}
    rates = {name: _rate(those) for name, those in recent.items()}
    slow = min(medians.get(name, 0) for name in seen.who)
    usual = max(1, *(ns for name, ns in medians.items() if name not in seen.who))
    rate = max(rates[name] for name in seen.who)
    usual_rate = min(one for name, one in rates.items() if name not in seen.who)
    return slow / usual / max(1.0, rate / usual_rate if usual_rate else 1.0)


def _rate(ops: Sequence[SampledOp]) -> float:
    """All ops of a group in a ns, those between the sampled ones, too; 0 if it is not known."""
    span_ns = ops[-1].last_ns - ops[0].last_ns if ops else 0
    return (ops[-1].number - ops[0].number) / span_ns if span_ns > 0 else 0.0


def _described(one: _Compared, seen: Straggling[str]) -> SlowLink:
    call, slow, others = one.call, one.slow, one.others
    theirs, usual = (
        [op for group in those for op in one.ops[group.group.ranks] if op.last_ns >= seen.since_ns]
        for those in (slow, others)
    )
    return SlowLink(
        tuple(group.group for group in slow),
        len(slow) + len(others),
        (),
        False,
        "",
        seen.since_ns,
        one.until_ns,
        seen.at_least,
        round(median(map(_transfer_ns, theirs))),
        round(median(map(_transfer_ns, usual))),
        round(median(op.skew_ns for op in theirs)),
        seen.share,
        seen.sure,
        tuple(sorted({rank for group in slow for rank in group.members})),
        len(theirs),
        call.kind,
        round(median(op.bytes for op in theirs)),
        call.site,
    )


def _transfer_ns(op: SampledOp) -> int:
    return op.transfer_ns or 0


def _parts(
    bounds: Sequence[int], ops: Mapping[str, Sequence[SampledOp]], strides: Mapping[str, int]
) -> list[Part[str]]:
    """Sums of transfers by group, for parts in which each group has ops.

    Ops that are in flight at once would have a sum above the length of their part.
    """
    sums: list[dict[str, int]] = [{} for _ in bounds[1:]]
    for name, those in ops.items():
        index = 0
        for op in those:
            while index < len(sums) and op.last_ns >= bounds[index + 1]:
                index += 1
            if index < len(sums) and op.last_ns >= bounds[index]:
                took = strides[name] * _transfer_ns(op)
                sums[index][name] = sums[index].get(name, 0) + took
    return [
        Part(
            bounds[index],
            bounds[index + 1],
            {name: min(delay, bounds[index + 1] - bounds[index]) for name, delay in delays.items()},
        )
        for index, delays in enumerate(sums)
        if len(delays) == len(ops)
    ]


def _in_common(
    slow: Sequence[SampledGroup], others: Sequence[SampledGroup], hosts: Mapping[int, str]
) -> tuple[tuple[int, ...], bool]:
    """Ranks, or ranks of one host, in all slow groups and no other, if there are any.

    For a pair that shares no other group, it is not known at which end the link is slow.
    """
    members = [set(group.members) for group in slow]
    innocent = _union(group.members for group in others)
    ranks = set.intersection(*members) - innocent
    if len(ranks) == 1:
        return tuple(ranks), True
    places = [{hosts.get(rank, "") for rank in those} for those in members]
    # A group within one host does not use its link to others.
    apart = (group for group in others if len({hosts.get(rank, "") for rank in group.members}) > 1)
    suspects = set.intersection(*places) - {hosts.get(r, "") for g in apart for r in g.members}
    if len(suspects) == 1 and len(set(hosts.values())) > 1:
        there = {rank for those in members for rank in those if hosts.get(rank, "") in suspects}
        return tuple(sorted(there)), True
    return tuple(sorted(_union(members))), False


def _union(sets: Iterable[Iterable[int]]) -> set[int]:
    return {rank for one in sets for rank in one}
