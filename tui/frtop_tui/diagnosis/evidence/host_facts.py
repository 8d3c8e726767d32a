"""All facts about a host that are out of the ordinary, those that concern a GPU first.

Each has a function of its own, in `gpu_trouble`, `host_pressure`, `memory_growth`, `link_trouble`,
`disk_trouble`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frtop_tui.diagnosis.evidence.disk_trouble import disk_facts
from frtop_tui.diagnosis.evidence.gpu_trouble import gpu_facts
from frtop_tui.diagnosis.evidence.host_fact import HostFact
from frtop_tui.diagnosis.evidence.host_pressure import pressure_facts
from frtop_tui.diagnosis.evidence.link_trouble import link_facts
from frtop_tui.diagnosis.evidence.memory_growth import growth_facts
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView

FACT_GAUGES: Final = (
    "errors", "free", "inodes_free", "link_downed", "oom_kills", "others", "psi_cpu",
    "psi_io_full", "psi_memory_full", "received", "retransmits", "sent", "state", "steal",
    "throttle", "throttled", "xids",
)  # fmt: skip
"""Whose histories say since when a fact is so; most of them seldom change, and cost little."""
_ALL: Final = (gpu_facts, pressure_facts, growth_facts, link_facts, disk_facts)


def facts_of(gauges: HostGauges | None) -> tuple[HostFact, ...]:
    """Of one host; none where nothing is known."""
    if gauges is None:
        return ()
    return tuple(fact for find in _ALL for fact in find(gauges))


def facts_for(host: HostView, keys: Iterable[int]) -> tuple[HostFact, ...]:
    """Those that may concern ranks with these keys, of a host that is heard now.

    What was so when a host was last heard may not be so any more.
    """
    if host.state != "heard":
        return ()
    wanted = frozenset(keys)
    return tuple(fact for fact in facts_of(host.gauges) if not fact.keys or wanted & set(fact.keys))


class FactTable:
    """Facts of many hosts: computed again only for gauges that are not the same object."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[HostGauges, tuple[HostFact, ...]]] = {}

    def of(self, host: HostView) -> tuple[HostFact, ...]:
        """The facts of a host."""
        if host.gauges is None:
            return ()
        known = self._known.get(host.name)
        if known is None or known[0] is not host.gauges:
            known = self._known[host.name] = host.gauges, facts_of(host.gauges)
        return known[1]
