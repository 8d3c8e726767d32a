"""When a wait becomes too long (*overdue*), computed in advance. How long that is: `patience`.

So a wait is judged again only when a rank joins or leaves it, or when a deadline has passed.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from frtop_tui.diagnosis.blocked.blocked_op import Wait
from frtop_tui.diagnosis.blocked.patience import has_history, patience_ns, timeout_ns
from frtop_tui.diagnosis.thresholds import (
    EARLY_NS,
    EARLY_USUAL_WAITS,
    LASTING_USUAL_WAITS,
    LEAD_NS,
    LONG_PATIENCE_NS,
    MIN_PATIENCE_NS,
)

NEVER: Final = 1 << 62
LONG_AGO: Final = -NEVER

WaitStage = Literal[
    "early",  # old enough for a snapshot, and not unusual yet
    "settled",  # a few seconds old, and sure: enough to report a deadlock
    "lasting",  # longer than usual: the job is said to wait, and nobody is blamed
    "overdue",  # unusual: a verdict says who is waited for
]


class WaitDeadlines(NamedTuple):
    """When a wait began and when each stage begins, in ns of the operator's clock.

    A stage holds after its deadline, not at it. `timeout` is when torch aborts the op.
    """

    since: int = NEVER
    overdue: int = NEVER
    settled: int = NEVER
    early: int = NEVER
    lasting: int = NEVER
    timeout: int = NEVER


def deadlines_of(wait: Wait) -> WaitDeadlines:
    """The deadlines of one wait; a wait of unknown age is overdue and settled at once."""
    op, since = wait.op, wait.since_ns
    patience, timeout = patience_ns(op, wait.group), timeout_ns(op, wait.group)
    early = since + patience - LEAD_NS
    if patience < LONG_PATIENCE_NS:
        early = since + max(EARLY_NS, EARLY_USUAL_WAITS * op.usual_ns)
    if wait.undated:
        return WaitDeadlines(since, LONG_AGO, LONG_AGO, early)
    usual = op.usual_ns if has_history(op) else 0
    lasting = since + max(MIN_PATIENCE_NS, LASTING_USUAL_WAITS * usual)
    return WaitDeadlines(
        since,
        since + patience,
        since + MIN_PATIENCE_NS if wait.sure else NEVER,
        early,
        # A message without a sure wait may be posted early, or never be awaited.
        NEVER if op.p2p and not wait.sure else lasting,
        since + timeout if timeout else NEVER,
    )
