"""A stall or a stop: told apart by how long a rank issues nothing when all is well."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from frtop_tui.diagnosis.blocked.blocked_op import HEARD_NS, last_activity_ns
from frtop_tui.job.model import Rank

LONGER: Final = 20
"""A step that takes so many times as long as others is slow, and no hang yet."""
AT_MOST_NS: Final = 12_000_000_000
"""Whoever has not come back after that is not awaited any longer before it is said."""
FEWEST: Final = 8
"""Ops, before their rhythm counts as known."""


def may_come_back(view: Rank, now_ns: int) -> bool:
    """Whether a rank that gets nowhere has been so for no longer than a slow step may take."""
    # A dump does not tell when it was written, so it cannot tell how long that is ago.
    if not view.evidence.has_ages or view.snapshot is None or len(view.snapshot.ops) < FEWEST:
        return False
    issued = sorted(op.issued_ns for op in view.snapshot.ops)
    # The longest pause but one: a single one may have been a checkpoint, or the start.
    usual = sorted(after - before for before, after in pairwise(issued))[-2]
    last = max(issued[-1], last_activity_ns(view))
    return now_ns - view.clock_ns - last < min(AT_MOST_NS, LONGER * usual + HEARD_NS)
