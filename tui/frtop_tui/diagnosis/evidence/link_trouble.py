"""Whether a network interface or an InfiniBand port is saturated, has errors, or is down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_tui.diagnosis.evidence.host_fact import HostFact, risen, since
from frtop_tui.diagnosis.thresholds import RETRANSMITS, SATURATED
from frtop_tui.job.host_gauges import GaugedSubject, HostGauges

_ACTIVE: Final = 4
"""State of an InfiniBand port that carries data."""
_WAYS: Final = ("received", "sent")


def link_facts(gauges: HostGauges) -> tuple[HostFact, ...]:
    """Of all interfaces and ports. Nobody knows which of them a rank uses."""
    found = [fact for one in gauges.of_kind("host") for fact in _lost(gauges, one)]
    for kind in ("infiniband", "nic"):
        for one in gauges.of_kind(kind):
            found += _facts(gauges, one)
    return tuple(found)


def _lost(gauges: HostGauges, host: GaugedSubject) -> Iterator[HostFact]:
    """What TCP sends again: losses that no interface of this host counts."""
    value = host.values.get("retransmits", 0)
    if value >= RETRANSMITS:
        begin, at_least = since(gauges, host, "retransmits", RETRANSMITS.__le__)
        yield HostFact("retransmits", "", (), value, RETRANSMITS, begin, at_least)


def _facts(gauges: HostGauges, link: GaugedSubject) -> Iterator[HostFact]:
    state = link.values.get("state")
    # A port that was down all along is one without a cable: most hosts have some.
    if state is not None and state != _ACTIVE and _was_active(gauges, link):
        begin, at_least = since(gauges, link, "state", lambda value: value != _ACTIVE)
        yield HostFact("link down", link.name, (), state, _ACTIVE, begin, at_least,
                       text=link.detail)  # fmt: skip
    speed = link.values.get("speed", 0)
    for way in _WAYS:
        rate = link.values.get(way, 0)
        limit = round(SATURATED * speed)
        if speed and rate >= limit:
            begin, at_least = since(gauges, link, way, limit.__le__)
            yield HostFact("nic saturated", link.name, (), rate, speed, begin, at_least, text=way)
    for gauge in ("errors", "link_downed"):
        by, last_ns = risen(gauges, link, gauge)
        if by:
            yield HostFact("link errors", link.name, (), by, 0, last_ns, text=gauge)


def _was_active(gauges: HostGauges, link: GaugedSubject) -> bool:
    return _ACTIVE in gauges.past(link, "state")
