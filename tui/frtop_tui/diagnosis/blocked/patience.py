"""How long a wait may last before it is unusual."""

from __future__ import annotations

from frtop_probe import wire
from frtop_tui.diagnosis.thresholds import (
    EARLY_NS,
    MAX_TIMEOUT_S,
    MIN_HISTORY,
    MIN_PATIENCE_NS,
    PATIENCE_WITHOUT_HISTORY_NS,
    TIMEOUTS_PER_PATIENCE,
    USUAL_WAITS,
)


def has_history(op: wire.Op) -> bool:
    """Whether it is known how long a wait at this op's call site usually takes."""
    return not op.pseudo and op.usual_count >= MIN_HISTORY


def patience_ns(op: wire.Op, group: wire.Group | None) -> int:
    """How long, in ns, a wait for an op may last before it is unusual.

    Nobody knows how long a wait had lasted that the first look from outside showed: that it goes
    on is enough for a suspicion.
    """
    if not op.dated:
        return EARLY_NS
    if not has_history(op):
        return patience_without_history_ns(op, group)
    return _within_timeout(max(MIN_PATIENCE_NS, USUAL_WAITS * op.usual_ns), op, group)


def patience_without_history_ns(op: wire.Op, group: wire.Group | None) -> int:
    """The same, if it is not known how long such a wait usually takes."""
    return _within_timeout(PATIENCE_WITHOUT_HISTORY_NS, op, group)


def timeout_ns(op: wire.Op, group: wire.Group | None) -> int:
    """After how many ns torch aborts the op, 0 if not known."""
    if op.timeout_ms:
        return op.timeout_ms * 1_000_000
    # The value comes from a rank or a file and may be NaN.
    known = group is not None and 0 < group.timeout_s < MAX_TIMEOUT_S
    return int(group.timeout_s * 1e9) if group is not None and known else 0


def _within_timeout(patience: int, op: wire.Op, group: wire.Group | None) -> int:
    timeout = timeout_ns(op, group)
    return min(patience, timeout // TIMEOUTS_PER_PATIENCE) if timeout else patience
