"""When to capture a job automatically: the same for screens and `frtop watch`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.naming import JobKey, job_key
from frtop_tui.job.unprepared import is_least_since

CAPTURED_HEALTH: Final = ("hung", "dead", "mismatch")


def is_alarm(frame: Frame) -> bool:
    """Whether a confirmed verdict says that a live job will not recover."""
    if frame.recorded is not None or frame.job is None or frame.health not in CAPTURED_HEALTH:
        return False
    return bool(frame.verdicts) and frame.verdicts[0].confidence == "confirmed"


def job_to_capture(frame: Frame, captured: Collection[JobKey]) -> JobKey | None:
    """The job to capture now: its hang is confirmed, and it is not among those `captured`."""
    if frame.job is None or not is_alarm(frame):
        return None
    key = job_key(frame.job)
    return None if key in captured else key


def haste(frame: Frame, verdict: Verdict, before_s: float) -> str:
    """Why a capture cannot wait until a suspicion is confirmed, "" if it can.

    `before_s`: how long confirming and capturing may take.
    """
    if verdict.left_s is None or frame.health in ("dead", "ended"):
        return ""
    if verdict.left_s <= before_s:
        return f"the op's timeout ends the job in {verdict.left_s:.0f} s"
    if is_least_since(frame, verdict.since_ns):
        return "the wait began before frtop saw it: its timeout may come at any time"
    return ""
