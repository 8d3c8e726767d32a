"""The logs of one job as a judged frame: what its ranks wrote before it ended.

A log proves what it says, and nothing by what it lacks. Numbers of ops are compared only within a
group that torch names. Ranks of which no line says how far they were are unreachable: they are
neither blamed nor cleared.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS, fold
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.errors import Unreadable
from frtop_tui.files.bounded_read import Progress, quietly
from frtop_tui.files.flightrecorder.file_names import RankPattern
from frtop_tui.files.logs.before_end import blames_no_victim, fresh_stacks, waiting
from frtop_tui.files.logs.facts import (
    DEFAULT,
    JOIN,
    Counters,
    GivenUp,
    LogFacts,
    MissedBarrier,
    RankLines,
    WrapperCall,
)
from frtop_tui.files.logs.patterns import NOT_COMPARABLE, OPS, SECONDS, WORDS
from frtop_tui.files.logs.reader import Reader
from frtop_tui.files.logs.scan import LogLine, RawLine, lines_of, searched
from frtop_tui.files.stacks import Stacks
from frtop_tui.job.groups import group_views
from frtop_tui.job.model import (
    LOGS,
    Coverage,
    CoverageNote,
    ObservedFrame,
    ObservedRank,
    RankState,
    Recorded,
)
from frtop_tui.job.naming import folded, group_label, listed, printable
from frtop_tui.job.stack_frames import is_user_code
from frtop_tui.job.units import byte_size, counted

KIND: Final = "logs"
OVER: Final = "these are logs: there is no job to ask"
PIPE: Final = Path("-")
LOG_SUFFIXES: Final = tuple(
    f"{name}{packed}" for packed in ("", ".gz", ".zst") for name in (".out", ".log", ".err")
)
"""Of logs in folders. Any other text is one only if it is named, and so has to say something."""
MOST_QUOTED: Final = 6
_SILENT: Final = "no line of {} says how a rank waited or ended"
MOST_REMARKS: Final = 8
_OF_RANK: Final = re.compile(
    r"(?<![A-Za-z])(?<!local[_-])(?<!node[_-])rank[_.-]?(\d{1,7})(?!\d)", re.IGNORECASE
)
ABORTED: Final = "Aborted"
TIMED_OUT: Final = "Timeout"
"""Why faulthandler printed a stack."""
_ATTEMPT: Final = re.compile(r"attempt_(\d{1,6})")
_ABORT: Final = -6
_TERMINATED: Final = -15
_GROUP: Final = 1
_OTHER: Final = 1_000_000
_BARRIER: Final = 2_000_000
_WRAPPER: Final = 2_000_001
"""Ids of groups: those in which ops timed out, others that torch names, of a monitored barrier, of
a `ProcessGroupWrapper`."""


def read(
    paths: Sequence[Path],
    problems: list[str],
    pattern: RankPattern | None = None,
    progress: Progress = quietly,
) -> LogFacts:
    """What these files say; `problems` gets a sentence for each that is of no use."""
    reader = Reader(_year(paths))
    paths = _of_last_attempt(paths, problems)
    for number, path in enumerate(paths, 1):
        written_ns = path.stat().st_mtime_ns if path != PIPE else 0
        reader.begin(_name_of(path), _rank_of(path, pattern), written_ns)
        said, matched = f"reading logs: {number:,} of {len(paths):,}", reader.matched
        try:
            for line in _lines(path, reader, progress, said):
                reader.take(line)
        except Unreadable as error:
            problems.append(f"{error.text}; {error.next_step}")
            continue
        if reader.matched == matched and not path.name.endswith(LOG_SUFFIXES):
            problems.append(_SILENT.format(path))
    return reader.finish()


def _attempt_of(path: Path) -> int | None:
    """Of the folders that torchrun's --log-dir has: RUN/attempt_0/3/stderr.log."""
    parts = path.absolute().parts
    found = _ATTEMPT.fullmatch(parts[-3]) if len(parts) > 3 else None
    return int(found[1]) if found is not None else None


def _of_last_attempt(paths: Sequence[Path], problems: list[str]) -> Sequence[Path]:
    attempts = [_attempt_of(path) for path in paths]
    last = max((one for one in attempts if one is not None), default=0)
    chosen = [path for path, one in zip(paths, attempts, strict=True) if one in (None, last)]
    if len(chosen) < len(paths):
        left = counted(len(paths) - len(chosen), "file")
        problems.append(f"{left} of attempts before attempt_{last} left out")
    return chosen


def _name_of(path: Path) -> str:
    """The file's name; torchrun gives all of them the same one."""
    if path == PIPE:
        return "stdin"
    return path.name if _attempt_of(path) is None else "/".join(path.absolute().parts[-3:])


def _rank_of(path: Path, pattern: RankPattern | None) -> int | None:
    """The rank that alone wrote to a file, by its name."""
    if pattern is not None:
        return pattern.number(path)
    found = _OF_RANK.search(path.name)
    return int(found[1]) if found is not None else None


def _lines(path: Path, reader: Reader, progress: Progress, said: str) -> Iterator[RawLine]:
    if path == PIPE:
        yield from searched(sys.stdin.buffer, WORDS, reader.wants_all, seconds=SECONDS)
        return
    size = byte_size(path.stat().st_size)

    def passed(done: int) -> None:
        progress(f"{said}, {byte_size(done)} of {size}")

    yield from lines_of(path, WORDS, reader.wants_all, passed, SECONDS)


def _year(paths: Sequence[Path]) -> int:
    changed = [path.stat().st_mtime for path in paths if path != PIPE]
    return time.localtime(max(changed, default=time.time())).tm_year


def frame_of(facts: LogFacts, paths: Sequence[Path], notes: Sequence[str] = ()) -> Frame:
    """The judged frame of a job, by its logs alone."""
    job = _Job(facts)
    folder = paths[0].absolute().parent if paths[0] != PIPE else PIPE
    name = paths[0].name if len(paths) == 1 else folder.name
    said = wire.Job("", 0, job.world, name="a log" if paths[0] == PIPE else printable(name))
    views = job.views(said)
    now = facts.newest_ns
    missing = [rank for rank in range(job.world) if rank not in views]
    hidden = [rank for rank, view in views.items() if view.state == "unreachable"]
    observed = ObservedFrame(
        now_ns=now,
        wall_ns=facts.newest_ns,
        health="undecided",
        since_ns=now,
        job=said,
        ranks=views,
        groups=group_views(views.values()),
        coverage=Coverage(
            job.world,
            len(views) - len(hidden),
            tuple(sorted([*missing, *hidden])),
            notes=tuple(job.coverage_notes([*missing, *hidden])),
        ),
        recorded=Recorded(
            KIND, str(folder), facts.newest_ns, notes=(*notes, *job.notes(), *remarks_of(facts))
        ),
        read_only=OVER,
    )
    frame = Engine(explain=True).judge(observed).frame
    before = waiting(views, *job.stack_times())
    if before is not None and not any(verdict.culprits for verdict in frame.verdicts):
        earlier = Engine(explain=True).judge(replace(observed, ranks=before)).frame
        frame = earlier if blames_no_victim(earlier, views) else frame
    return replace(frame, verdicts=tuple(job.quoted(verdict) for verdict in frame.verdicts))


_TELLING: Final = re.compile(
    r"OutOfMemory|AcceleratorError|(?:CUDA|NCCL|HIP) (?:out of|error)", re.IGNORECASE
)
"""Exceptions that seldom leave a rank as it was, also if they were handled."""


def remarks_of(facts: LogFacts) -> list[str]:
    """What hosts, schedulers and libraries wrote, and exceptions of unknown ranks, as notes."""
    unknown = [
        f"{one.line.file}:{one.line.number}: {one.kind}: {one.text}" for one in facts.unknown
    ]
    unknown += [
        f"rank {rank} logged, and may have handled: {one.line.file}:{one.line.number}:"
        f" {one.kind}: {one.text}"
        for rank, said in sorted(facts.ranks.items())
        if (one := said.thrown) is not None
        and not (one.uncaught or (said.exit is not None and said.exit.code > 0))
        and _TELLING.search(f"{one.kind}: {one.text}")
    ]
    stacks = [f"stack of an unknown rank: {one}" for one in facts.stacks]
    remarks = [
        f"{line} ({facts.meanings[line]})" if line in facts.meanings else str(line)
        for line in facts.remarks
    ]
    lines = [
        *facts.nccl.notes(),
        *map(str, facts.versions.values()),
        *remarks,
        *map(printable, unknown),
    ]
    lines += stacks
    more = len(lines) - MOST_REMARKS
    return [*lines[:MOST_REMARKS], *([f"and {more} more lines like these"] if more > 0 else [])]


def said_of(facts: LogFacts, frame: Frame) -> list[str]:
    """What logs beside other files say of the ranks that a frame blames, as notes."""
    job = _Job(facts)
    blamed = dict.fromkeys(rank for verdict in frame.verdicts for rank in verdict.culprits)
    lines = dict.fromkeys(line for rank in blamed for line in job.lines(rank))
    return [*map(str, [*lines][:MOST_QUOTED]), *remarks_of(facts)]


def silent(paths: Sequence[Path], problems: Sequence[str]) -> Unreadable:
    """The error for logs that say nothing of ranks."""
    text = _SILENT.format(listed([str(path) for path in paths], 4))
    return Unreadable(
        listed([*dict.fromkeys([text, *problems])]),
        'name the output of all ranks: it has torch\'s messages, such as "Watchdog caught"',
    )


class _Job:
    """Facts of ranks, put together over the job: groups, and how far whom is known to be."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self._stuck = {
            rank: {one.group: one for one in _oldest(said)}
            for rank, said in facts.ranks.items()
            if said.given_up
        }
        self._old_stacks, self.stacks = fresh_stacks(facts)
        self._barrier = _barrier_of(facts)
        self._calls = _calls_of(facts)
        ends = [said.exit for said in facts.ranks.values() if said.exit is not None]
        aborted = [one for one in self.stacks.values() if one.reason == ABORTED]
        by_signal = {one.code for one in ends} <= {_ABORT, _TERMINATED}
        self._were_aborted = bool(self._stuck) or (len(aborted) > 1 and by_signal)
        self._some_failed = any(one.code != _TERMINATED for one in ends)
        extra = {*self._calls, *(self._barrier.missing if self._barrier else ())}
        self.ranks = sorted({*facts.ranks, *extra})
        self.world = max(facts.world, max(self.ranks, default=-1) + 1)
        stuck = dict.fromkeys(g for mine in self._stuck.values() for g in mine if g is not None)
        self._members: dict[str, list[int]] = {}
        for rank, one in sorted(facts.ranks.items()):
            for name in dict.fromkeys([*one.group_ranks, *self._stuck.get(rank, ())]):
                if name is not None:
                    self._members.setdefault(name, []).append(rank)
        self._groups = {name: self._group(name, _GROUP + n) for n, name in enumerate(stuck)}
        self._others = {
            name: wire.Group(_OTHER + n, name, self._of(name), "nccl", fold(ranks), exact=False)
            for n, (name, ranks) in enumerate(self._members.items())
            if name not in stuck
        }
        everyone = fold(range(self.world))
        self._own = {
            _BARRIER: wire.Group(_BARRIER, "0/barrier", DEFAULT, "gloo", everyone),
            _WRAPPER: wire.Group(_WRAPPER, "0/wrapper", DEFAULT, "", everyone),
        }

    def _group(self, name: str, number: int) -> wire.Group:
        """A group in which some rank's op did not finish; which ranks are in it is not written."""
        said = [self._facts.ranks[rank] for rank in self._members[name]]
        places = [one.group_ranks[name] for one in said if name in one.group_ranks]
        ops = [one for mine in said for one in mine.given_up.values() if one.group == name]
        comparable = (
            len(places) == len(set(places))
            and any(one.op for one in ops)  # after an error, ranks end wherever they are
            and not any(one.op in NOT_COMPARABLE or one.number is None for one in ops)
        )
        members = fold(range(self.world) if name == "0" else self._members[name])
        return wire.Group(number, name, self._of(name), "nccl", members, exact=comparable)

    def _of(self, name: str) -> str:
        """The description of a group."""
        return self._facts.names.get(name, DEFAULT if name == "0" else "")

    def _stuck_groups(self, rank: int, said: RankLines) -> list[str]:
        """The groups of a rank in which some rank's op did not finish."""
        own = [*self._stuck.get(rank, ()), *(counters.group for counters in said.counters.values())]
        return [name for name in dict.fromkeys(own) if name is not None and name in self._groups]

    def _at(self, rank: int, group: str) -> int | None:
        """The op of a group that the rank is known to have issued last, or that it is stuck in."""
        one = self._stuck.get(rank, {}).get(group)
        if one is not None and one.number is not None:
            return one.number
        counters = self._last(rank, group)
        return counters.enqueued if counters is not None else None

    def _last(self, rank: int, group: str) -> Counters | None:
        mine = [c for c in self._facts.ranks[rank].counters.values() if c.group == group]
        return max(mine, key=lambda c: c.enqueued, default=None)

    def views(self, job: wire.Job) -> dict[int, ObservedRank]:
        """All ranks, with what their stacks show."""
        views = {rank: self.view(rank, job) for rank in self.ranks}
        newest = max(1, self._facts.newest_ns)  # of the end, as far as times tell
        taken = {rank: ("", stack.threads, newest) for rank, stack in self.stacks.items()}
        unknown = {rank: views.pop(rank) for rank in taken if views[rank].state == "unreachable"}
        Stacks(taken).join(views, job)
        only = not any(view.evidence.has_numbers for view in views.values())
        for rank, view in unknown.items():
            state: RankState = "moving" if only else views[rank].state
            views[rank] = replace(views[rank], groups=view.groups, state=state)
        return dict(sorted(views.items()))

    def stack_times(self) -> tuple[dict[int, int], dict[int, int]]:
        """When ranks printed their stacks, or earlier, and their exceptions, or later."""
        ends = {
            rank: said.thrown.wall_ns or self._facts.written_ns
            for rank, said in self._facts.ranks.items()
            if said.thrown is not None
        }
        return {rank: stack.wall_ns for rank, stack in self.stacks.items()}, ends

    def view(self, rank: int, job: wire.Job) -> ObservedRank:
        said = self._facts.ranks.get(rank, RankLines())
        groups = dict[int, wire.Group]()
        fronts = dict[int, wire.GroupProgress]()
        pending = list[wire.Op]()
        for name in self._stuck_groups(rank, said):
            group = self._groups[name]
            at = self._at(rank, name)
            one = self._stuck.get(rank, {}).get(name)
            op = _op(one, group) if one is not None else None
            if at is not None and at >= 0:
                groups[group.id] = group
                fronts[group.id] = wire.GroupProgress(group.id, at, 0, 0, op)
                pending += [op] if op is not None else []
        if (call := self._calls.get(rank)) is not None:
            groups[_WRAPPER] = self._own[_WRAPPER]
            pending.append(op := _called(call))
            fronts[_WRAPPER] = wire.GroupProgress(_WRAPPER, call.number, 0, 0, op)
        barrier = self._barrier
        came = barrier is not None and _came(rank, said, barrier)
        if barrier is not None and (came or rank in barrier.missing):
            groups[_BARRIER] = self._own[_BARRIER]
            last = _barrier_op(barrier.op) if came else None
            fronts[_BARRIER] = wire.GroupProgress(_BARRIER, 0 if came else -1, 0, 0, last)
        known = bool(groups)
        groups |= {one.id: one for name, one in self._others.items() if name in said.group_ranks}
        thrown, ended = self._exception(said), self._exit(said)
        if thrown is None and barrier is not None and rank == barrier.by and barrier.op != JOIN:
            text = f"{barrier.op} timed out: {fold(barrier.missing)} did not come"
            thrown = self._uncaught("RuntimeError", text, 0, barrier.line)
        state: RankState = "moving" if known else "unreachable"
        newest = self._facts.newest_ns
        return ObservedRank(
            rank=rank,
            host=printable(said.exit.host) if said.exit is not None else "",
            key=rank + 1,
            identity=wire.Identity(0, 0, rank, -1, job),
            evidence=replace(LOGS, has_numbers=known, has_exceptions=thrown is not None),
            state="dead" if thrown or ended else state,
            state_since_ns=newest,
            reported_ns=newest,
            clock_ns=0,
            groups=groups,
            group_progress=fronts,
            pending=tuple(pending),
            blocked_on=pending[0] if self._waits(rank) else None,
            exception=thrown,
            exit_info=ended,
        )

    def _waits(self, rank: int) -> bool:
        """Whether it was seen waiting in its op, which did not end it."""
        return any(not one.ended for one in self._stuck.get(rank, {}).values())

    # -- ends

    def _exception(self, said: RankLines) -> wire.UncaughtException | None:
        """What ended the rank, as it said itself: the first of what it threw, and its timeout."""
        thrown = said.thrown
        failed = said.exit is not None and said.exit.code > 0
        if thrown is not None and not (thrown.uncaught or failed):
            thrown = None
        gave_up = (one for one in said.given_up.values() if one.ended)
        given_up = min(gave_up, key=lambda one: one.line.number, default=None)
        if given_up is not None and (thrown is None or not _is_before(thrown.line, given_up.line)):
            group = self._label(given_up.group)
            number = f" #{given_up.number}" if given_up.number is not None else ""
            waited = given_up.ran_ms // 1000 * 1000 or given_up.ran_ms  # ranks differ by some ms
            text = f"{_kind(given_up.op)}{number}{group} timed out after {waited} ms"
            if not given_up.op:  # torch 2.4 and later do not say which of the two in this line
                text = f"an op{number}{group} timed out or failed"
            return self._uncaught("DistBackendError", text, given_up.wall_ns, given_up.line)
        if thrown is None:
            return None
        frames = tuple(wire.TraceFrame(of, file, line) for file, line, of in thrown.frames)
        ended_ns = said.exit.wall_ns if said.exit is not None else 0
        at_ns = thrown.wall_ns or ended_ns or thrown.clock_ns
        return self._uncaught(thrown.kind, thrown.text, at_ns, thrown.line, frames)

    def _label(self, group: str | None) -> str:
        if group is None:
            return ""
        return f" of {group_label(group, self._facts.names.get(group, ''))}"

    def _uncaught(
        self,
        kind: str,
        text: str,
        wall_ns: int,
        line: LogLine,
        frames: tuple[wire.TraceFrame, ...] = (),
    ) -> wire.UncaughtException:
        # Of two that have the same time, the one that was written first came first.
        at = (wall_ns or self._facts.first_ns) + line.number
        return wire.UncaughtException(printable(kind), text, "", True, at, frames)

    def _exit(self, said: RankLines) -> wire.ExitInfo | None:
        """How the process ended, unless that follows from what others did.

        Timeouts abort all processes, and torchrun ends those that are left.
        """
        ended = said.exit
        if ended is None or (ended.code == _ABORT and self._were_aborted):
            return None
        timed_out = said.stack is not None and said.stack.reason == TIMED_OUT
        if timed_out and ended.code == 1 and said.thrown is None:
            return None  # faulthandler may end the process after it has printed the stack
        if ended.own and any(_is_before(one.line, ended.line) for one in said.given_up.values()):
            return None  # it crashed when torch took it down
        closed = self._some_failed if ended.closed is None else ended.closed
        if ended.code == _TERMINATED and closed:
            return None
        at_ns = ended.wall_ns or self._facts.newest_ns + ended.line.number  # mpirun has no times
        if ended.code < 0:
            return wire.ExitInfo(at_ns, signal=-ended.code)
        return wire.ExitInfo(at_ns, exit_code=ended.code)

    # -- words

    def coverage_notes(self, missing: Sequence[int]) -> Iterator[CoverageNote]:
        if missing:
            text = (
                f"no line says how far {folded(missing)} came: read the output of those, too;"
                " a rank that wrote nothing may be the one to blame"
            )
            yield CoverageNote(text, "never reported")
        if not self._facts.world:
            yield CoverageNote(
                "no line says how many ranks there are: those above the last one are not missed"
            )

    def notes(self) -> Iterator[str]:
        """What limits the judgement of these logs."""
        facts = self._facts
        if facts.restarts:
            yield f"the workers were restarted ({facts.restarts[-1]}); only what follows is judged"
        if facts.repeats:
            yield "Ray left out lines that several ranks wrote: that a rank wrote none says nothing"
        if facts.spawned:
            yield f"a process that spawn started is taken for a rank of one host: {facts.spawned}"
        if facts.relative:
            yield "some lines have ranks of groups, which may not be those of the job"
        if facts.lost_by_group_rank:
            count = counted(facts.lost_by_group_rank, "process")
            yield f"timeouts of {count} left out: their lines do not say which rank wrote them"
        ends = [said.exit for said in facts.ranks.values() if said.exit is not None]
        if self._stuck and any(one.code == _ABORT for one in ends):
            yield "exits by signal 6 (SIGABRT) follow from timeouts: torch's watchdog aborts"
        if self._old_stacks:
            text = folded(self._old_stacks)
            yield f"stacks of {text} are older than the ops that timed out: left out"
        if facts.stacks_left_out:
            yield f"{counted(facts.stacks_left_out, 'stack')} left out: there are too many"
        yield from self._notes_on_groups()

    def _notes_on_groups(self) -> Iterator[str]:
        facts = self._facts
        unknown = [one for one in facts.barriers if one.op != JOIN and self._barrier is None]
        if unknown:
            yield f"ranks of a group that is not known missed its barrier: {unknown[0].line}"
        if self._barrier is not None and not self._barrier.every:
            yield f"{self._barrier.op} names only the first missing rank: others may be, too"
        if facts.disagreements and not self._calls:
            line = facts.disagreements[0].line
            yield f"ranks of a group that is not known called different ops: {line}"
        for group in self._groups.values():
            if not group.exact:
                label = group_label(group.name, group.description)
                yield f"ops of {label} are not compared: their numbers may be of several groups"

    def lines(self, rank: int) -> list[LogLine]:
        """The lines on a rank, the most telling first."""
        said = self._facts.ranks.get(rank)
        found = []
        if self._barrier is not None and rank in self._barrier.missing:
            found.append(self._barrier.line)
        found += [
            one.line for one in self._facts.disagreements if rank in (one.one.rank, one.other.rank)
        ]
        if said is None:
            return found
        if said.thrown is not None:
            found.append(said.thrown.line)
        found += [one.line for one in _oldest(said)]
        last = [
            c
            for name in self._stuck_groups(rank, said)
            if (c := self._last(rank, name)) is not None
        ]
        found = (
            [*(c.line for c in last), *found]
            if not said.given_up
            else [*found, *(c.line for c in last)]
        )
        if said.exit is not None:
            found.append(said.exit.line)
        if rank in self.stacks:
            found.append(self.stacks[rank].line)
        return found

    def quoted(self, verdict: Verdict) -> Verdict:
        """The verdict with the lines that decided it: all of the culprits', one of each other."""
        of_culprits = [line for rank in verdict.culprits[:3] for line in self.lines(rank)]
        others = sorted({*verdict.victims, *(rank for party in verdict.parties for rank in party)})
        rest = others or ([] if verdict.culprits else self.ranks)
        of_rest = [lines[0] for rank in rest[:MOST_QUOTED] if (lines := self.lines(rank))]
        most = MOST_QUOTED - 2 if of_rest else MOST_QUOTED
        chosen = dict.fromkeys([*of_culprits[:most], *of_rest])
        return replace(verdict, evidence=(*map(str, [*chosen][:MOST_QUOTED]), *verdict.evidence))


def _oldest(said: RankLines) -> list[GivenUp]:
    """The first op of each group that did not finish."""
    found = dict[str | None, GivenUp]()
    for one in said.given_up.values():
        known = found.get(one.group)
        if known is None or (one.number or 0) < (known.number or 0):
            found[one.group] = one
    return [*found.values()]


def _is_before(one: LogLine, other: LogLine) -> bool:
    return one.file == other.file and one.number < other.number


def _barrier_of(facts: LogFacts) -> MissedBarrier | None:
    """The barrier that ranks missed, if its ranks are certainly the job's."""
    for one in sorted(facts.barriers, key=lambda one: -len(one.missing)):
        # Without torchrun's store, rank 0 waits for all others before it joins.
        if one.op == JOIN and (one.missing != (0,) or facts.by_torchrun):
            return one
        rest = {*range(facts.world)} - {one.by}
        alone = one.every and one.by is not None and {*one.missing} == rest
        known = facts.global_ranks or (alone and facts.global_ranks is None)
        if known and one.by == 0 and max(one.missing) < MAX_RANKS:
            return one
    return None


def _came(rank: int, said: RankLines, barrier: MissedBarrier) -> bool:
    """Whether the rank has waited at the barrier: it wrote the line, or another like it."""
    text = said.thrown.text if said.thrown is not None else ""
    return rank == barrier.by or bool(text and barrier.line.text.endswith(text))


def _calls_of(facts: LogFacts) -> dict[int, WrapperCall]:
    """What ranks called, by `ProcessGroupWrapper`, if its ranks are certainly the job's.

    Where shapes differ in length, torch misreads the call of the other rank: number and op are
    made up. The rank's own call is right.
    """
    found = dict[int, WrapperCall]()
    if facts.global_ranks:
        mine = [one.one for one in facts.disagreements if one.by == one.one.rank]
        numbers = {call.number for call in mine}
        others = [
            call
            for one in facts.disagreements
            for call in (one.one, one.other)
            if one.one.number == one.other.number
        ]
        for call in (*mine, *others):
            if call.rank < MAX_RANKS:
                found.setdefault(call.rank, call)
                numbers.add(call.number)
        if len(numbers) > 1 or len({call[1:] for call in found.values()}) == 1:
            found = {}
    return found


def _kind(op: str) -> str:
    return OPS.get(op, op.lower().strip("_"))


def _op(one: GivenUp, group: wire.Group) -> wire.Op:
    inputs = outputs = None
    if one.numel is not None:
        inputs, outputs = ((wire.TensorSpec("", (size,), device="cuda"),) for size in one.numel)
    p2p = one.op in NOT_COMPARABLE
    return wire.Op(
        sequence=(one.number or 0) + 1,
        group=group.id,
        number=0 if p2p else one.number or 0,
        signature=wire.Signature(_kind(one.op), inputs=inputs, outputs=outputs) if one.op else None,
        site=_site(one.frames),
        issued_ns=max(0, one.wall_ns - one.ran_ms * 1_000_000),
        p2p=p2p,
    )


def _site(frames: Sequence[wire.TraceFrame]) -> wire.Site | None:
    own = next(filter(is_user_code, frames), frames[0] if frames else None)
    return wire.Site(own.file, own.line, own.function) if own is not None else None


def _called(call: WrapperCall) -> wire.Op:
    shape = tuple(int(one) for one in call.shape.replace(",", " ").split() if one.isdecimal())
    specs = (wire.TensorSpec(call.dtype.lower(), shape),) if call.dtype else None
    signature = wire.Signature(_kind(call.op), inputs=specs)
    return wire.Op(call.number + 1, _WRAPPER, call.number, signature, None, 0)


def _barrier_op(kind: str) -> wire.Op:
    return wire.Op(1, _BARRIER, 0, wire.Signature(kind), None, 0)
