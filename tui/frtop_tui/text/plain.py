"""A judged frame as lines of text, for people without a screen."""

from __future__ import annotations

from typing import Final, NamedTuple

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.coverage import coverage_text
from frtop_tui.job.environment import differing, environment
from frtop_tui.job.job_activity import REPORTED, other_jobs_text, rank_notes
from frtop_tui.job.naming import job_title, printable
from frtop_tui.job.units import counted, local_time
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.health_words import health_words, no_verdict_words
from frtop_tui.text.verdict import lines_of, verdict_text

_MOST_HOSTS: Final = 4
"""Unreachable hosts that are listed with their reasons."""


class WordLine(NamedTuple):
    """A line: what it is about, what is said, and how it is to be read."""

    subject: str
    text: str
    tone: str = ""  # "bad", "warn", "good", "dim"


def text(frame: Frame) -> list[str]:
    """The lines that `frtop diagnose` prints; all of them are safe for a terminal."""
    lines = [title_line(frame), *recorded_lines(frame)]
    if frame.problem:
        lines.append(str(frame.problem))
    for verdict in frame.verdicts:
        lines += ["", *lines_of(verdict_text(verdict, frame))]
    missing = [note.text for note in frame.coverage.notes]
    notes = [*frame.notes, *missing]
    if frame.health == "waiting":
        lines += frame.notes
        notes = missing
    elif not frame.verdicts and frame.ranks:
        lines.append(no_verdict_words(frame))
    if frame.ranks:  # without ranks `problem` names the hosts
        notes += rank_notes(frame.ranks.values(), REPORTED)
        notes += [*unreachable_hosts(frame), *differing(environment(frame.ranks.values()))]
    tail = [f"note  {note}" for note in notes]
    if frame.job is not None and (others := other_jobs_text(frame)):
        tail.append(others)
    if frame.trace is not None:
        tail += [*([""] if tail else []), *explain_lines(frame.trace)]
    return [printable(line) for line in (*lines, *([""] if tail else []), *tail)]


def recorded_lines(frame: Frame) -> list[str]:
    """Where and when a frame was recorded, and what its files lack; empty for a live frame."""
    recorded = frame.recorded
    if recorded is None:
        return []
    when = local_time(recorded.wall_ns)
    by = f" by {recorded.by}" if recorded.by else ""
    ages = any(view.evidence.has_ages for view in frame.ranks.values())
    then = "; all ages are as of then" if ages or not frame.ranks else ""
    return [
        f"{recorded.kind} of {when}{by}: {recorded.path}{then}",
        *(f"note  {note}" for note in recorded.notes),
    ]


def title_line(frame: Frame) -> str:
    """The job, its health and since when, how much of it was seen."""
    if frame.job is None:
        return f"frtop: {frame.health}"
    hosts = len({view.host for view in frame.ranks.values()})
    attempt = f", attempt {frame.job.attempt}" if frame.job.attempt else ""
    return (
        f"{job_title(frame.job)}{attempt}: {health_words(frame)};"
        f" {coverage_text(frame.coverage)}, {hosts} host{'s' if hosts != 1 else ''}"
    )


def unreachable_hosts(frame: Frame) -> list[str]:
    """The first hosts that are unreachable, and why."""
    unreachable = [host for host in frame.hosts if host.state != "reporting"]
    lines = []
    for host in unreachable[:_MOST_HOSTS]:
        silence = " is silent" if host.state == "silent" else ": no answer yet"
        lines.append(str(host.problem or f"{host.name}{silence}"))
    more = len(unreachable) - len(lines)
    return [*lines, f"{counted(more, 'more host')} unreachable"] if more > 0 else lines
