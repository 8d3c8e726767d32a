"""Hangs that were none: where a rank was called hung, and came after all.

How long a call site usually waits is one number for all its peers and groups. A worker that
takes its time in every round is out of the ordinary there each time, and said to hold others
up; that it hangs is said again only after as long as where nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_tui.diagnosis.blocked.blocked_op import Wait, without_history_ns
from frtop_tui.diagnosis.detectors.certainty import CERTAIN
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank

MOST: Final = 512
"""More sites are not remembered."""
_WELL: Final = frozenset({"moving", "blocked", "late"})

Key = tuple[object, ...]


class _Said(NamedTuple):
    """The wait for which somebody was called hung: whose, and in which op."""

    rank: int
    sequence: int


@dataclass(slots=True)
class FalseAlarms:
    """Call sites, by group and peer, where the usual wait has misled."""

    sites: dict[Key, None] = field(default_factory=dict)
    _said: dict[Key, _Said] = field(default_factory=dict)

    def learn(self, ranks: Mapping[int, Rank]) -> None:
        """Learns what turns out to have been no hang."""
        over = {key: one for key, one in self._said.items() if not _goes_on(ranks, one)}
        for key, one in over.items():
            del self._said[key]
            view = ranks.get(one.rank)
            if view is not None and view.state in _WELL and len(self.sites) < MOST:
                self.sites[key] = None

    def record(self, nodes: Iterable[WaitNode]) -> None:
        """Somebody is called hung, for whom these points wait."""
        for node in nodes:
            key = _key(node.oldest)
            if key is not None and len(self._said) < MOST:
                self._said[key] = _Said(node.oldest.rank, node.oldest.op.sequence)

    def was_false_alarm(self, node: WaitNode, now_ns: int) -> bool:
        """Whether a wait like this one was called a hang, and was none.

        It holds until the wait is as long as one of which nothing is known may be.
        """
        wait = node.oldest
        known = bool(self.sites) and _key(wait) in self.sites
        return known and not wait.has_lasted(without_history_ns(wait.op, wait.group), now_ns)


def hung_findings(findings: Collection[Finding]) -> list[Finding]:
    """Those that say so of somebody who has not come, and may come yet."""
    return [
        finding
        for finding in findings
        if finding.kind == "not_entered" and finding.hung and finding.cause not in CERTAIN
    ]


def _key(wait: Wait) -> Key | None:
    op, group = wait.op, wait.group
    if op.site is None or group is None or op.pseudo:
        return None
    site = (op.site.file, op.site.line, group.name, group.ranks)
    if not op.p2p:
        return site
    return (*site, wait.rank, wait.peer)


def _goes_on(ranks: Mapping[int, Rank], said: _Said) -> bool:
    view = ranks.get(said.rank)
    if view is None or view.exit_info is not None:
        return False
    if view.state == "unheard" or view.pending_more > 0:
        return True
    # Of an op on a device nobody notes the end: it stands until the next one is issued.
    lasts = [front.last for front in view.group_progress.values() if front.last is not None]
    untracked = [op for op in lasts if not op.tracked]
    return any(op.sequence == said.sequence for op in (*view.pending, *untracked))
