"""Which ranks came out of a long wait a moment ago: what others wait for them since is no delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import Wait
from frtop_tui.diagnosis.blocked.rank_index import RankIndex
from frtop_tui.diagnosis.thresholds import LASTING_USUAL_WAITS, MIN_PATIENCE_NS
from frtop_tui.job.model import Rank


@dataclass(slots=True)
class Releases:
    """Follows the waits of all ranks from frame to frame."""

    _waits: dict[int, Wait] = field(default_factory=dict)
    _at_ns: dict[int, int] = field(default_factory=dict)

    def follow(self, index: RankIndex, now_ns: int) -> Mapping[int, int]:
        """By rank, when it was first seen out of its last wait that was longer than usual."""
        ranks = self._waits.keys() | index.waits.keys() if index.renumbered else index.rewaited
        for rank in ranks:
            before, wait = self._waits.pop(rank, None), index.waits.get(rank)
            if wait is not None:
                self._waits[rank] = wait
            view = index.ranks.get(rank)
            if view is None:
                self._at_ns.pop(rank, None)
            elif before is not None and _is_over(before, view) and _was_long(before, now_ns):
                self._at_ns[rank] = now_ns
        return self._at_ns


def _is_over(wait: Wait, view: Rank) -> bool:
    """Whether its op is complete; else a newer stack shows that the rank is elsewhere."""
    if wait.background or wait.undated:
        return False
    return not any(map(partial(_is_same, wait.op), view.pending))


def _is_same(op: wire.Op, other: wire.Op) -> bool:
    # A stack that shows the rank inside of an op gives it another sequence.
    return (op.group, op.number, op.p2p) == (other.group, other.number, other.p2p)


def _was_long(wait: Wait, now_ns: int) -> bool:
    usual = max(MIN_PATIENCE_NS, LASTING_USUAL_WAITS * wait.op.usual_ns)
    return now_ns - wait.since_ns > usual
