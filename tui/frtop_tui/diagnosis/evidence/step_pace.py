"""A slow step or a hang: how long a rank usually takes between two ops decides."""

from __future__ import annotations

from itertools import pairwise

from frtop_tui.diagnosis.evidence.rank_activity import last_activity_ns
from frtop_tui.diagnosis.thresholds import (
    MAX_SLOW_STEP_NS,
    MIN_PACE_OPS,
    SLOW_STEP,
    UPDATE_DELAY_NS,
)
from frtop_tui.job.model import Rank


def may_be_slow_step(view: Rank, now_ns: int) -> bool:
    """Whether a rank without progress may still be in a slow step.

    Args:
        view: the rank; its snapshot holds its last ops.
        now_ns: the operator's time, in ns.
    """
    # Nobody knows when a dump was written, and so how long ago its last op was.
    if not view.evidence.has_ages or view.snapshot is None or len(view.snapshot.ops) < MIN_PACE_OPS:
        return False
    issued = sorted(op.issued_ns for op in view.snapshot.ops)
    # The second longest pause: the longest one may have been a checkpoint, or the start.
    usual = sorted(after - before for before, after in pairwise(issued))[-2]
    last = max(issued[-1], last_activity_ns(view))
    limit_ns = min(MAX_SLOW_STEP_NS, SLOW_STEP * usual + UPDATE_DELAY_NS)
    return now_ns - view.clock_ns - last < limit_ns
