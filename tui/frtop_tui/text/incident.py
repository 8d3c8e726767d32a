"""What is said of a job in an incident: one model, which HTML and Markdown write.

All of its texts are printable, and none of them is trusted: writers escape them once more, for
their own syntax.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.diagnosis.trace import Trace
from frtop_tui.job.environment import differing, environment
from frtop_tui.job.job_activity import REPORTED, rank_notes
from frtop_tui.job.model import HostView, RankState
from frtop_tui.job.naming import group_label, job_address, job_title, printable
from frtop_tui.job.stack_frames import user_frame
from frtop_tui.job.units import counted, duration, signed_timing, timing
from frtop_tui.job.unprepared import is_least_since
from frtop_tui.statistics.step_table import step_rows
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.health_words import no_verdict_words
from frtop_tui.text.host_notes import host_notes
from frtop_tui.text.merged_stacks import MergedStacks, merge_frame
from frtop_tui.text.plain import (
    recorded_lines,
    title_line,
    unreachable_hosts,
)
from frtop_tui.text.rank_states import URGENCY
from frtop_tui.text.rank_words import format_exit, op_name
from frtop_tui.text.stacks import branches
from frtop_tui.text.statistics_table import call_cells, step_cells
from frtop_tui.text.statistics_words import clock_words, coverage_words, window_words
from frtop_tui.text.verdict import VerdictText, verdict_text

MOST_RANKS: Final = 4096
"""Ranks that are listed one by one; a page of more is not read."""
MOST_GROUPS: Final = 200
MOST_CALLS: Final = 30


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank; `doing` is what it is in, or how it ended; "" where nobody knows."""

    rank: int
    state: RankState
    host: str
    pid: int
    step: int
    since: str
    doing: str
    blamed: bool


@dataclass(frozen=True, slots=True)
class StackBranch:
    """Ranks with the same innermost frames so far; `frames` are (text, is user code)."""

    ranks: str
    frames: tuple[tuple[str, bool], ...]
    children: tuple[StackBranch, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeSection:
    """Where the time goes: the tables of statistics, and what they lack; empty where unknown."""

    facts: tuple[str, ...] = ()
    calls: tuple[tuple[str, ...], ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Incident:
    """One judged frame, as people read it who were not there."""

    title: str
    health: str
    summary: str
    origin: tuple[str, ...]
    verdicts: tuple[VerdictText, ...]
    no_verdict: str
    notes: tuple[str, ...]
    trace: Trace | None
    explanation: tuple[str, ...]
    ranks: tuple[RankRow, ...]
    by_state: tuple[tuple[RankState, str], ...]
    groups: tuple[tuple[str, ...], ...]
    time: TimeSection
    stacks: tuple[StackBranch, ...]
    stacks_age: str
    no_stacks: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    different: tuple[tuple[str, str], ...]
    coverage: tuple[str, ...]
    clocks: tuple[tuple[str, ...], ...]
    versions: tuple[tuple[str, str], ...]


GROUP_COLUMNS: Final = ("group", "backend", "members", "furthest op", "not there yet", "waiting")
CLOCK_COLUMNS: Final = ("host", "state", "agent", "clock against ours", "error at most")


def incident_of(frame: Frame, version: str) -> Incident:
    """What a frame says.

    Args:
        frame: judged; with its trace if the wait-for graph is wanted.
        version: of the frtop that writes this.
    """
    blamed = {rank for verdict in frame.verdicts for rank in verdict.culprits}
    merged = merge_frame(frame, sorted(frame.ranks))
    settings = environment(frame.ranks.values())
    common = {name: value for name, value in settings.common.items() if name not in _VERSIONS}
    return Incident(
        title=printable(job_title(frame.job) if frame.job is not None else "no job"),
        health=frame.health,
        summary=printable(title_line(frame)),
        origin=_clean(_origin(frame)),
        verdicts=tuple(verdict_text(one, frame) for one in frame.verdicts),
        no_verdict="" if frame.verdicts or not frame.ranks else _no_verdict(frame),
        notes=_clean(
            [
                *frame.notes,
                *rank_notes(frame.ranks.values(), REPORTED),
                *host_notes(frame),
                *differing(settings),
            ]
        ),
        trace=frame.trace,
        explanation=_clean(explain_lines(frame.trace)) if frame.trace is not None else (),
        ranks=tuple(_ranks(frame, blamed)),
        by_state=_by_state(frame),
        groups=tuple(_groups(frame)),
        time=_time(frame),
        stacks=_stacks(merged),
        stacks_age=duration(merged.age_s(frame.now_ns)) if merged.roots else "",
        no_stacks=tuple((printable(why), fold(ranks)) for why, ranks in merged.missing),
        settings=_pairs(common),
        different=_pairs(
            {
                name: "; ".join(f"{value}: {ranks}" for value, ranks in values.items())
                for name, values in settings.different.items()
            }
        ),
        coverage=_clean(_coverage(frame)),
        clocks=tuple(_clocks(frame)),
        versions=tuple(_versions(frame, version, settings.common)),
    )


_VERSIONS: Final = ("torch", "python")


def _clean(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(printable, texts))


def _pairs(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((printable(name), printable(value)) for name, value in values.items())


def _origin(frame: Frame) -> list[str]:
    recorded = recorded_lines(frame)
    if recorded:
        return recorded
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(frame.wall_ns / 1e9))
    return [f"live, {when}; all ages are as of then"]


def _no_verdict(frame: Frame) -> str:
    return no_verdict_words(frame) if frame.health != "waiting" else ""


def _ranks(frame: Frame, blamed: set[int]) -> Iterable[RankRow]:
    for rank, view in sorted(frame.ranks.items())[:MOST_RANKS]:
        undated = view.blocked_on is not None and not view.blocked_on.dated
        least = "≥ " if undated or is_least_since(frame, view.state_since_ns) else ""
        since_s = view.state_age_s(frame.now_ns) if view.evidence.has_ages else None
        yield RankRow(
            rank,
            view.state,
            printable(view.host),
            view.identity.pid,
            view.status.step if view.status is not None else 0,
            "" if since_s is None else f"{least}{duration(since_s)}",
            printable(_doing(view)),
            rank in blamed,
        )
    missing = [rank for rank in frame.coverage.unreachable if rank not in frame.ranks]
    for rank in missing[: max(0, MOST_RANKS - len(frame.ranks))]:
        yield RankRow(rank, "unreachable", "", 0, 0, "", "never reported", rank in blamed)


def _doing(view: JudgedRank) -> str:
    if view.exit_info is not None:
        error = view.exception
        raised = f"; {error.kind}: {error.text}" if error is not None and error.main else ""
        return format_exit(view.exit_info) + raised
    if view.blocked_on is not None:
        return f"in {op_name(view, view.blocked_on)}"
    stack = working_stack(view)
    if stack is None or not stack.frames:
        return ""
    frame = user_frame(stack.frames)
    return f"at {frame.file.rpartition('/')[2]}:{frame.line} ({frame.function})"


def _by_state(frame: Frame) -> tuple[tuple[RankState, str], ...]:
    found: dict[RankState, list[int]] = {}
    for rank, view in frame.ranks.items():
        found.setdefault(view.state, []).append(rank)
    missing = [rank for rank in frame.coverage.unreachable if rank not in frame.ranks]
    if missing:
        found.setdefault("unreachable", []).extend(missing)
    return tuple((state, fold(found[state])) for state in sorted(found, key=URGENCY.__getitem__))


def _groups(frame: Frame) -> Iterable[tuple[str, ...]]:
    for group in frame.groups[:MOST_GROUPS]:
        yield _clean(
            (
                group_label(group.key.name, group.description),
                group.backend,
                group.key.ranks,
                f"{'' if group.exact else '~'}#{group.number}" if group.number else "",
                fold(group.late),
                fold(group.waiting),
            )
        )


def _time(frame: Frame) -> TimeSection:
    found = frame.statistics
    if found is None or not (found.calls or found.steps):
        return TimeSection()
    facts = filter(None, (window_words(found), clock_words(found), *coverage_words(found)))
    calls = (_clean(cells) for cells in call_cells(frame, found, most=MOST_CALLS))
    steps = (_clean(cells) for cells in step_cells(step_rows(found)))
    return TimeSection(_clean(facts), tuple(calls), tuple(steps))


def _stacks(merged: MergedStacks) -> tuple[StackBranch, ...]:
    """The tree of stacks; chains without branches are one branch."""
    done: dict[int, list[StackBranch]] = {}
    order = list(branches(merged.roots))
    for number, branch in reversed(list(enumerate(order))):
        children = tuple(reversed(done.pop(number, [])))
        frames = tuple((printable(text), mine) for text, mine in branch.frames)
        made = StackBranch(fold(branch.ranks), frames, children)
        done.setdefault(branch.parent, []).append(made)
    return tuple(reversed(done.get(-1, [])))


def _coverage(frame: Frame) -> list[str]:
    coverage = frame.coverage
    lines = [f"{coverage.reporting:,} of {counted(coverage.expected, 'rank')} reporting"]
    if coverage.lost_updates:
        lines.append(f"{counted(coverage.lost_updates, 'update')} of agents lost")
    if unprepared := set(coverage.unprepared).difference(coverage.unreadable):
        ranks = fold(unprepared)
        lines.append(f"without a recorder, seen from outside only: ranks {ranks}")
    lines += [note.text for note in coverage.notes]
    if frame.recorded is None:
        lines += unreachable_hosts(frame)
    lines += [note for host in frame.hosts for note in host.notes if note]
    lost = {
        rank: view.snapshot.ops_lost
        for rank, view in frame.ranks.items()
        if view.snapshot is not None and view.snapshot.ops_lost
    }
    if lost:
        lines.append(f"ops in between that could not be read: ranks {fold(lost)}")
    return list(dict.fromkeys(lines))


def _clocks(frame: Frame) -> Iterable[tuple[str, ...]]:
    for host in frame.hosts:
        yield _clean((host.name, host.state, host.version, *_clock_words(host)))


def _clock_words(host: HostView) -> tuple[str, str]:
    error = host.clock_error_ns
    if error is None:
        return "", "not measured"
    return signed_timing(-host.clock_ns), timing(error)


def _versions(frame: Frame, version: str, common: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    yield "frtop that wrote this", printable(version)
    if frame.recorded is not None and frame.recorded.version:
        yield "what recorded it", printable(frame.recorded.version)
    for name in _VERSIONS:
        if name in common:
            yield name, printable(common[name])
    if frame.job is not None and (address := job_address(frame.job)):
        yield "master", printable(address)
        yield "world size", str(frame.job.world_size)
