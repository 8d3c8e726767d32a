"""A recorded frame whose whole histories are compared: what nothing hung on, and nobody watched."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_tui.diagnosis.detectors.mismatch.history import mismatches
from frtop_tui.diagnosis.detectors.mismatch.live_mismatch import mismatch_finding
from frtop_tui.diagnosis.engine import health_of
from frtop_tui.diagnosis.finding import group_key
from frtop_tui.diagnosis.history.confirmation import confirmed_at_once
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.thresholds import MOST_VERDICTS
from frtop_tui.diagnosis.wording.verdict import word


def with_histories(frame: Frame) -> Frame:
    """`frame` with the mismatches among the ops in its ranks' snapshots."""
    known = {
        verdict.group
        for verdict in frame.verdicts
        if verdict.kind == "mismatch" and verdict.confidence == "confirmed"
    }
    fresh = [
        word(confirmed_at_once(mismatch_finding(frame, one, set())), frame)
        for one in mismatches(frame.ranks)
        if group_key(one.group) not in known
    ]
    if not fresh:
        return frame
    proven = {verdict.group for verdict in fresh}
    before = [v for v in frame.verdicts if v.kind != "mismatch" or v.group not in proven]
    verdicts = (*before, *fresh)[:MOST_VERDICTS]
    if before:
        return replace(frame, verdicts=verdicts)
    health = health_of(frame.health, verdicts, waiting=False)
    return replace(frame, verdicts=verdicts, health=health, since_ns=verdicts[0].since_ns)
