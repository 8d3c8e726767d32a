"""What tests read in loaded frames."""

from __future__ import annotations

from frtop_tui.diagnosis.model import Frame


def blamed(frame: Frame) -> set[int]:
    """The ranks that any verdict names as culprits."""
    return {rank for verdict in frame.verdicts for rank in verdict.culprits}


def notes(frame: Frame) -> str:
    """The notes about where the frame comes from, one a line."""
    assert frame.recorded is not None
    return "\n".join(frame.recorded.notes)
