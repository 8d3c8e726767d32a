"""Judges a recorded frame by its whole histories: mismatches without a hang, and stragglers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.cases.mismatch.compare import mismatches
from frtop_tui.diagnosis.cases.mismatch.detect import mismatch_finding
from frtop_tui.diagnosis.cases.slow.detect import SlowDetail, SlowEpisodes, SlowState, slow
from frtop_tui.diagnosis.confirmation import confirmed_at_once
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.finding import Finding, group_key
from frtop_tui.diagnosis.health import health_of
from frtop_tui.diagnosis.model import Frame, observed
from frtop_tui.diagnosis.thresholds import MOST_VERDICTS
from frtop_tui.diagnosis.verdicts import sentences, verdict_of, word
from frtop_tui.diagnosis.words.phrases import Tense
from frtop_tui.job.model import Health, ObservedFrame
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.statistics.of_frame import again, minutes_of
from frtop_tui.statistics.wanted import StatisticsWanted

MAY_BE_SLOW: Final[frozenset[Health]] = frozenset({"healthy", "ended"})
"""Nothing worse is wrong with such a job; one that has ended *was* slow."""


def with_slow(frame: Frame, minutes: Iterable[JobStatistics]) -> Frame:
    """`frame` with verdicts on what was slow at its end; beside a death they are notes.

    `minutes`, the newest first, are read as long as they show the same.
    """
    died = bool(frame.verdicts) and all(one.kind == "dead" for one in frame.verdicts)
    # It would be called healthy if all of the job had been seen.
    in_part = frame.health == "undecided" and frame.coverage.reporting < frame.coverage.expected
    if not died and (frame.verdicts or not (in_part or frame.health in MAY_BE_SLOW)):
        return frame
    findings = findings_in(observed(frame), minutes)
    if not findings:
        return frame
    tense = Tense.PAST if died or frame.health == "ended" else Tense.PRESENT
    said = [sentences(one, frame, tense) for one in findings]
    if died:
        notes = (f"before that: {one.headline}" for one in said)
        return replace(frame, notes=(*frame.notes, *notes))
    verdicts = tuple(verdict_of(one, words) for one, words in zip(findings, said, strict=True))
    health = health_of(frame.health, verdicts, waiting=False)
    return replace(frame, verdicts=verdicts, health=health, since_ns=verdicts[0].since_ns)


def findings_in(frame: ObservedFrame, minutes: Iterable[JobStatistics]) -> Sequence[Finding]:
    """What is slow in the newest of `minutes`, dated from the first that shows it."""
    ends = ((minute, min(frame.now_ns, minute.until_ns)) for minute in minutes)
    found = (
        slow(replace(frame, statistics=minute, now_ns=now_ns), SlowState())
        for minute, now_ns in ends
    )
    newest = next(found, ())
    if not newest:
        return ()
    keys = {one.key for one in newest}
    before = list(takewhile(lambda several: keys & {one.key for one in several}, found))
    episodes = SlowEpisodes()
    for several in reversed(before):
        episodes.apply([one for one in several if one.key in keys])
    return [
        replace(one, confidence="confirmed")
        if isinstance(one.detail, SlowDetail) and one.detail.sure
        else one
        for one in episodes.apply(newest)
    ]


_AS_RECORDED: Final = "confirmed when this was recorded"


def with_histories(frame: Frame) -> Frame:
    """`frame` with what the ops in its ranks' snapshots show: mismatches, else stragglers."""
    found = _with_mismatches(frame)
    return _counted_since_slow(with_slow(found, minutes_of(found)))


def _counted_since_slow(frame: Frame) -> Frame:
    """Begins a slow job's statistics with the slowness: steps before it would hide who is late."""
    all_of_it = frame.statistics
    since = min((one.since_ns for one in frame.verdicts if one.kind == "slow"), default=0)
    if all_of_it is None or since <= all_of_it.since_ns:
        return frame
    wanted = StatisticsWanted((frame.now_ns - since) / 1e9, calls=True)
    return replace(frame, statistics=again(frame, wanted, all_of_it) or all_of_it)


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
    """`frame`, from a capture, with the trace of judging it again: captures keep no trace."""
    if frame.trace is not None or not frame.ranks:
        return frame
    again = replace(observed(frame), statistics=next(minutes_of(frame), None))
    if any(verdict.kind == "slow" for verdict in frame.verdicts):
        again = replace(again, health="healthy")  # as before the diagnosis
    trace = Engine(explain=True).judge(again).frame.trace
    if trace is None:
        return frame
    # One frame confirms little: what was confirmed in the live job stays confirmed.
    confirmed = {(v.kind, fold(v.culprits)) for v in frame.verdicts if v.confidence == "confirmed"}
    findings = tuple(
        replace(one, confirmation=_AS_RECORDED) if (one.kind, one.culprits) in confirmed else one
        for one in trace.findings
    )
    return replace(frame, trace=replace(trace, findings=findings))
