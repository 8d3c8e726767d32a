"""A judged frame as lines of text, for people without a screen."""

from __future__ import annotations

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.coverage import coverage_text
from frtop_tui.job.environment import differing, environment
from frtop_tui.job.job_activity import REPORTED, other_jobs_text
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.units import counted
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.health_words import health_words, no_verdict_words
from frtop_tui.text.notes import job_notes, recorded_lines, unreachable_hosts
from frtop_tui.text.verdict import lines_of, verdict_text


def text(frame: Frame) -> list[str]:
    """The lines that `frtop diagnose` prints; all of them are safe for a terminal."""
    lines = [title_line(frame), *recorded_lines(frame)]
    if frame.problem:
        lines.append(str(frame.problem))
    for verdict in frame.verdicts:
        lines += ["", *lines_of(verdict_text(verdict, frame))]
    notes = job_notes(frame, REPORTED)
    if frame.health == "waiting":
        lines += frame.notes
        notes = notes[len(frame.notes) :]
    elif not frame.verdicts and frame.ranks:
        lines.append(no_verdict_words(frame))
    if frame.ranks:  # without ranks `problem` names the hosts
        notes += [*unreachable_hosts(frame), *differing(environment(frame.ranks.values()))]
    tail = [f"note  {note}" for note in notes]
    if frame.job is not None and (others := other_jobs_text(frame)):
        tail.append(others)
    if frame.trace is not None:
        tail += [*([""] if tail else []), *explain_lines(frame.trace)]
    return [printable(line) for line in (*lines, *([""] if tail else []), *tail)]


def title_line(frame: Frame) -> str:
    """The job, its health and since when, and how much of it was seen."""
    if frame.job is None:
        return f"frtop: {frame.health}"
    hosts = {view.host for view in frame.ranks.values()} - {""}  # dumps do not name them
    attempt = f", attempt {frame.job.attempt}" if frame.job.attempt else ""
    seen = coverage_text(frame.coverage)
    seen += f", {counted(len(hosts), 'host')}" if hosts else ""
    return f"{job_title(frame.job)}{attempt}: {health_words(frame)}; {seen}"
