"""Exit statuses of `frtop diagnose` (by its judged frame), `frtop diff` and `frtop check`."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.model import Frame, Verdict

HEALTHY: Final = 0
"""Every rank reported, and none waits unusually long."""
HUNG: Final = 3
"""The job is hung or dead, or its collectives do not match."""
UNDECIDED: Final = 4
"""No rank can be blamed, frtop saw too little, or a straggler is only suspected."""
HELD_UP: Final = 5
"""The job waits for a rank that makes progress, or that may; or it is slow."""
BROKEN: Final = 6
"""Of `frtop diff`: the second run is slower than its limits allow; of `frtop check`: the job is not
as expected."""

_FINAL: Final = frozenset({"dead", "mismatch", "deadlock"})
"""Verdict kinds after which a job does not recover."""
_PASSING: Final = frozenset({"not_entered", "stuck"})
"""Verdict kinds that mean a hang only if the culprit makes no progress."""
_UNDISTURBED: Final = frozenset({"healthy", "ended", "starting"})


def exit_status(frame: Frame) -> int:
    """The exit status for a frame: what was found counts before what was not seen."""
    verdicts = frame.verdicts
    if any(_is_hang(verdict) for verdict in verdicts):
        return HUNG
    if any(verdict.kind in _PASSING or _is_slow(verdict) for verdict in verdicts):
        return HELD_UP
    if verdicts or not frame.coverage.complete or frame.health not in _UNDISTURBED:
        return UNDECIDED
    return HEALTHY


def _is_slow(verdict: Verdict) -> bool:
    return verdict.kind == "slow" and verdict.confidence == "confirmed"


def _is_hang(verdict: Verdict) -> bool:
    return verdict.kind in _FINAL or (verdict.kind in _PASSING and verdict.progress == "none")
