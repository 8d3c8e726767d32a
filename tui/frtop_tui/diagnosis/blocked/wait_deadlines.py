"""When a wait comes to mean something: all that only time makes of it, told beforehand.

A point has to be judged anew only when somebody came or left, or such a moment has passed.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from frtop_tui.diagnosis.blocked.blocked_op import (
    AT_LEAST_NS,
    Wait,
    has_history,
    patience_ns,
    timeout_ns,
)

EARLY_NS: Final = 2_000_000_000
LEAD_NS: Final = 4_000_000_000
"""So long before a long patience ends looks begin: two of them tell more than none."""
TWICE: Final = 2
"""A wait of the usual length is ordinary however long; no two are quite alike."""
NEVER: Final = 1 << 62
LONG_AGO: Final = -NEVER


WaitStage = Literal["overdue", "settled", "early", "lasting"]


class WaitDeadlines(NamedTuple):
    """On the operator's clock; each holds from the nanosecond after it on."""

    since: int = NEVER
    overdue: int = NEVER  # out of the ordinary
    settled: int = NEVER  # surely sat in for some seconds: enough to see a circle
    early: int = NEVER  # worth a look, before it is out of the ordinary
    lasting: int = NEVER  # some seconds, and longer than usual
    timeout: int = NEVER


def deadlines_of(wait: Wait) -> WaitDeadlines:
    """All moments of one wait."""
    op, since = wait.op, wait.since_ns
    patience = patience_ns(op, wait.group)
    known = has_history(op)
    limit = timeout_ns(op, wait.group)
    # Posted early or left behind, as likely as waited for.
    idle = op.p2p and not wait.sure
    return WaitDeadlines(
        since,
        LONG_AGO if wait.undated else since + patience,
        LONG_AGO if wait.undated else since + AT_LEAST_NS if wait.sure else NEVER,
        since
        + (max(EARLY_NS, 3 * op.usual_ns) if patience < 10 * EARLY_NS else patience - LEAD_NS),
        NEVER
        if idle or wait.undated
        else since + max(AT_LEAST_NS, TWICE * op.usual_ns if known else 0),
        since + limit if limit and not wait.undated else NEVER,
    )


def first_of(all_moments: list[WaitDeadlines]) -> WaitDeadlines:
    """The earliest of each."""
    return (
        WaitDeadlines(*map(min, zip(*all_moments, strict=True))) if all_moments else WaitDeadlines()
    )
