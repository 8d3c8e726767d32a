"""Judges a recorded frame by its whole histories: mismatches that caused no hang, who was slow."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.detectors.mismatch.history import mismatches
from frtop_tui.diagnosis.detectors.mismatch.live_mismatch import mismatch_finding
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.finding import group_key
from frtop_tui.diagnosis.health import health_of
from frtop_tui.diagnosis.history.confirmation import confirmed_at_once
from frtop_tui.diagnosis.model import Frame, observed
from frtop_tui.diagnosis.recorded_slow import with_slow
from frtop_tui.diagnosis.thresholds import MOST_VERDICTS
from frtop_tui.diagnosis.wording.verdict import word
from frtop_tui.statistics.of_frame import minutes_of

_AS_RECORDED: Final = "confirmed when this was recorded"


def with_histories(frame: Frame) -> Frame:
    """`frame` with what the ops in its ranks' snapshots show: mismatches; else who is slow."""
    found = _with_mismatches(frame)
    return with_slow(found, minutes_of(found))


def _with_mismatches(frame: Frame) -> Frame:
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


def with_trace(frame: Frame) -> Frame:
    """`frame`, out of a capture, with the trace of judging it again: captures keep no trace."""
    if frame.trace is not None or not frame.ranks:
        return frame
    again = replace(observed(frame), statistics=next(minutes_of(frame), None))
    if any(verdict.kind == "slow" for verdict in frame.verdicts):
        again = replace(again, health="healthy")  # as it was before anybody judged
    trace = Engine(explain=True).judge(again).frame.trace
    if trace is None:
        return frame
    # One frame confirms little: what was confirmed while the job lived stays confirmed.
    confirmed = {(v.kind, fold(v.culprits)) for v in frame.verdicts if v.confidence == "confirmed"}
    findings = tuple(
        replace(one, confirmation=_AS_RECORDED) if (one.kind, one.culprits) in confirmed else one
        for one in trace.findings
    )
    return replace(frame, trace=replace(trace, findings=findings))
