"""False alarms: a rank was called hung, but arrived after all.

A call site has one usual wait for all its peers and groups, so a worker that is slow in every round
is overdue there each time. After a false alarm, such a wait counts as hung only after as long as
one without history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_tui.diagnosis.blocked.wait import Wait, patience_without_history_ns
from frtop_tui.diagnosis.causes import CERTAIN
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank

MOST: Final = 512
"""How many call sites are remembered."""
_GOES_ON: Final = frozenset({"moving", "blocked", "late"})

Key = tuple[object, ...]


class _HungWait(NamedTuple):
    """A wait because of which another rank was called hung."""

    rank: int
    sequence: int


@dataclass(slots=True)
class FalseAlarms:
    """Call sites, by group and peer, whose usual wait was misleading."""

    sites: dict[Key, None] = field(default_factory=dict)
    _hung_waits: dict[Key, _HungWait] = field(default_factory=dict)

    def learn(self, ranks: Mapping[int, Rank]) -> None:
        """Learns from waits that ended although a rank was called hung."""
        over = {key: one for key, one in self._hung_waits.items() if not _goes_on(ranks, one)}
        for key, one in over.items():
            del self._hung_waits[key]
            view = ranks.get(one.rank)
            if view is not None and view.state in _GOES_ON and len(self.sites) < MOST:
                self.sites[key] = None

    def record(self, findings: Iterable[Finding], nodes: Iterable[WaitNode]) -> None:
        """Notes which `nodes` wait for absent ranks that are called hung, but may still arrive."""
        hung = {
            rank
            for finding in findings
            if finding.kind == "not_entered" and finding.hung and finding.cause not in CERTAIN
            for rank in finding.culprits
        }
        for node in nodes if hung else ():
            key = None if hung.isdisjoint(node.free) else _key(node.oldest)
            if key is not None and len(self._hung_waits) < MOST:
                self._hung_waits[key] = _HungWait(node.oldest.rank, node.oldest.op.sequence)

    def was_false_alarm(self, node: WaitNode, now_ns: int) -> bool:
        """Whether such a wait was called hung, but ended; False once this one is too old."""
        wait = node.oldest
        known = bool(self.sites) and _key(wait) in self.sites
        return known and not wait.has_lasted(
            patience_without_history_ns(wait.op, wait.group), now_ns
        )


def _key(wait: Wait) -> Key | None:
    op, group = wait.op, wait.group
    if op.site is None or group is None or op.pseudo:
        return None
    site = (op.site.file, op.site.line, group.name, group.ranks)
    if not op.p2p:
        return site
    return (*site, wait.rank, wait.peer)


def _goes_on(ranks: Mapping[int, Rank], hung: _HungWait) -> bool:
    view = ranks.get(hung.rank)
    if view is None or view.exit_info is not None:
        return False
    if view.state == "unreachable" or view.pending_more > 0:
        return True
    # The end of an untracked op is not noted: it counts until the next one is issued.
    untracked = [op for op in view.last_ops if not op.tracked]
    return any(op.sequence == hung.sequence for op in (*view.pending, *untracked))
