"""A rank that is blocked in an op, and when that becomes too long: *patience* and deadlines.

Deadlines are computed in advance, so a wait is judged again only when a rank joins or leaves it, or
when a deadline has passed.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.c10d_call import C10dCall
from frtop_tui.diagnosis.evidence.rpc_call import RpcCall
from frtop_tui.diagnosis.thresholds import (
    EARLY_NS,
    EARLY_USUAL_WAITS,
    LASTING_USUAL_WAITS,
    LEAD_NS,
    LONG_PATIENCE_NS,
    MAX_TIMEOUT_S,
    MIN_HISTORY,
    MIN_PATIENCE_NS,
    PATIENCE_WITHOUT_HISTORY_NS,
    TIMEOUTS_PER_PATIENCE,
    USUAL_WAITS,
)


class Wait(Struct, frozen=True):
    """One rank that is blocked in one op."""

    rank: int
    op: wire.Op  # the most likely one
    since_ns: int  # operator's clock
    sure: bool = True  # a synchronous op or a stack shows the wait; else it is a guess
    background: bool = False  # a thread other than the working one waits: the rank goes on
    indirect: bool = False  # the working thread most likely waits for the thread in the op
    by_device: bool = False  # its device is in the op; whether the host waits is not known
    undated: bool = False  # its age is not known, as in a dump of unknown age
    group: wire.Group | None = None  # as the rank knows it
    call: C10dCall | None = None  # the call on its stack, if ops have no numbers
    rpc: RpcCall | None = None  # the remote call that it waits for; `op` stands for it

    @property
    def peer(self) -> int | None:
        """The other rank of a send or receive, None if not known."""
        return self.op.signature.peer if self.op.signature is not None else None

    def has_lasted(self, least_ns: int, now_ns: int) -> bool:
        """Whether the wait is, or may be, at least `least_ns` old."""
        return self.undated or now_ns - self.since_ns >= least_ns


def has_history(op: wire.Op) -> bool:
    """Whether it is known how long a wait at this op's call site usually takes."""
    return not op.pseudo and op.usual_count >= MIN_HISTORY


def patience_ns(op: wire.Op, group: wire.Group | None) -> int:
    """How long, in ns, a wait for an op may last before it is unusual.

    A wait that was there at the first look from outside may be old: if it goes on, that is enough
    for a suspicion.
    """
    if not op.dated:
        return EARLY_NS
    if not has_history(op):
        return patience_without_history_ns(op, group)
    return _within_timeout(max(MIN_PATIENCE_NS, USUAL_WAITS * op.usual_ns), op, group)


def patience_without_history_ns(op: wire.Op, group: wire.Group | None) -> int:
    """The same if the usual duration of such a wait is not known."""
    return _within_timeout(PATIENCE_WITHOUT_HISTORY_NS, op, group)


def timeout_ns(op: wire.Op, group: wire.Group | None) -> int:
    """Nanoseconds after which torch aborts the op; 0 if not known."""
    if op.timeout_ms:
        return op.timeout_ms * 1_000_000
    # The value comes from a rank or a file and may be NaN.
    known = group is not None and 0 < group.timeout_s < MAX_TIMEOUT_S
    return int(group.timeout_s * 1e9) if group is not None and known else 0


def _within_timeout(patience: int, op: wire.Op, group: wire.Group | None) -> int:
    timeout = timeout_ns(op, group)
    return min(patience, timeout // TIMEOUTS_PER_PATIENCE) if timeout else patience


NEVER: Final = 1 << 62
LONG_AGO: Final = -NEVER

WaitStage = Literal[
    "early",  # old enough for a snapshot, not unusual yet
    "settled",  # a few seconds old, and sure: enough to report a deadlock
    "lasting",  # longer than usual: the job *waits*, and no rank is blamed
    "overdue",  # unusual: a verdict says which rank is waited for
]


class WaitDeadlines(NamedTuple):
    """When a wait began and when each stage begins, on the operator's clock.

    A stage begins after its deadline, not at it. `timeout` is when torch aborts the op.
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
        # A message without a sure wait may have been posted early, or never be awaited.
        NEVER if op.p2p and not wait.sure else lasting,
        since + timeout if timeout else NEVER,
    )
