"""What the lines of a log say, by rank: every fact with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.files.logs.nccl import NcclLines
from frtop_tui.files.logs.scan import LogLine
from frtop_tui.files.logs.stacks import LoggedStack

MAX_OF_RANK: Final = 64
"""Timeouts, and counters, of one rank."""
DEFAULT: Final = "default_pg"
JOIN: Final = "init_process_group"
LAUNCHERS: Final = frozenset({"ChildFailedError", "CalledProcessError", "ProcessRaisedException"})
"""Exceptions of programs that started ranks: they only say that one of these failed."""


class GivenUp(NamedTuple):
    """An op that torch's watchdog gave up; what torch did not say is None, "" or 0."""

    number: int | None
    op: str
    numel: tuple[int, int] | None
    ran_ms: int
    group: str | None
    line: LogLine
    wall_ns: int
    frames: tuple[wire.TraceFrame, ...] = ()  # where it was issued, the innermost first
    ended: bool = True  # its process; else it was seen waiting there


class Counters(NamedTuple):
    """How far a rank was in a group: `at` is the op that did not finish; -1: none yet."""

    group: str
    at: int | None
    enqueued: int
    completed: int
    line: LogLine
    wall_ns: int


class Thrown(NamedTuple):
    """An exception; frames as (file, line, function), the innermost first.

    `wall_ns` is 0 if the line has no time; `clock_ns` is the last time in the file before it.
    `uncaught`: torch's own hook or its watchdog printed it. Others may have been caught, and only
    logged.
    """

    kind: str
    text: str
    frames: tuple[tuple[str, int, str], ...]
    line: LogLine
    wall_ns: int
    clock_ns: int
    uncaught: bool


class LoggedExit(NamedTuple):
    """How a process ended, by a launcher's line. A negative `code` is a signal.

    `own`: the process wrote the line itself, when it got the signal. `closed`: whether the launcher
    ended it; None: not known.
    """

    code: int
    host: str
    line: LogLine
    wall_ns: int
    own: bool = False
    closed: bool | None = None


class WrapperCall(NamedTuple):
    """A call as torch's `ProcessGroupWrapper` writes it; the rank is that within the group."""

    rank: int
    number: int
    op: str
    shape: str
    dtype: str


class Disagreement(NamedTuple):
    """Two ranks in different ops, as `ProcessGroupWrapper` found; `by` whom of the job's ranks."""

    one: WrapperCall
    other: WrapperCall
    by: int | None
    line: LogLine


class MissedBarrier(NamedTuple):
    """Ranks that did not come to a monitored barrier; `every`: no others are missing.

    Or to another `op` that has to be called by all.
    """

    missing: tuple[int, ...]
    every: bool
    by: int | None
    line: LogLine
    op: str = "monitored_barrier"


@dataclass(slots=True)
class RankLines:
    """Everything that one rank said, or that was said of it."""

    given_up: dict[tuple[int | None, str], GivenUp] = field(default_factory=dict)
    counters: dict[tuple[str, int | None], Counters] = field(default_factory=dict)
    group_ranks: dict[str, int] = field(default_factory=dict)
    thrown: Thrown | None = None
    exit: LoggedExit | None = None
    stack: LoggedStack | None = None  # the last one

    @property
    def spoke(self) -> bool:
        """Whether it said anything itself."""
        return bool(self.given_up or self.counters or self.thrown)


@dataclass(slots=True)
class LogFacts:
    """What all files together say."""

    ranks: dict[int, RankLines] = field(default_factory=dict)
    unknown: list[Thrown] = field(default_factory=list)  # exceptions of unknown ranks
    stacks: list[LoggedStack] = field(default_factory=list)  # of unknown ranks
    stacks_left_out: int = 0
    remarks: list[LogLine] = field(default_factory=list)  # of hosts, libraries and launchers
    nccl: NcclLines = field(default_factory=NcclLines)
    meanings: dict[LogLine, str] = field(default_factory=dict)  # of remarks
    versions: dict[str, LogLine] = field(default_factory=dict)  # of NCCL: the first line of each
    disagreements: list[Disagreement] = field(default_factory=list)
    barriers: list[MissedBarrier] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # descriptions of groups
    by_torchrun: bool = False
    restarts: list[LogLine] = field(default_factory=list)
    repeats: bool = False  # Ray left out lines that others wrote, too
    spawned: LogLine | None = None  # a process of spawn ended, which is taken for a rank
    relative: bool = False  # some ranks may be those within a group
    global_ranks: bool | None = None  # whether ranks of wrappers and barriers are the job's
    lost_by_group_rank: int = 0  # processes whose rank stayed unknown
    world: int = 0
    first_ns: int = 0  # the first and the newest time in any line
    newest_ns: int = 0
    written_ns: int = 0  # when the last of the files was written

    def add_of_nobody(self, said: RankLines) -> None:
        """What a process said whose rank is not known."""
        self.lost_by_group_rank += bool(said.given_up)
        if said.thrown is not None and said.thrown.kind not in LAUNCHERS:
            self.unknown.append(said.thrown)

    @property
    def some(self) -> bool:
        return bool(
            self.ranks
            or self.unknown
            or self.remarks
            or self.disagreements
            or self.barriers
            or self.stacks
        )


def add_given_up(said: RankLines, new: GivenUp) -> None:
    """The same op is written several times; only some of these lines name its group."""
    key = (new.number, new.op)
    known = said.given_up.get(key)
    if known is None:
        if len(said.given_up) < MAX_OF_RANK:
            said.given_up[key] = new
    elif known.group is None and new.group is not None:
        said.given_up[key] = known._replace(group=new.group)


def add_counters(said: RankLines, new: Counters) -> None:
    """Of several lines, the furthest counts: only that one may be the last."""
    key = (new.group, new.at)
    known = said.counters.get(key)
    if known is None and len(said.counters) >= MAX_OF_RANK:
        return
    if known is None or new.enqueued >= known.enqueued:
        said.counters[key] = new


def merge(into: RankLines, more: RankLines) -> None:
    """Adds what the same rank said elsewhere."""
    for given_up in more.given_up.values():
        add_given_up(into, given_up)
    for counters in more.counters.values():
        add_counters(into, counters)
    into.group_ranks |= more.group_ranks
    if more.thrown is not None and (into.thrown is None or more.thrown.uncaught):
        into.thrown = more.thrown
    into.exit = more.exit or into.exit


def join(said: RankLines) -> None:
    """Finds what lines do not say: groups of ops by counters at the same number, and reversely."""
    for key, one in said.given_up.items():
        if one.group is None and one.number is not None:
            groups = {c.group for c in said.counters.values() if c.at == one.number}
            if len(groups) == 1:
                said.given_up[key] = one._replace(group=groups.pop())
    known = {(one.group, one.number) for one in said.given_up.values()}
    for counters in said.counters.values():
        at = counters.at
        if at is not None and not {(counters.group, at), (None, at)} & known:
            rest = 0, counters.group, counters.line, counters.wall_ns
            add_given_up(said, GivenUp(at, "", None, *rest))
