"""What gauges tell of why a rank is late: only what holds for it, and for none who is on time.

A fact that holds for others as well, or of which nobody knows whether it does, is context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from frtop_tui.diagnosis.causes import SlowWord
from frtop_tui.diagnosis.evidence.host_facts import FactKind, HostFact
from frtop_tui.diagnosis.evidence.lasting_facts import LastingFact, lasting_facts
from frtop_tui.diagnosis.thresholds import GAUGED_NS, OF_PEERS
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView, Rank


class HostEvidence(Struct, frozen=True):
    """Facts about the hosts of late ranks.

    Attributes:
        own: that hold for all who are late and for nobody else, in the order of their subjects.
        context: the others.
    """

    own: tuple[HostFact, ...] = ()
    context: tuple[HostFact, ...] = ()

    def of_cause(self, cause: SlowWord, least: float = 0.0) -> HostFact | None:
        """The first that is evidence of a cause, and may account for a share of the time."""
        return next((f for f in self.own if f.cause == cause and f.most >= least), None)


def host_evidence(
    late: Sequence[Rank],
    others: Sequence[Rank],
    hosts: Iterable[HostView],
    since_ns: int,
    until_ns: int,
) -> HostEvidence:
    """Facts about the hosts of `late` within a window, compared with those of `others`.

    Args:
        late: ranks with something in common that is to be explained.
        others: ranks that are on time.
        hosts: with their gauges.
        since_ns: by the operator's clock; of it the last minute counts.
        until_ns: the same.
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
    """What lasts for the first, where the same lasts for all the others."""
    first, *rest = [
        [one for one in facts[view.host] if one.lasts and one.concerns(view.key)] for view in late
    ]
    kinds = [{one.fact.kind for one in those} for those in rest]
    return [one for one in first if all(one.fact.kind in theirs for theirs in kinds)]


def _holds(fact: HostFact, view: Rank, theirs: Sequence[LastingFact]) -> bool:
    """Whether the same shows for another rank, now and then at least."""
    return any(
        one.fact.kind == fact.kind and one.concerns(view.key) and one.share > OF_PEERS
        for one in theirs
    )


def _is_comparable(
    fact: HostFact, view: Rank, gauges: Mapping[str, tuple[HostGauges, int]]
) -> bool:
    """Whether a rank's host tells of what the fact is about, so that it would show there."""
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
"""Kinds of subjects without which a host cannot show a fact; of others the host's own figures."""
