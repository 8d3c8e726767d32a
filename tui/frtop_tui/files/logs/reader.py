"""Reads the lines of logs, and notes what they say by process and rank.

A rank is known by its own lines: by what torch or a launcher put before them, or by its rank in the
default group. Other groups count their ranks differently. Lines of no known rank never become those
of a rank.
"""

from __future__ import annotations

import re
import signal as signals
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_probe.ring.rank_ranges import MAX_RANKS, unfold
from frtop_tui.files.logs.analyses import Analyses
from frtop_tui.files.logs.facts import (
    DEFAULT,
    JOIN,
    LAUNCHERS,
    Counters,
    Disagreement,
    GivenUp,
    LogFacts,
    LoggedExit,
    MissedBarrier,
    RankLines,
    Thrown,
    WrapperCall,
    add_counters,
    add_given_up,
    join,
    merge,
)
from frtop_tui.files.logs.nccl import NcclProcess
from frtop_tui.files.logs.patterns import GROUP, PATTERNS, WORK_RANK, XIDS, Kind
from frtop_tui.files.logs.prefixes import Head, head_of, tagged_once, wall_ns_of
from frtop_tui.files.logs.scan import MAX_QUOTE, WATCHER, LogLine, RawLine
from frtop_tui.files.logs.stack_text import OpText, begun
from frtop_tui.files.logs.stacks import LoggedStack, Reading, StackLines

MAX_PROCESSES: Final = 131_072
MAX_REMARKS: Final = 64
MAX_VERSIONS: Final = 4
MAX_PARTS: Final = 4_096
MAX_TRACES: Final = 4_096
"""Tracebacks that are being read at the same time."""
MAX_TRACE: Final = 200_000
"""Lines of a log in which all tracebacks must end."""
MAX_FRAMES: Final = 64
MAX_MORE: Final = 8
"""Further lines of an exception's text."""
UNSIGNED: Final = 2**63
_SIGNALS: Final[dict[str | None, int]] = {
    **{signals.strsignal(one): -int(one) for one in signals.Signals},
    **{one.name.removeprefix("SIG"): -int(one) for one in signals.Signals},
    "Out Of Memory": -signals.SIGKILL,
}
"""As srun and spawn write them."""
_FATAL: Final = {
    "Segmentation fault": -signals.SIGSEGV,
    "Bus error": -signals.SIGBUS,
    "Illegal instruction": -signals.SIGILL,
    "Floating-point exception": -signals.SIGFPE,
    "Floating point exception": -signals.SIGFPE,
}
"""As faulthandler writes them."""
_FOLLOWING: Final = ("Aborted", "Timeout")
"""Written there, too, but no cause of their own."""
_FRAME: Final = re.compile(
    r'  File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}), in (?P<of>.+)'
)
_END: Final = re.compile(r"(?P<kind>[A-Za-z_][\w.]{0,200})(?:: (?P<text>.*))?")


@dataclass(slots=True)
class _Trace:
    """A traceback that is being read; `thrown` once its last line has come.

    It is `of` the process that prints it, or of the one whose row of torchrun's table has it.
    """

    of: RankLines
    wall_ns: int
    clock_ns: int
    uncaught: bool
    indent: int = 0
    frames: list[tuple[str, int, str]] = field(default_factory=list)
    thrown: Thrown | None = None
    more: int = 0


@dataclass(slots=True)
class _Process:
    """What shares everything that stands before its lines, in one file."""

    rank: int | None
    local_rank: int = -1
    task: int = -1
    prefix: str = ""
    said: RankLines = field(default_factory=RankLines)
    claims: set[int] = field(default_factory=set)  # ranks within groups that it gave itself
    trace: _Trace | None = None


class _Match(NamedTuple):
    """A line that a pattern matches, and who wrote it when."""

    found: re.Match[str]
    line: LogLine
    head: Head
    process: _Process
    wall_ns: int
    means: str


@dataclass(slots=True)
class _Row:
    """A row of torchrun's table of failures, which spans several lines."""

    wall_ns: int = 0
    host: str = ""
    rank: int | None = None
    local_rank: int = -1


class _Failed(NamedTuple):
    """torchrun saw a worker fail: the end of a part of a file. `agent` is known by its pid."""

    file: int
    part: int
    agent: str
    line: LogLine


class _Ended(NamedTuple):
    """How tasks of a launcher ended; `by` whose line."""

    part: int
    tasks: str
    exit: LoggedExit
    by: Kind


_Key = tuple[int, str, int | None]
"""Part of a file, what stands before the lines, rank."""


class Reader:
    """Takes the lines of files one after the other; `finish` returns what they say together."""

    def __init__(self, year: int) -> None:
        """`year`: of times that have none."""
        self._year = year
        self.matched = 0  # lines that say something
        self._file, self._number, self._part = "", 0, 0
        self._file_rank: int | None = None
        self._clock = self._written_ns = 0
        self._processes: dict[_Key, _Process] = {}
        self._traced: list[_Process] = []
        self._bare: _Process | None = None  # of lines without anything before them, if known
        self._read = 0  # lines since a traceback began
        self._row = _Row()
        self._analyses = Analyses()
        self._failed_rank: int | None = None  # of the last row of torchrun's table
        self._in_table: dict[tuple[int, int], RankLines] = {}  # exceptions there: by part, rank
        self._of_nobody = 0  # tracebacks
        self._crashes: list[tuple[int, Thrown]] = []  # of nobody known; with their parts
        self._local: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        self._file_of = [0]  # by part
        self._failed: list[_Failed] = []
        self._restarted: dict[int, int] = {}  # by file: the last part of an earlier attempt
        self._stacks = StackLines[_Process]()
        self._tied: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        self._checks: list[tuple[int, Disagreement | MissedBarrier]] = []  # with their parts
        self._ranked = False  # whether tasks are ranks: known at the end
        self._ended: list[_Ended] = []
        self._closed: dict[int, set[int]] = {}  # by file: pids that torchrun has ended
        self._step_ends = False  # srun ends those that are left
        self._tasks: set[tuple[int, int]] = set()  # with the ranks in whose lines they stand
        self._facts = LogFacts()

    def begin(self, file: str, rank: int | None, written_ns: int = 0) -> None:
        """Lines of this file follow; `rank` is set if all of them are of one rank.

        `written_ns` is when it was written last: that is the time of a stack with which it begins.
        """
        self._written_ns = written_ns
        self._facts.written_ns = max(self._facts.written_ns, written_ns)
        self._drop_traces()
        self._file, self._file_rank = file, rank
        self._number += 1
        self._clock, self._row, self._failed_rank, self._step_ends = 0, _Row(), None, False
        self._begin_part()

    def wants_all(self) -> bool:
        """Whether the next line may matter whatever is in it."""
        return bool(self._traced) or self._stacks.some_open

    def take(self, raw: RawLine) -> None:
        if WATCHER.match(raw.text) is None:
            self._take(raw)

    def _take(self, raw: RawLine) -> None:
        head = head_of(tagged_once(raw.text), self._year)
        self._clock = head.wall_ns or self._clock
        process = self._process(head)
        if self._bare is not None and not head.process and process.rank is None:
            process = self._bare
        if head.rank is not None:
            self._tie(head, head.rank)
        whose = f"[rank{head.rank}]: " if head.rank is not None else ""
        line = LogLine(self._file, raw.number, whose + head.text[:2000])
        if self._stacks.take(head):
            return
        if self.wants_all():
            self._read += 1
            if process.trace is not None:
                self._go_on(process, process.trace, head, line)
            if self._read > MAX_TRACE:
                self._drop_traces()
        if not raw.chosen:
            return
        for pattern in PATTERNS:
            if (found := pattern.match(head.text)) is not None:
                wall = head.wall_ns or self._clock
                self.matched += 1
                match = _Match(found, line, head, process, wall, pattern.means)
                self._note(pattern.kind, match)
                break

    def finish(self) -> LogFacts:
        """Returns the facts; those of one rank from several files together."""
        self._drop_traces()
        self._add_sites()
        self._find_restarts()
        self._ranked = self._tasks_are_ranks()
        facts = self._facts
        checks = [check for part, check in self._checks if self._is_judged(part)]
        facts.disagreements = [one for one in checks if isinstance(one, Disagreement)]
        facts.barriers = [one for one in checks if isinstance(one, MissedBarrier)]
        judged = {k: one for k, one in self._processes.items() if self._is_judged(k[0])}
        claims = Counter((key[0], rank) for key, one in judged.items() for rank in one.claims)
        for (part, _, _), process in judged.items():
            rank = self._rank_of(self._file_of[part], process)
            claim = min(process.claims) if len(process.claims) == 1 else None
            if rank is None and claim is not None and claims[part, claim] == 1:
                rank, facts.relative = claim, True
            if rank is not None:
                merge(facts.ranks.setdefault(rank, RankLines()), process.said)
            else:
                facts.add_of_nobody(process.said)
        facts.by_torchrun = bool(self._local or self._failed)
        self._add_ended()
        self._add_exceptions()
        self._add_stacks()
        tabled = {file for file, _ in self._local}
        for one in self._failed:
            if one.file not in tabled and self._is_judged(one.part):
                self._remark(one.line)
        for said in facts.ranks.values():
            join(said)
        return facts

    def _add_exceptions(self) -> None:
        """Those that torchrun's table has, or that no line gives to a rank.

        The only one of nobody known is that of the only rank that failed without one, the only
        crash that of the only one that aborted.
        """
        facts = self._facts
        for (part, rank), one in self._in_table.items():
            said = facts.ranks.get(rank)
            if said is not None and self._is_judged(part):
                printed = said.thrown is not None and said.thrown.uncaught
                said.thrown = said.thrown if printed else one.thrown or said.thrown
        failed = [one for one in facts.ranks.values() if one.exit is not None and one.exit.code > 0]
        if len(failed) == len(facts.unknown) == self._of_nobody == 1 and failed[0].thrown is None:
            thrown, ended = facts.unknown[0], failed[0].exit
            if ended is not None and ended.code == 1 and ended.line.file == thrown.line.file:
                failed[0].thrown = facts.unknown.pop()
        aborted = [
            one
            for one in facts.ranks.values()
            if one.exit is not None and one.exit.code == -signals.SIGABRT and one.thrown is None
        ]
        crashes = [crash for part, crash in self._crashes if self._is_judged(part)]
        if len(aborted) == len(crashes) == 1:
            aborted[0].thrown = crashes[0]

    def _tasks_are_ranks(self) -> bool:
        """Whether lines show it: their prefixes, or the exception of a program.

        A task of torchrun has other ranks, and says how they ended.
        """
        by_torchrun = self._local or self._failed
        raised = (one.said.thrown for one in self._processes.values() if one.task >= 0)
        shown = bool(self._tasks) or any(one is not None and _is_users(one) for one in raised)
        return shown and not by_torchrun and all(a == b for a, b in self._tasks)

    def _are_ranks(self, one: _Ended) -> bool:
        """Those of mpirun are; processes of spawn, if nothing else names ranks.

        Whoever ends a whole job sends SIGTERM, and spawn reports only one of its processes.
        """
        if one.by == "ended tasks":
            return self._ranked
        if one.by == "ended spawned":
            alone = len(self._ended) == 1 and not self._facts.ranks
            alone = alone and one.exit.code != -signals.SIGTERM
            self._facts.spawned = one.exit.line if alone else None
            return alone
        return True

    def _add_ended(self) -> None:
        """What launchers said of tasks, if these are ranks."""
        ranks = self._facts.ranks
        for one in self._ended:
            if self._local or not self._are_ranks(one):
                continue
            with suppress(ValueError):
                tasks = unfold(one.tasks) if self._is_judged(one.part) else ()
                for task in filter(_is_rank, tasks[: MAX_PROCESSES - len(ranks)]):
                    said = ranks.setdefault(task, RankLines())
                    said.exit = said.exit or one.exit

    # -- processes and ranks

    def _rank_of(self, file: int, process: _Process) -> int | None:
        """Its rank, the one that torchrun's table has for its local rank, or its task."""
        if process.rank is None and process.local_rank < 0 <= process.task:
            return process.task if self._ranked else None
        if process.rank is not None:
            return process.rank
        named = self._tied.get((file, process.prefix), set())
        if not named and process.local_rank >= 0:
            named = self._local.get((file, process.local_rank), set())
        return min(named) if len(named) == 1 else None

    def _tie(self, head: Head, rank: int) -> None:
        """Notes a line with a rank, for lines of the same process that have none."""
        if head.task >= 0 and len(self._tasks) < MAX_PROCESSES:
            self._tasks.add((head.task, rank))
        one_process = head.local_rank >= 0 or "process " in head.process
        if one_process and len(self._tied) < MAX_PROCESSES:
            self._tied[self._number, head.process].add(rank)

    def _add_sites(self) -> None:
        """Where ops were issued. torch says it after their timeouts, and not of which op."""
        for one in self._stacks.ops:
            given_up = one.process.said.given_up
            if len(given_up) == 1:
                ((key, op),) = given_up.items()
                given_up[key] = op._replace(frames=op.frames or one.frames)

    def _add_stacks(self) -> None:
        facts = self._facts
        for process, number in facts.nccl.ranks(facts.world).items():
            self._stacks.note_pid(process.file, process.prefix, process.pid, number)
        facts.stacks_left_out = self._stacks.left_out
        for rank, one in self._stacks.with_ranks(self._rank_of, self._local):
            if not self._is_judged(one.part):
                continue
            if rank is None or not _is_rank(rank):
                facts.stacks += [one.stack][: MAX_REMARKS - len(facts.stacks)]
                continue
            said = facts.ranks.setdefault(rank, RankLines())
            if one.stack.has_frames:
                said.stack = one.stack
            said.exit = said.exit or _fatal_exit(one.stack)

    def _process(self, head: Head, rank: int | None = None, claim: int | None = None) -> _Process:
        """The process that wrote a line; `rank` and `claim` are by its text."""
        if rank is None:
            rank = head.rank if head.rank is not None else self._file_rank
        if not _is_rank(rank):
            return _Process(None)
        prefix = head.process if rank is None else ""
        if claim is not None and rank is None and head.local_rank < 0:
            prefix += f"Rank {claim}"  # a task may be a host's launcher, with several ranks
        key = (self._part, prefix, rank)
        known = self._processes.get(key)
        if known is None:
            if len(self._processes) >= MAX_PROCESSES:
                return _Process(None)
            known = self._processes[key] = _Process(rank, head.local_rank, head.task, head.process)
        for one in (claim, head.claim):
            if one is not None and one >= 0 and rank is None:
                known.claims.add(one)
        return known

    def _said_by(self, one: _Match) -> tuple[RankLines, str | None]:
        """Whose facts a line of ProcessGroupNCCL adds to, and of which group it speaks."""
        head, process = one.head, one.process
        found = GROUP.search(head.text)
        if found is None:
            mine = WORK_RANK.search(head.text)
            if process.rank is None and mine is not None:
                process = self._process(head, claim=int(mine["rank"]))
            return process.said, None
        group, description = found["guid"] or found["name"], found["description"] or ""
        if description == DEFAULT or (group == "0" and not description):
            group, description = "0", DEFAULT
        if description:
            self._facts.names.setdefault(group, description)
        rank = int(found["rank"])
        if process.rank is None:
            known = group == "0"
            process = self._process(head, rank if known else None, None if known else rank)
        process.said.group_ranks.setdefault(group, rank)
        return process.said, group

    # -- single lines

    def _note(self, kind: Kind, one: _Match) -> None:
        wall, facts = one.wall_ns, self._facts
        if wall and kind not in ("remark", "version"):
            facts.first_ns = min(facts.first_ns or wall, wall)
            facts.newest_ns = max(facts.newest_ns, wall)
        match kind:
            case "timeout" | "status" | "fault":
                self._note_group(kind, one)
            case "failure time" | "failure host" | "failure rank" | "failure exit":
                self._note_failure(kind, one)
            case "mismatch" | "barrier" | "reached" | "join":
                self._note_check(kind, one)
            case "ended process" | "ended with" | "ended by" | "ended tasks" | "ended spawned":
                self._note_ended(kind, one)
            case "analysis":
                self._note_analysis(one)
            case "traceback":
                self._begin_trace(one)
            case "stack" | "fatal" | "op stack" | "heap":
                self._begin_stack(kind, one)
            case "restart" | "failed":
                self._end_part(kind, one)
            case _:
                self._note_of_job(kind, one)

    def _note_of_job(self, kind: Kind, one: _Match) -> None:
        """A line that is not about one rank."""
        facts = self._facts
        if kind == "world":
            facts.world = min(MAX_RANKS, max(facts.world, int(one.found["size"])))
        elif kind == "repeats":
            facts.repeats = True
        elif kind == "closing":
            closed = self._closed.setdefault(self._number, set())
            if len(closed) < MAX_PROCESSES:
                closed.add(int(one.found["pid"]))
        elif kind == "step ends":
            self._step_ends = True
        elif kind == "chained":  # what follows was raised while that before was handled
            self._of_nobody -= one.process.rank is None and one.process.local_rank < 0
        elif kind in ("peer", "communicator", "address"):
            self._note_nccl(kind, one)
        elif kind == "remark":
            xid = one.found.groupdict().get("xid")
            self._remark(one.line, one.means or XIDS.get(xid or "", ""))
        elif len(facts.versions) < MAX_VERSIONS:
            facts.versions.setdefault(one.found["version"], one.line)

    def _note_nccl(self, kind: Kind, one: _Match) -> None:
        """A line of NCCL itself: they begin with host and pid, and say a rank only once."""
        found, nccl = one.found, self._facts.nccl
        if kind == "communicator":
            process = NcclProcess(self._number, one.head.process, found["host"], int(found["pid"]))
            nccl.note_rank(process, int(found["rank"]), int(found["size"]))
        elif kind == "address":
            nccl.note_address(found["host"], found["address"])
        else:
            self._remark(one.line)
            place = f"{found['host']}:{found['pid']}" if found["host"] else ""
            known = one.process.rank is not None
            by = f"rank {one.process.rank}" if known else place or one.head.process
            nccl.note_lost(found["peer"], by)

    def _remark(self, line: LogLine, means: str = "") -> None:
        if len(self._facts.remarks) < MAX_REMARKS:
            self._facts.remarks.append(line)
            self._facts.meanings |= {line: means} if means else {}

    def _note_analysis(self, one: _Match) -> None:
        """A line of torch's analyzer: members of a group are in an op that others lack."""
        found = self._analyses.take(one.found.groupdict(), one.line)
        if found is None:
            return
        group = "0" if found.description == DEFAULT else found.group
        self._facts.names.setdefault(group, found.description)
        for place, rank in enumerate(found.members):
            said = self._process(Head("", rank, 0, "")).said
            said.group_ranks.setdefault(group, place)
            if rank in found.missing:
                lacks = found.number - 1
                add_counters(said, Counters(group, None, lacks, lacks, found.line, one.wall_ns))
            else:
                waits = GivenUp(found.number, found.op, None, 0, group, found.line, 0, ended=False)
                add_given_up(said, waits)

    def _note_group(self, kind: Kind, one: _Match) -> None:
        """A line of ProcessGroupNCCL."""
        found, line = one.found, one.line
        said, group = self._said_by(one)
        if kind == "timeout":
            add_given_up(said, _given_up(found, group, line, one.wall_ns))
        elif kind == "fault":
            times = one.wall_ns, one.wall_ns
            fault = Thrown("DistBackendError", found["text"], (), line, *times, uncaught=True)
            said.thrown = said.thrown or fault
        elif group is not None:
            add_counters(said, _counters(found, group, line, one.wall_ns))

    def _note_check(self, kind: Kind, one: _Match) -> None:
        """A line of a `ProcessGroupWrapper` or a monitored barrier: their ranks are a group's."""
        found, facts, by = one.found, self._facts, one.process.rank
        if kind == "join":
            self._check(MissedBarrier((int(found["rank"]),), False, by, one.line, JOIN))
            return
        if kind == "mismatch":
            calls = _wrapper_call(found, "one"), _wrapper_call(found, "other")
            said = calls[0].rank
            self._check(Disagreement(*calls, by, one.line))
        elif kind == "barrier":
            missing, said = {int(rank) for rank in found["ranks"].split(",")}, int(found["by"])
            every = found["all"] == "Ranks"
            self._check(MissedBarrier(tuple(sorted(missing)), every, by, one.line))
        else:
            said = int(found["rank"])
        if by is not None and (by or said):  # 0 shows nothing: it is 0 in many groups
            facts.global_ranks = by == said and facts.global_ranks is not False

    def _note_failure(self, kind: Kind, one: _Match) -> None:
        """A line of torchrun's table."""
        row, found = self._row, one.found
        if kind == "failure time":
            self._row = _Row(wall_ns_of(found.groups()))
            self._facts.newest_ns = max(self._facts.newest_ns, self._row.wall_ns)
        elif kind == "failure host":
            row.host = found["host"]
        elif kind == "failure rank":
            row.rank, row.local_rank = int(found["rank"]), int(found["local"])
        elif row.rank is not None and _is_rank(row.rank):
            self._row = _Row()
            self._local[self._number, row.local_rank].add(row.rank)
            said = self._process(Head("", row.rank, 0, "")).said
            self._stacks.note_pid(self._number, one.head.process, int(found["pid"]), row.rank)
            wall = row.wall_ns or one.wall_ns
            said.exit = LoggedExit(int(found["code"]), row.host, one.line, wall)
            if closed := self._closed.get(self._number):
                said.exit = said.exit._replace(closed=int(found["pid"]) in closed)
            self._failed_rank = row.rank

    def _note_ended(self, kind: Kind, one: _Match) -> None:
        """How mpirun, srun and spawn say that processes ended."""
        found = one.found.groupdict()
        if kind == "ended process":
            self._row = _Row(rank=int(found["rank"]))
            return
        tasks, row = found.get("tasks") or found.get("rank"), self._row
        if kind == "ended with":
            tasks, self._row = None if row.rank is None else str(row.rank), _Row()
        signal = found.get("signal") or ""
        code = -int(signal) if signal.isdecimal() else _SIGNALS.get(signal.strip(), 0)
        code = int(found.get("code") or code or kind == "ended spawned")
        if code not in (0, -signals.SIGTERM, -signals.SIGABRT):
            self._remark(one.line)
        by_srun = self._step_ends and code in (-signals.SIGTERM, -signals.SIGKILL)
        if tasks is not None and code and not by_srun and len(self._ended) < MAX_PARTS:
            host = found.get("host") or ""
            ended = LoggedExit(code, host, one.line, one.wall_ns, closed=False)
            self._ended.append(_Ended(self._part, tasks, ended, kind))

    def _check(self, check: Disagreement | MissedBarrier) -> None:
        if len(self._checks) < MAX_REMARKS:
            self._checks.append((self._part, check))

    # -- attempts

    def _begin_part(self) -> None:
        self._drop_traces()
        self._part = len(self._file_of)
        self._file_of.append(self._number)

    def _end_part(self, kind: Kind, one: _Match) -> None:
        if len(self._failed) >= MAX_PARTS:
            return
        if kind == "restart":
            self._restart(self._part, one.line)
        else:
            agent = f"{one.head.process}{one.head.writer}" if one.head.writer else ""
            self._failed.append(_Failed(self._number, self._part, agent, one.line))
        self._begin_part()

    def _restart(self, part: int, line: LogLine) -> None:
        """Parts of the file up to this one belong to an attempt that ended."""
        file = self._file_of[part]
        if part > self._restarted.get(file, 0):
            self._restarted[file] = part
            self._facts.restarts += [line][: MAX_REMARKS - len(self._facts.restarts)]

    def _is_judged(self, part: int) -> bool:
        return part > self._restarted.get(self._file_of[part], 0)

    def _find_restarts(self) -> None:
        """Without a line that says so: an agent whose worker fails again has restarted them.

        So has one after which a rank goes on that had ended.
        """
        last: dict[tuple[int, str], _Failed] = {}
        for one in self._failed:
            before = last.get((one.file, one.agent))
            if before is not None and one.agent:
                self._restart(before.part, before.line)
            last[one.file, one.agent] = one
        ended: dict[tuple[int, int], int] = {}  # by file and rank: in which part
        for (part, _, rank), process in self._processes.items():
            thrown = process.said.thrown
            if rank is not None and thrown is not None and thrown.uncaught:
                at = self._file_of[part], rank
                ended[at] = min(part, ended.get(at, part))
        for (part, _, rank), process in self._processes.items():
            first = ended.get((self._file_of[part], rank)) if rank is not None else None
            if first is not None and part > first and process.said.spoke:
                between = [one for one in self._failed if first <= one.part < part]
                if between:
                    self._restart(between[-1].part, between[-1].line)

    # -- tracebacks

    def _begin_trace(self, one: _Match) -> None:
        if one.process.trace is None:
            if len(self._traced) >= MAX_TRACES:
                return
            self._traced.append(one.process)
        self._read = 0
        said, walls = one.process.said, (one.head.wall_ns, one.wall_ns)
        ends = one.found["ends"] is not None
        one.process.trace = _Trace(said, *walls, one.head.hooked or ends)
        if ends:  # its other lines follow at once, with nothing before them
            self._bare = one.process
        if one.found["row"] is not None and self._failed_rank is not None:
            in_table = RankLines()
            one.process.trace = _Trace(in_table, *walls, uncaught=True, indent=2)
            self._in_table[self._part, self._failed_rank] = in_table

    def _go_on(self, process: _Process, trace: _Trace, head: Head, line: LogLine) -> None:
        """Takes the next line of a process that prints a traceback."""
        text = head.text.removeprefix(" " * trace.indent)
        if trace.thrown is not None:
            goes_on = head.hooked and text and trace.more < MAX_MORE
            if goes_on and not text.startswith(("Traceback (", "The above ", "During handling ")):
                trace.more += 1
                longer = f"{trace.thrown.text}\n{text[:MAX_QUOTE]}"
                trace.thrown = trace.of.thrown = trace.thrown._replace(text=longer)
                return
        elif (found := _FRAME.match(text)) is not None:
            trace.frames.append((found["file"], int(found["line"]), found["of"][:200]))
            del trace.frames[:-MAX_FRAMES]
            return
        elif text[:1] in ("", " ", "\t"):
            return
        elif trace.frames and (found := _END.fullmatch(text)) is not None:
            kind, frames = found["kind"].rpartition(".")[2], tuple(reversed(trace.frames))
            said = (found["text"] or "")[:2000]
            times = trace.wall_ns, trace.clock_ns
            thrown = Thrown(kind, said, frames, line, *times, trace.uncaught)
            if trace.of.thrown is None or trace.uncaught >= trace.of.thrown.uncaught:
                trace.of.thrown = thrown
            if process.rank is None and process.local_rank < 0 and not trace.indent:
                self._of_nobody += kind not in LAUNCHERS
            if trace.uncaught:
                trace.thrown = thrown
                return
        process.trace = None
        self._bare = self._bare if self._bare is not process else None
        self._traced = [one for one in self._traced if one is not process]

    def _begin_stack(self, kind: Kind, one: _Match) -> None:
        if kind == "heap":  # faulthandler's stack may follow
            self._note_crash("abort", one.found["what"], one)
            return
        self._read = 0
        text, head = OpText() if kind == "op stack" else begun(one.head.text), one.head
        reason = one.found["what"] if kind == "fatal" else ""
        place = self._number, self._part, head.process
        wall = one.wall_ns or (self._written_ns if one.line.number == 1 else 0)
        self._stacks.begin(Reading(text, one.process, *place, one.line, wall, reason), head.rank)
        if kind == "stack":
            self._stacks.take(head)
        if kind == "fatal" and reason not in _FATAL and reason not in _FOLLOWING:
            self._note_crash("Fatal Python error", reason, one)

    def _note_crash(self, kind: str, what: str, one: _Match) -> None:
        """A process that aborts itself, by what its interpreter or C library says."""
        times, said = (one.head.wall_ns, one.wall_ns), one.process.said
        crash = Thrown(kind, what, (), one.line, *times, uncaught=True)
        if said.thrown is None or not said.thrown.uncaught:
            said.thrown = crash
        if one.process.rank is None and one.process.local_rank < 0:
            self._crashes += [(self._part, crash)][: MAX_REMARKS - len(self._crashes)]
            self._of_nobody += 2  # the exit status of 1 is that of another process

    def _drop_traces(self) -> None:
        self._stacks.end_all()
        for process in self._traced:
            process.trace = None
        self._bare, self._traced = None, []


def _fatal_exit(stack: LoggedStack) -> LoggedExit | None:
    """How the process ended, if it says so. An abort follows from many things."""
    code = _FATAL.get(stack.reason)
    if code is None:
        return None
    return LoggedExit(code, "", stack.line, stack.wall_ns, own=True)


def _is_rank(rank: int | None) -> bool:
    return rank is None or 0 <= rank < MAX_RANKS


def _is_users(thrown: Thrown) -> bool:
    """Whether a training raised it, and not what starts one."""
    started = any("torch/distributed/run.py" in file for file, _, _ in thrown.frames)
    return thrown.kind not in LAUNCHERS and not started


def _signed(text: str | None) -> int | None:
    """A number as torch means it: -1 is often written as an unsigned one."""
    number = int(text) if text else None
    return None if number is None or number >= UNSIGNED or number < -1 else number


def _given_up(found: re.Match[str], group: str | None, line: LogLine, wall: int) -> GivenUp:
    sizes = _signed(found["numel_in"]), _signed(found["numel_out"])
    numel = (sizes[0], sizes[1]) if sizes[0] is not None and sizes[1] is not None else None
    ran = int(found["ran"] or found["timeout"])
    return GivenUp(_signed(found["number"]), found["op"], numel, ran, group, line, wall)


def _counters(found: re.Match[str], group: str, line: LogLine, wall: int) -> Counters:
    enqueued, completed = _signed(found["enqueued"]), _signed(found["completed"])
    return Counters(
        group, _signed(found["at"]),
        -1 if enqueued is None else enqueued, -1 if completed is None else completed, line, wall,
    )  # fmt: skip


def _wrapper_call(found: re.Match[str], which: str) -> WrapperCall:
    return WrapperCall(
        int(found[which]), int(found[f"{which}_number"] or 0), found[f"{which}_op"],
        found[f"{which}_shape"] or "", found[f"{which}_dtype"] or "",
    )  # fmt: skip
