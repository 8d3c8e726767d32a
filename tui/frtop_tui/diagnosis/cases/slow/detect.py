"""Which ranks or links are slow; asked last, when no rank hangs, has died or differs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.slow.host_evidence import host_evidence
from frtop_tui.diagnosis.cases.slow.late_ranks import (
    Arrivals,
    LateRanks,
    arrivals_of,
    late_ranks,
    to_blame,
)
from frtop_tui.diagnosis.cases.slow.looks import Looks
from frtop_tui.diagnosis.cases.slow.parts import step_ns
from frtop_tui.diagnosis.cases.slow.roles import Place, on_devices, op_rates, peers_of, places
from frtop_tui.diagnosis.cases.slow.slow_links import SlowLink, slow_links
from frtop_tui.diagnosis.cases.slow.straggling import least_found, straggling
from frtop_tui.diagnosis.cases.slow.why_slow import MOST_COMPARED, SlowCause, cause_of, ready_share
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import OpName, Slowness
from frtop_tui.diagnosis.thresholds import (
    ARRIVALS_PER_S,
    CONFIRM_NS,
    SLOW_FORGOTTEN_NS,
    STATISTICS_STALE_NS,
)
from frtop_tui.job.model import BaseFrame, ObservedFrame, Rank
from frtop_tui.job.statistics import JobStatistics

MOST_SLOW: Final = 4
"""Verdicts on slow ranks, the costliest first; the next step is about that one."""
MOST_LOOKED_AT: Final = 2
LOOK_AGAIN_NS: Final = 30_000_000_000
"""Looks this far apart show how much processor time a rank gets on average."""
LOOK_OFTEN_NS: Final = 1_000_000_000
"""How far apart looks are as long as nothing shows the cause, until there are enough."""


class SlowDetail(Detail, frozen=True):
    """Common to stragglers and slow links. `until_ns` is the end of the window that shows it.

    `sure`: beyond doubt; else it is a suspicion.
    """

    why: SlowCause
    slowness: Slowness
    until_ns: int
    sure: bool


class LateDetail(SlowDetail, frozen=True):
    """Ranks for which others wait."""

    late: LateRanks


class LinkDetail(SlowDetail, frozen=True):
    """Ops that take long, though all arrive together."""

    link: SlowLink


@dataclass(slots=True)
class SlowState:
    """What the last statistics showed: they arrive every few seconds, frames more often.

    `looks` are those at late ranks, and at a few others to compare with.
    """

    statistics: JobStatistics | None = None
    late: list[LateRanks] = field(default_factory=list)
    links: list[SlowLink] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()
    shown_ns: int = 0  # the end of the last statistics that show them
    looks: Looks = field(default_factory=Looks)
    judged_ns: int = 0
    next_ns: int = 0  # statistics before this time are not searched


def slow(frame: ObservedFrame, state: SlowState) -> tuple[Finding, ...]:
    """Findings from the newest statistics; none if they are missing or too old."""
    statistics = frame.statistics
    if statistics is not None and frame.now_ns < state.next_ns:
        statistics = state.statistics  # with very many ranks, not all statistics are searched
    if statistics is None or frame.now_ns - statistics.until_ns > STATISTICS_STALE_NS:
        state.statistics, state.findings = statistics, ()
        return ()
    fresh = statistics is not state.statistics
    if fresh:
        state.statistics = statistics
        late, links = search(statistics, frame)
        if late or links or not _is_unseen(frame, statistics, state):
            state.late, state.links, state.shown_ns = late, links, statistics.until_ns
        arrivals = sum(len(group.members) * len(group.arrivals) for group in statistics.groups)
        state.next_ns = frame.now_ns + arrivals * 1_000_000_000 // ARRIVALS_PER_S
    state.looks.take(frame.ranks, _compared_by_looks(state.late))
    if fresh or frame.now_ns - state.judged_ns > CONFIRM_NS:  # a look may show the cause
        state.judged_ns = frame.now_ns
        state.findings = tuple(_findings(frame, statistics, state))
    return state.findings


def _is_unseen(frame: ObservedFrame, statistics: JobStatistics, state: SlowState) -> bool:
    """Whether these statistics say nothing of the ranks that were late a moment ago.

    With very many ranks, or a slow connection, answers of some hosts come too late to be compared.
    """
    if not state.late or statistics.until_ns - state.shown_ns > STATISTICS_STALE_NS:
        return False
    seen = compared(replace(frame, statistics=statistics))
    ranks = {rank for one in state.late for rank in one.ranks}
    return not seen.ns or ranks <= {*seen.left_out}


def to_look_at(state: SlowState, ranks: Mapping[int, Rank], now_ns: int) -> list[int]:
    """Late ranks, and a few others to compare with, unless the last look at them is recent."""
    unknown = any(one.cause == "unknown" for one in state.findings)
    found = []
    for rank in _compared_by_looks(state.late):
        view = ranks.get(rank)
        often = unknown and state.looks.wants(rank)
        if view is not None and _is_due(view, now_ns, LOOK_OFTEN_NS if often else LOOK_AGAIN_NS):
            found.append(rank)
    return found


def _compared_by_looks(late: Iterable[LateRanks]) -> list[int]:
    found: dict[int, None] = {}
    for one in islice(late, MOST_SLOW):
        others = [rank for rank in one.members if rank not in one.ranks]
        found |= dict.fromkeys((*one.ranks[:MOST_LOOKED_AT], *others[:MOST_LOOKED_AT]))
    return [*found]


def _is_due(view: Rank, now_ns: int, again_ns: int) -> bool:
    new, old = view.snapshot, view.prior_snapshot
    return new is None or old is None or now_ns - view.clock_ns - new.at_ns >= again_ns


def search(statistics: JobStatistics, frame: BaseFrame) -> tuple[list[LateRanks], list[SlowLink]]:
    """Late ranks that nothing else explains, and slow links; `frame` has the ranks and groups."""
    known = places(frame.ranks)
    every = (late_ranks(statistics, seen) for seen in _arrivals(statistics, frame, known))
    links = slow_links(statistics, frame)
    found = [one for one in every if one is not None]
    return to_blame(statistics, found, known, links), links


def _arrivals(
    statistics: JobStatistics, frame: BaseFrame, known: Mapping[int, Place]
) -> Iterator[Arrivals]:
    """The arrivals in each group, of ranks with the same work."""
    devices, rates, tests = on_devices(frame), op_rates(statistics), len(statistics.groups)
    for group in statistics.groups:
        on_device = group.group in devices
        for peers in peers_of(group.members, known, rates):
            yield arrivals_of(statistics, group, peers, tests, on_device=on_device)


class Compared(NamedTuple):
    """How certain it is that no rank is slow."""

    ns: int = 0  # how long ranks of the same work were compared; 0: too short to find anybody
    share: float = 1.0  # of the time: a rank that costs the others this much would be suspected
    stride: int = 1  # one op in `stride` was compared
    left_out: tuple[int, ...] = ()  # ranks that could not be compared
    # ranks that arrive late again and again: without a verdict on them, nothing shows whether they
    # are slow themselves or waited for others before
    late: tuple[int, ...] = ()


_compared: tuple[JobStatistics | None, int, Compared] = (None, 0, Compared())


def compared(frame: BaseFrame) -> Compared:
    """Judges each rank by the group that shows most about it, all ranks by the worst of these.

    The answer is kept until there are new statistics: screens ask for it in each frame.
    """
    global _compared  # noqa: PLW0603 - a cache of one
    statistics, ranks = frame.statistics, len(frame.ranks)
    if statistics is None:
        return Compared()
    known = _compared
    if known[0] is not statistics or known[1] != ranks:
        known = _compared = statistics, ranks, _compare(statistics, frame)
    return known[2]


def _compare(statistics: JobStatistics, frame: BaseFrame) -> Compared:
    best: dict[int, Compared] = {}
    late: set[int] = set()
    for seen in _arrivals(statistics, frame, places(frame.ranks)):
        if (found := straggling(seen.parts, seen.tests)) is not None:
            late.update(found.who)
        share = least_found(seen.parts, seen.tests)
        if share is None:
            continue
        length_ns = seen.ops[-1].last_ns - seen.ops[0].first_ns
        one = Compared(length_ns, share, seen.group.stride)
        for rank in seen.peers:
            if rank not in best or share < best[rank].share:
                best[rank] = one
    if not best:
        return Compared()
    left_out = tuple(sorted(frame.ranks.keys() - best.keys()))
    worst = max(best.values(), key=lambda one: one.share)
    return worst._replace(left_out=left_out, late=tuple(sorted(late)))


def _findings(
    frame: ObservedFrame, statistics: JobStatistics, state: SlowState
) -> Iterable[Finding]:
    on_gpus = bool(on_devices(frame))
    named: set[int] = set()
    for late in state.late[:MOST_SLOW]:
        waiting = connected(statistics, late.members) - set(late.ranks)
        why = cause_of(statistics, late, frame, state.looks)
        if why.awaits_remote_call:
            continue
        slowness = Slowness(
            late.late, late.sampled, late.late_ns, late.error_ns, late.share, len(waiting), 0,
            why.step_ns, on_gpus, late.at_least, late.most_share if late.is_open else 0.0,
        )  # fmt: skip
        named.update(late.ranks)
        yield Finding(
            kind="slow",
            detail=LateDetail(why, slowness, late.until_ns, late.sure, late),
            key=("slow", late.ranks),
            culprits=late.ranks,
            victims=frozenset(waiting),
            cause=why.cause,
            progress="active",
            group=late.group,
            op=OpName(late.kind),
            since_ns=late.since_ns,
        )
    links = [link for link in state.links if named.isdisjoint(link.ranks)]
    for link in links[:1]:  # further calls over one link show the same
        yield _of_link(frame, statistics, link, on_gpus=on_gpus)


def _of_link(
    frame: ObservedFrame,
    statistics: JobStatistics,
    link: SlowLink,
    *,
    on_gpus: bool,
) -> Finding:
    culprits = link.ranks if link.common else ()
    waiting = connected(statistics, link.members) - set(culprits)
    took = step_ns(statistics, link.members, link.since_ns)
    slowness = Slowness(
        link.sampled, link.sampled, link.transfer_ns - link.usual_ns, 0, link.share, len(waiting),
        0, took, on_gpus, link.at_least,
    )  # fmt: skip
    why = _why_of_link(link, frame)
    parties = () if link.common else tuple((rank,) for rank in link.ranks)
    return Finding(
        kind="slow",
        detail=LinkDetail(why, slowness, link.until_ns, link.sure, link),
        key=("slow link", link.ranks),
        culprits=culprits,
        parties=parties,
        victims=frozenset(waiting),
        cause=why.cause,
        progress="active",
        group=link.groups[0],
        op=OpName(link.kind),
        since_ns=link.since_ns,
    )


def _why_of_link(link: SlowLink, frame: ObservedFrame) -> SlowCause:
    """The network, if hosts differ and the ranks had their processors."""
    ranks = frame.ranks
    views = [ranks[rank] for rank in link.ranks if rank in ranks]
    waits = [share for view in views if (share := ready_share(view)) is not None]
    if waits and max(waits) >= link.share:
        return SlowCause("starved", ready=max(waits))
    apart = len({ranks[rank].host for rank in link.members if rank in ranks}) > 1
    if not apart:
        return SlowCause()
    there = {view.host for view in views}
    others = [view for view in ranks.values() if view.host not in there][:MOST_COMPARED]
    gauges = host_evidence(views, others, frame.hosts, link.since_ns, link.until_ns)
    return SlowCause("network", fact=gauges.of_cause("network"), context=gauges.context)


def connected(statistics: JobStatistics, members: Iterable[int]) -> set[int]:
    """All ranks that share a group with these, directly or through others: all of them wait."""
    found, left = set(members), list(statistics.groups)
    grown = True
    while grown:
        grown = False
        for group in left[:]:
            if not found.isdisjoint(group.members):
                found.update(group.members)
                left.remove(group)
                grown = True
    return found


MOST: Final = 64
"""Episodes that are remembered: with more at a time, these are no stragglers."""


@dataclass(slots=True)
class SlowEpisode:
    """One cause of slowness. Times are on the operator's clock.

    `lost_ns` is the time that all waiting ranks together lost until `until_ns`.
    """

    since_ns: int
    until_ns: int
    lost_ns: float
    at_least: bool


@dataclass(slots=True)
class SlowEpisodes:
    """The episodes of one job."""

    _known: dict[Hashable, SlowEpisode] = field(default_factory=dict)

    def apply(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings, extended by what earlier windows showed of the same causes."""
        return tuple(map(self._extended, findings))

    def _extended(self, finding: Finding) -> Finding:
        detail = finding.detail
        if not isinstance(detail, SlowDetail):
            return finding
        seen, until_ns = detail.slowness, detail.until_ns
        rate = seen.share * seen.waiting
        known = self._known.get(finding.key)
        if known is None:
            lost_ns = rate * max(0, until_ns - finding.since_ns)
            known = SlowEpisode(finding.since_ns, until_ns, lost_ns, seen.at_least)
            if detail.sure and len(self._known) < MOST:  # a suspicion starts over each time
                self._known[finding.key] = known
        elif until_ns > known.until_ns:
            known.lost_ns += rate * (until_ns - known.until_ns)
            known.until_ns = until_ns
        since = replace(seen, lost_ns=round(known.lost_ns), at_least=known.at_least)
        # A rank that was surely slow, and still seems to be, is slow.
        sure = detail.sure or finding.key in self._known
        detail = replace(detail, slowness=since, sure=sure)
        return replace(finding, since_ns=known.since_ns, detail=detail)

    def forget(self, now_ns: int) -> None:
        """Ends episodes that have not shown for a while."""
        ended = [
            key for key, one in self._known.items() if now_ns - one.until_ns > SLOW_FORGOTTEN_NS
        ]
        for key in ended:
            del self._known[key]
