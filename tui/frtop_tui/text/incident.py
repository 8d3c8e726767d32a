"""The report on one judged frame, for people who were not there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.model import Frame, JudgedRank, Trace, Why
from frtop_tui.job.environment import differing, environment
from frtop_tui.job.job_activity import REPORTED, rank_notes
from frtop_tui.job.model import RankState
from frtop_tui.job.naming import job_address, job_title, printable
from frtop_tui.job.reported import reported_rows
from frtop_tui.job.stack_frames import basename, user_frame
from frtop_tui.job.units import counted, duration, signed_timing, timing
from frtop_tui.job.unprepared import is_least_since
from frtop_tui.statistics.module_tree import module_tree
from frtop_tui.statistics.step_table import step_rows
from frtop_tui.text.activity import blame_reasons, describe_activity_and_line
from frtop_tui.text.document import (
    Block,
    Document,
    RankRow,
    Ranks,
    StackBranch,
    StackBranches,
    Waits,
    items,
    section,
    table,
)
from frtop_tui.text.explain import explain_lines
from frtop_tui.text.health_words import no_verdict_words
from frtop_tui.text.merged_stacks import MergedStacks, branches, merge_frame
from frtop_tui.text.module_words import module_table
from frtop_tui.text.notes import host_facts, recorded_lines, unreachable_hosts
from frtop_tui.text.plain import title_line
from frtop_tui.text.rank_states import URGENCY
from frtop_tui.text.rank_words import number_in
from frtop_tui.text.reported_words import HEAD as REPORTED_HEAD
from frtop_tui.text.reported_words import finding_lines, reported_cells
from frtop_tui.text.statistics_table import HEAD, call_cells, step_table, step_words
from frtop_tui.text.statistics_words import clock_words, coverage_words, window_words
from frtop_tui.text.verdict import verdict_text

MOST_RANKS: Final = 4096
"""How many ranks to list one by one; nobody reads a longer page."""
MOST_GROUPS: Final = 200
MOST_CALLS: Final = 30
MOST_MODULES: Final = 40
GROUP_COLUMNS: Final = ("group", "backend", "members", "furthest op", "not there yet", "waiting")
CLOCK_COLUMNS: Final = ("host", "state", "agent", "clock against ours", "error at most")
_VERSIONS: Final = ("torch", "python")


def incident_of(frame: Frame, version: str, known: Iterable[str] = ()) -> Document:
    """The report on a frame, with the wait-for graph if the frame has its trace.

    `known` is what features know of its culprits from elsewhere.
    """
    merged = merge_frame(frame, sorted(frame.ranks))
    settings = environment(frame.ranks.values())
    common = {name: value for name, value in settings.common.items() if name not in _VERSIONS}
    different = {
        name: "; ".join(f"{value}: {ranks}" for value, ranks in values.items())
        for name, values in settings.different.items()
    }
    notes = [
        *frame.notes,
        *rank_notes(frame.ranks.values(), REPORTED),
        *host_facts(frame),
        *differing(settings),
    ]
    return Document(
        title=printable(f"{job_title(frame.job) if frame.job else 'no job'}: {frame.health}"),
        summary=printable(title_line(frame)),
        origin=items(_origin(frame)).lines,
        verdicts=tuple(verdict_text(one, frame) for one in frame.verdicts),
        no_verdict="" if frame.verdicts else no_verdict_words(frame),
        sections=(
            section("Known from elsewhere", items(known)),
            section("Notes", items(notes)),
            section("Who waits for whom", _waits(frame.trace)),
            section("Ranks", _ranks(frame)),
            section("Stacks", _stacks(merged, frame.now_ns), items(_no_stacks(merged))),
            section("Groups", table(GROUP_COLUMNS, _groups(frame))),
            section("Where the time goes", *_time(frame)),
            section("Collectives by module", *_modules(frame)),
            section("Values that the job reported", *_reported(frame)),
            section("What was not seen", items(_coverage(frame))),
            section("Settings that differ", table(("name", "values"), different.items())),
            section("Settings", table(("name", "value"), common.items())),
            section("Clocks of hosts", table(CLOCK_COLUMNS, _clocks(frame))),
            section("Versions", table(("of", "is"), _versions(frame, version, settings.common))),
        ),
    )


def _waits(trace: Trace | None) -> Waits | None:
    return Waits(trace, items(explain_lines(trace)).lines) if trace is not None else None


def _origin(frame: Frame) -> list[str]:
    recorded = recorded_lines(frame)
    if recorded:
        return recorded
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(frame.wall_ns / 1e9))
    return [f"live, {when}; all ages are as of this time"]


def _ranks(frame: Frame) -> Ranks:
    """By state, the most urgent first, and one by one."""
    reasons = blame_reasons(frame)
    by_state: dict[RankState, list[int]] = {}
    rows: list[RankRow] = []
    for rank, view in sorted(frame.ranks.items()):
        by_state.setdefault(view.state, []).append(rank)
        undated = view.blocked_on is not None and not view.blocked_on.dated
        least = "≥ " if undated or is_least_since(frame, view.state_since_ns) else ""
        since_s = view.state_age_s(frame.now_ns)
        rows.append(
            RankRow(
                rank,
                view.state,
                printable(view.host),
                str(view.identity.pid or ""),
                str(view.status.step or "") if view.status is not None else "",
                "" if since_s is None else f"{least}{duration(since_s)}",
                printable(_doing(view, frame.now_ns, reasons)),
                rank in reasons,
            )
        )
    for rank in frame.coverage.unreachable:
        if rank not in frame.ranks:
            by_state.setdefault("unreachable", []).append(rank)
            gone = rank in reasons
            rows.append(RankRow(rank, "unreachable", "", "", "", "", "never reported", gone))
    ordered = sorted(by_state, key=URGENCY.__getitem__)
    return Ranks(tuple((one, fold(by_state[one])) for one in ordered), tuple(rows[:MOST_RANKS]))


def _doing(view: JudgedRank, now_ns: int, reasons: Mapping[int, Why]) -> str:
    """What screens show, plus the exception that it raised, or else where its thread is."""
    doing = describe_activity_and_line(view, now_ns, reasons)
    if view.exit_info is not None and view.exception is not None and view.exception.main:
        return f"{doing}; {view.exception.kind}: {view.exception.text}"
    stack = None if doing else working_stack(view)
    return f"at {basename(user_frame(stack.frames))}" if stack and stack.frames else doing


def _groups(frame: Frame) -> Iterable[tuple[str, ...]]:
    for group in frame.groups[:MOST_GROUPS]:
        yield (
            group.label,
            group.backend,
            group.key.ranks,
            number_in(group, group.number) if group.number else "",
            fold(group.late),
            fold(group.waiting),
        )


def _time(frame: Frame) -> Iterable[Block]:
    """The tables of statistics, and what they lack; nothing if nothing is known."""
    found = frame.statistics
    if found is not None and (found.calls or found.steps):
        lacks = coverage_words(frame, found)
        yield items(filter(None, (window_words(found), clock_words(found), *lacks)))
        yield table(HEAD, call_cells(frame, found, most=MOST_CALLS))
        if steps := step_rows(found):
            head, *cells = step_table(found, steps)
            yield table(head, cells)
            yield items(step_words(found))


def _modules(frame: Frame) -> Iterable[Block]:
    """The upper levels of the tree; nothing if modules are not recorded."""
    found = frame.statistics
    if found is not None and found.modules:
        top = module_tree(found.modules)
        yield table(*module_table(top, MOST_MODULES))
        more = sum(1 for _ in top.walk()) - MOST_MODULES
        yield items([f"{counted(more, 'more module')} below these"] if more > 0 else ())


def _reported(frame: Frame) -> Iterable[Block]:
    """The values and what is unusual about them; nothing if nothing was reported."""
    if rows := reported_rows(frame.ranks):
        yield table(REPORTED_HEAD, reported_cells(rows))
        yield items(finding_lines(rows))


def _stacks(merged: MergedStacks, now_ns: int) -> StackBranches:
    """The tree of stacks; chains without branches are one branch."""
    shown = (
        StackBranch(
            one.depth,
            fold(one.ranks),
            tuple((printable(text), mine) for text, mine in one.frames),
        )
        for one in branches(merged.roots)
    )
    return StackBranches(duration(merged.age_s(now_ns)), tuple(shown))


def _no_stacks(merged: MergedStacks) -> Iterable[str]:
    return (f"no stack of ranks {fold(ranks)}: {why}" for why, ranks in merged.missing)


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
        error = host.clock_error_ns
        known = error is not None
        clock = (signed_timing(-host.clock_ns), timing(error)) if known else ("", "not measured")
        yield (host.name, host.state, host.version, *clock)


def _versions(frame: Frame, version: str, common: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    yield "frtop that wrote this", version
    if frame.recorded is not None and frame.recorded.version:
        yield "what recorded it", frame.recorded.version
    yield from ((name, common[name]) for name in _VERSIONS if name in common)
    if frame.job is not None and (address := job_address(frame.job)):
        yield "master", address
        yield "world size", str(frame.job.world_size)
