"""What gauges show about why a rank is late: facts that hold for no rank on time.

A fact that holds, or may hold, for others as well is context.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from frtop_tui.diagnosis.causes import SlowWord
from frtop_tui.diagnosis.evidence.host_facts import FactKind, HostFact, facts_of
from frtop_tui.diagnosis.thresholds import GAUGED_NS, MIN_FACT_READINGS, OF_PEERS
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView, Rank

MOST_READINGS: Final = 12
"""Per window, spread evenly: each is searched for all facts."""
READ_AGAIN_NS: Final = 10_000_000_000
"""A reading this soon after the end of a window still counts: it may have been the next one."""
EVENTS: Final = frozenset({"link errors", "link down", "disk silent"})
"""Facts that only the newest reading shows, with their time except for a silent disk."""
_About = tuple[FactKind, str, str]


class LastingFact(NamedTuple):
    """A fact, and the share of the window's `readings` that show it; its value is their median."""

    fact: HostFact
    share: float
    readings: int

    @property
    def lasts(self) -> bool:
        """Whether it held for most of the window, by enough readings."""
        return self.readings >= MIN_FACT_READINGS and 2 * self.share >= 1

    def concerns(self, key: int) -> bool:
        """Whether it is about the rank with this key, or about the whole host."""
        return not self.fact.keys or key in self.fact.keys


def lasting_facts(gauges: HostGauges, since_ns: int, until_ns: int) -> tuple[LastingFact, ...]:
    """The facts that may cause slowness, in a window on the host's clock."""
    readings = [facts_of(one) for one in _readings(gauges, since_ns, until_ns)]
    seen: dict[_About, list[HostFact]] = {}
    for facts in readings:
        for fact in facts:
            if fact.cause and fact.kind not in EVENTS:
                seen.setdefault((fact.kind, fact.subject, fact.text), []).append(fact)
    found = [
        LastingFact(by_value[len(by_value) // 2], len(by_value) / len(readings), len(readings))
        for those in seen.values()
        if (by_value := sorted(those, key=lambda fact: fact.value))
    ]
    last_ns = until_ns + READ_AGAIN_NS
    events = (
        LastingFact(fact, 1.0, MIN_FACT_READINGS)
        for fact in facts_of(gauges)
        if fact.kind in EVENTS and since_ns <= (fact.since_ns or gauges.at_ns) <= last_ns
    )
    return (*found, *events)


def _readings(gauges: HostGauges, since_ns: int, until_ns: int) -> Iterable[HostGauges]:
    """The gauges at times within the window, including the newest."""
    times = gauges.past_times()
    first, last = bisect_left(times, since_ns), bisect_right(times, until_ns)
    places = range(first, last)
    stride = max(1, -(-len(places) // MOST_READINGS))
    for place in places[::-stride]:
        if times[place] < gauges.at_ns:
            yield gauges.as_of(place)
    if since_ns <= gauges.at_ns <= until_ns + READ_AGAIN_NS:
        yield replace(gauges, points=0)


class HostEvidence(Struct, frozen=True):
    """Facts about the hosts of late ranks."""

    own: tuple[HostFact, ...] = ()  # hold for all late ranks and no others
    context: tuple[HostFact, ...] = ()  # the others

    def of_cause(self, cause: SlowWord, least: float = 0.0) -> HostFact | None:
        """The first own fact that is evidence for a cause, and may cost `least` of the time."""
        return next((f for f in self.own if f.cause == cause and f.most >= least), None)


def host_evidence(
    late: Sequence[Rank],
    others: Sequence[Rank],
    hosts: Iterable[HostView],
    since_ns: int,
    until_ns: int,
) -> HostEvidence:
    """Facts about the hosts of `late`, compared with those of `others`, which are on time.

    The window is on the operator's clock; its last minute counts.
    """
    wanted = {view.host for view in (*late, *others)}
    gauges = {
        host.name: (host.gauges, host.monotonic_ns)
        for host in hosts
        if host.name in wanted and host.state == "reporting" and host.gauges is not None
    }
    since_ns = max(since_ns, until_ns - GAUGED_NS)
    facts = {
        name: lasting_facts(known, since_ns - clock_ns, until_ns - clock_ns)
        for name, (known, clock_ns) in gauges.items()
    }
    if not late or not all(view.host in facts for view in late):
        return HostEvidence()
    compared = [view for view in others if view.host in facts]
    own: list[HostFact] = []
    context: list[HostFact] = []
    for seen in _held_for_all(late, facts):
        alone = any(_is_comparable(seen.fact, view, gauges) for view in compared) and not any(
            _holds(seen.fact, view, facts[view.host]) for view in compared
        )
        (own if alone else context).append(seen.fact)
    return HostEvidence(tuple(own), tuple(context))


def _held_for_all(
    late: Sequence[Rank], facts: Mapping[str, Sequence[LastingFact]]
) -> list[LastingFact]:
    """Lasting facts of the first, if the same kind lasts for all the others."""
    first, *rest = [
        [one for one in facts[view.host] if one.lasts and one.concerns(view.key)] for view in late
    ]
    kinds = [{one.fact.kind for one in those} for those in rest]
    return [one for one in first if all(one.fact.kind in theirs for theirs in kinds)]


def _holds(fact: HostFact, view: Rank, theirs: Sequence[LastingFact]) -> bool:
    """Whether the same shows for another rank, at least now and then."""
    return any(
        one.fact.kind == fact.kind and one.concerns(view.key) and one.share > OF_PEERS
        for one in theirs
    )


def _is_comparable(
    fact: HostFact, view: Rank, gauges: Mapping[str, tuple[HostGauges, int]]
) -> bool:
    """Whether a rank's host has such figures, so that the fact would show there."""
    known, _ = gauges[view.host]
    kinds = _ABOUT.get(fact.kind, frozenset({"host"}))
    return any(one.kind in kinds and one.values for one in known.subjects)


_LINKS: Final = frozenset({"nic", "infiniband"})
_ABOUT: Final[Mapping[FactKind, frozenset[str]]] = {
    "gpu slow": frozenset({"gpu"}),
    "gpu shared": frozenset({"gpu"}),
    "nic saturated": _LINKS,
    "link errors": _LINKS,
    "link down": _LINKS,
}
"""The subjects without which a host cannot show a fact; by default the host itself."""
