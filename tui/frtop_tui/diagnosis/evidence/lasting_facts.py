"""Facts about a host that held for most of a window of time, and not only when they were last read.

A single reading proves little of a minute: who was held back once is not slow by it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_tui.diagnosis.evidence.host_facts import FactKind, HostFact, facts_of
from frtop_tui.diagnosis.thresholds import MIN_FACT_READINGS
from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges

MOST_READINGS: Final = 12
"""Of a window, spread evenly: each is searched for all facts."""
READ_AGAIN_NS: Final = 10_000_000_000
"""The reading after the end of a window is of the window: it may have been the next one."""
EVENTS: Final = frozenset({"link errors", "link down", "disk silent"})
"""Facts of which only the newest reading tells; with their time, but for a silent disk."""
_About = tuple[FactKind, str, str]


class LastingFact(NamedTuple):
    """A fact with the share of the window's readings that show it, of `readings`.

    Its value is the median of those, or of an event what came of it.
    """

    fact: HostFact
    share: float
    readings: int

    @property
    def lasts(self) -> bool:
        """Whether it held for most of the window, as far as enough readings tell."""
        return self.readings >= MIN_FACT_READINGS and 2 * self.share >= 1

    def concerns(self, key: int) -> bool:
        """Whether it is about the rank with this key, or about the whole host."""
        return not self.fact.keys or key in self.fact.keys


def lasting_facts(gauges: HostGauges, since_ns: int, until_ns: int) -> tuple[LastingFact, ...]:
    """The facts that may be a cause of *slow*, of a window.

    Args:
        gauges: of one host, with what of their history is known.
        since_ns: by the host's clock.
        until_ns: the same; readings up to now count, if the window lasts until then.
    """
    readings = [facts_of(one) for one in _readings(gauges, since_ns, until_ns)]
    seen: dict[_About, list[HostFact]] = {}
    for facts in readings:
        for fact in facts:
            if fact.cause and fact.kind not in EVENTS:
                seen.setdefault(_about(fact), []).append(fact)
    found = [
        LastingFact(_median(those), len(those) / len(readings), len(readings))
        for those in seen.values()
    ]
    last_ns = until_ns + READ_AGAIN_NS
    events = (
        LastingFact(fact, 1.0, MIN_FACT_READINGS)
        for fact in facts_of(gauges)
        if fact.kind in EVENTS and since_ns <= (fact.since_ns or gauges.at_ns) <= last_ns
    )
    return (*found, *events)


def _about(fact: HostFact) -> _About:
    return fact.kind, fact.subject, fact.text


def _median(facts: list[HostFact]) -> HostFact:
    return sorted(facts, key=lambda fact: fact.value)[len(facts) // 2]


def _readings(gauges: HostGauges, since_ns: int, until_ns: int) -> Iterable[HostGauges]:
    """The gauges as they were at times of the window, the newest of all among them."""
    times = gauges.past_times()
    first, last = bisect_left(times, since_ns), bisect_right(times, until_ns)
    places = range(first, last)
    stride = max(1, -(-len(places) // MOST_READINGS))
    for place in places[::-stride]:
        if times[place] < gauges.at_ns:
            yield _as_of(gauges, place)
    if since_ns <= gauges.at_ns <= until_ns + READ_AGAIN_NS:
        yield replace(gauges, points=0)


def _as_of(gauges: HostGauges, place: int) -> HostGauges:
    subjects = tuple(
        replace(one, values=_values(gauges, one, place), problem="") for one in gauges.subjects
    )
    return replace(gauges, subjects=subjects, points=0)


def _values(gauges: HostGauges, subject: GaugedSubject, place: int) -> Mapping[str, int]:
    """What was known of a subject then; what hardly changes, as a limit, may have no history."""
    found = dict(subject.values)
    for gauge in subject.history:
        past = gauges.past(subject, gauge)
        value = past[place] if place < len(past) else UNKNOWN
        if value == UNKNOWN:
            found.pop(gauge, None)
        else:
            found[gauge] = value
    return found
