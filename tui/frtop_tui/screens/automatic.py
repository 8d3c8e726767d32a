"""Whether a frame must be captured though nobody asked: a confirmed hang, once. Pure."""

from __future__ import annotations

from collections.abc import Collection

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import JobKey, job_key

WORTH_KEEPING = ("hung", "dead", "diverged")


def due(frame: Frame, captured: Collection[JobKey]) -> JobKey | None:
    """The job to capture now by itself, None if there is none.

    Args:
        frame: the newest one; one that was recorded is never captured again.
        captured: jobs that this has been said of before.
    """
    if frame.recorded is not None or frame.job is None or frame.health not in WORTH_KEEPING:
        return None
    if not frame.verdicts or frame.verdicts[0].confidence != "confirmed":
        return None
    key = job_key(frame.job)
    return None if key in captured else key
