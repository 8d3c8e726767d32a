"""The frame: everything that diagnosis, screens and exports read, immutable.

A new frame shares unchanged parts with the last one. Times named `*_ns` inside `wire` values are on
the sending host's monotonic clock; `Rank.age_s` turns them into ages at the
frame's `now_ns`, which is the operator's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple

from frtop_probe import wire
from frtop_probe.wire.values import Real
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.naming import GroupKey, group_label
from frtop_tui.job.statistics import JobStatistics

RankState = Literal[
    "moving",  # its numbers advance; for a live rank, nothing contradicts that
    "blocked",  # waits in an op
    "late",  # others wait for it, or nobody is in an op
    "silent",  # alive, but its heartbeat stopped: something holds the GIL
    "stopped",  # its process is stopped (SIGSTOP, a debugger), and its heartbeat
    "dead",  # its process ended abnormally
    "done",  # left cleanly
    "unreachable",  # its host or agent cannot be reached: last known state
    "starting",  # no group yet
    "unknown",  # from a file that does not show whether it moves
]

Health = Literal[
    "connecting",  # no report yet
    "empty",  # agents answer, but there is no job
    "starting",
    "healthy",
    "waiting",  # ranks have long been waiting, or outside of any op; not decided yet
    "unreachable",  # no rank that may live is reporting: last known state
    "held up",  # ranks wait for one that makes progress
    "slow",  # all make progress, but lose time to one that is repeatedly late
    "hung",
    "dead",
    "mismatch",
    "undecided",
    "ended",
]

HostState = Literal["connecting", "reporting", "silent", "failed"]
AgentKey = Literal["", "own", "other"]
"""Whose key an agent has proved to have; "" through a shell, or before the proof."""


class Problem(Struct, frozen=True, gc=False):
    """What keeps frtop from showing or doing something, and what to type next."""

    text: str
    next: str = ""
    internal: bool = False  # frtop itself failed: no more frames follow

    @classmethod
    def parse(cls, line: str) -> Problem:
        """Splits a line at its first semicolon: the next step follows it."""
        text, _, step = line.partition("; ")
        return cls(text, step)

    def __str__(self) -> str:
        return f"{self.text}; {self.next}" if self.next else self.text


class Evidence(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the source of a rank's facts can know; this limits what a detector may conclude.

    A new source sets flags; detectors ask for a flag and never for a source.

    | flag                 | a detector may                        | without it                  |
    |----------------------|---------------------------------------|-----------------------------|
    | `has_numbers`        | compare how far ranks are in a group  | nobody lags, nor is healthy |
    | `has_completion`     | tell how far devices are              | only `tracked` ops complete |
    | `has_ages`           | measure waits up to now; ask again    | waits have no age           |
    | `has_process`        | tell causes and progress from `/proc` | both take stacks            |
    | `has_stacks`         | show where threads are                | only `/proc` shows that     |
    | `has_every_op`       | take what is not pending for over     | stacks show messages, looks |
    |                      |                                       | show whether a rank moves   |
    | `has_signatures`     | trust ops that all have entered       | they may differ: undecided  |
    | `has_exceptions`     | tell a root by its own error          | status 1 is anybody's       |
    | `has_transports`     | blame a wait of unknown kind          | it may be for other ranks   |
    | `has_one_naming`     | compare past ops with pending ones    | each only with its like     |

    The defaults are those of the recorder, whose rings the rank's agent reads.
    """

    has_numbers: bool = True
    has_completion: bool = False
    has_ages: bool = True
    has_process: bool = True
    has_stacks: bool = True
    has_every_op: bool = True
    has_signatures: bool = True
    has_exceptions: bool = True
    has_transports: bool = True
    has_one_naming: bool = True


RECORDER: Final = Evidence()
UNPREPARED: Final = Evidence(
    has_every_op=False, has_signatures=False, has_exceptions=False, has_one_naming=False
)
"""A process without a recorder: pending ops come from c10d state, past ones from torch's own
recorder, which names some kinds differently and knows neither reduce ops nor roots."""
UNPREPARED_STACKS: Final = Evidence(
    has_numbers=False,
    has_every_op=False,
    has_signatures=False,
    has_exceptions=False,
    has_one_naming=False,
)
"""The same if the c10d state cannot be read."""
DUMPS: Final = Evidence(
    has_completion=True, has_ages=False, has_process=False, has_stacks=False, has_exceptions=False
)
"""Flight Recorder dumps: they contain only the ops of a process."""
STACKS: Final = Evidence(
    has_numbers=False,
    has_ages=False,
    has_every_op=False,
    has_signatures=False,
    has_exceptions=False,
)
"""A file of stacks, and nothing else."""
LOGS: Final = Evidence(has_ages=False, has_process=False, has_stacks=False, has_every_op=False)
"""The output of a job: what it says of ops, exceptions and ends of processes."""


class Rank(Struct, frozen=True, gc=False):
    """What is known about one rank.

    Its host's times plus `clock_ns` are on the operator's clock. Abstract: a rank is an
    `ObservedRank` before the diagnosis and a `JudgedRank` after it.
    """

    rank: int
    host: str
    key: int
    identity: wire.Identity
    state: RankState
    state_since_ns: int  # operator's clock
    reported_ns: int  # operator's clock: when its agent last mentioned it
    clock_ns: int
    status: wire.RankStatus | None = None
    groups: Mapping[int, wire.Group] = field(default_factory=dict)
    group_progress: Mapping[int, wire.GroupProgress] = field(default_factory=dict)
    pending: tuple[wire.Op, ...] = ()
    pending_more: int = 0
    blocked_on: wire.Op | None = None  # only from dumps: the op that keeps the rank
    process: wire.Process | None = None
    exception: wire.UncaughtException | None = None
    exit_info: wire.ExitInfo | None = None
    snapshot: wire.Snapshot | None = None
    prior_snapshot: wire.Snapshot | None = None  # at least 2 s older, to compare
    notes: tuple[str, ...] = ()
    stacks_taken_ns: int = 0  # host's clock: when the stacks in `snapshot` were taken
    tensors: wire.TensorsResponse | None = None  # the last response of the rank itself
    evidence: Evidence = RECORDER
    transports: tuple[wire.Transport, ...] = ()  # bypass c10d: what it issues there is not known
    native: wire.NativeStacksResponse | None = None  # the last ones that a person requested
    gauges: wire.Gauges | None = None  # those of the devices it uses, if known
    messages: tuple[wire.Messages, ...] = ()  # for groups in which it has sent nothing since
    reported: tuple[wire.ReportedValues, ...] = ()  # by the job itself
    output: wire.OutputResponse | None = None  # the last lines in its files, if anybody asked

    @property
    def last_ops(self) -> tuple[wire.Op, ...]:
        """The last op of each group, if known."""
        return tuple(one.last for one in self.group_progress.values() if one.last is not None)

    def age_s(self, host_ns: int, now_ns: int) -> float:
        """Seconds between a time of this rank's host and the operator's `now_ns`."""
        return max(0.0, (now_ns - self.clock_ns - host_ns) / 1e9)

    def until_ns(self, now_ns: int) -> int:
        """The end of its process, else `now_ns`: nothing of it lasts longer (operator's clock)."""
        return now_ns if self.exit_info is None else self.exit_info.at_ns + self.clock_ns

    def state_age_s(self, now_ns: int) -> float | None:
        """How long it has been in its state; None if unknown, as in dumps."""
        if not self.state_since_ns or not self.evidence.has_ages:
            return None
        return max(0.0, (now_ns - self.state_since_ns) / 1e9)

    def heartbeat_age_s(self, now_ns: int) -> float | None:
        """Age of the recorder's last heartbeat; None without one."""
        heartbeat_ns = self.status.heartbeat_ns if self.status is not None else 0
        return self.age_s(heartbeat_ns, now_ns) if heartbeat_ns else None

    @property
    def main_stack(self) -> wire.ThreadStack | None:
        """Main thread of the last dump, if there is one."""
        threads = self.threads
        return self.main_in(threads) if threads else None

    @property
    def prior_stack(self) -> wire.ThreadStack | None:
        """Main thread in the look before."""
        threads = self.prior_threads
        return self.main_in(threads) if threads else None

    @property
    def prior_threads(self) -> tuple[wire.ThreadStack, ...]:
        """The rank's own threads in the look before."""
        return self._threads_in(self.prior_snapshot)

    @property
    def threads(self) -> tuple[wire.ThreadStack, ...]:
        """The rank's own threads in the last dump; empty if there is none."""
        return self._threads_in(self.snapshot)

    def _threads_in(self, snapshot: wire.Snapshot | None) -> tuple[wire.ThreadStack, ...]:
        if snapshot is not None:
            for dump in snapshot.dumps:
                if dump.pid == self.identity.pid:
                    return dump.threads
        return ()

    def main_in(self, threads: tuple[wire.ThreadStack, ...]) -> wire.ThreadStack:
        """The main thread among the rank's own; the first if it is not known."""
        main = self.identity.main_ident
        for thread in threads:
            if thread.ident == main:
                return thread
        return threads[0]


class ObservedRank(Rank, frozen=True):
    """A rank by its own evidence, regardless of other ranks: the input of the diagnosis."""


_STATE: Final = Rank.__struct_fields__.index("state")
_BLOCKED: Final = Rank.__struct_fields__.index("blocked_on")
OneRank = TypeVar("OneRank", bound=Rank)


def as_rank(
    kind: type[OneRank],
    rank: Rank,
    state: RankState | None = None,
    since_ns: int = 0,
    blocked_on: wire.Op | None = None,
) -> OneRank:
    """Converts `rank` to `kind`, with another state if one is given."""
    # Three times as fast as attribute by attribute: this runs for every rank in every frame.
    fields = astuple(rank)
    if state is None:
        return kind(*fields)
    changed = [*fields]
    changed[_STATE : _STATE + 2] = state, since_ns
    changed[_BLOCKED] = blocked_on
    return kind(*changed)


class GroupView(Struct, frozen=True, gc=False):
    """A group across its ranks. `number` is the furthest collective that any rank issued."""

    key: GroupKey
    description: str
    backend: str
    members: tuple[int, ...]
    number: int
    last: wire.Op | None  # an op at `number`, if any rank sent it
    late: tuple[int, ...] = ()  # members that have not issued `number`
    waiting: tuple[int, ...] = ()  # members blocked in an op of this group
    exact: bool = True
    issued_ns: int = 0  # operator's clock: when a rank last issued an op, 0 if never

    @property
    def label(self) -> str:
        """`dp:0`, `default_pg`, or `group 3` for a group without a description."""
        return group_label(self.key.name, self.description)

    def idle_s(self, now_ns: int) -> float:
        """Seconds since any rank last issued an op; 0.0 if none has."""
        return max(0.0, (now_ns - self.issued_ns) / 1e9) if self.issued_ns else 0.0


class HostView(Struct, frozen=True, gc=False):
    """A host that the operator named or that was found, and the connection to its agent."""

    name: str
    state: HostState
    problem: Problem | None = None
    reported_ns: int = 0
    lost_updates: int = 0
    version: str = ""
    notes: tuple[str, ...] = ()
    clock_ns: int = 0  # its wall clock plus this is the operator's
    clock_error_ns: int | None = None  # bound of that offset's error; None: not measured
    may_act: bool = True  # False: our key may only read there
    agent_key: AgentKey = ""
    address: str = ""  # where its agent is, "" when not known yet
    progress: str = ""  # progress of a slow connection
    gauges: HostGauges | None = None  # None: its agent has sent none
    minutes: HostGauges | None = None  # means of each minute of a recorded run, as history
    monotonic_ns: int = 0  # its monotonic clock plus this is the operator's
    as_of_ns: int = 0  # operator's clock: when it sent what is known of it
    none_found: bool = False  # its agent has searched, and found no rank but those it reports
    searching: bool = False  # its agent's first search, or its first looks, are not over


class Writing(Struct, frozen=True):
    """Progress of a file that is being written.

    `done` and `total` count ranks for a capture or an export, bytes for tensors. `automatic`: frtop
    captured a confirmed hang without being asked.
    """

    kind: Literal["capture", "tensors", "export"]
    state: Literal["collecting", "writing", "written", "failed"]
    path: str
    done: int = 0
    total: int = 0
    size: int = 0  # bytes on disk, once written
    problem: Problem | None = None  # what it lacks, or why it failed
    automatic: bool = False
    at_ns: int = 0  # operator's clock: when this state began


class Recorded(Struct, frozen=True):
    """Origin of a frame that is not live; `wall_ns` is when it was recorded."""

    kind: str  # "capture", "black box"
    path: str
    wall_ns: int
    by: str = ""  # user@host
    version: str = ""
    notes: tuple[str, ...] = ()  # files that could not be read, what is missing
    filled: bool = False  # dumps or stacks found beside it were added
    # By rank, from its dump; `pending` lacks ops that were issued just before the dump.
    unfinished: Mapping[int, Rank] = field(default_factory=dict)


class CoverageNote(Struct, frozen=True):
    """What is missing from a frame. `kind` is for code, `text` for people."""

    text: str
    kind: Literal["never reported", "last known", ""] = (
        ""  # the first two concern `unreachable` ranks
    )


class Coverage(Struct, frozen=True):
    """How much of the job was seen."""

    expected: int = 0
    reporting: int = 0
    unreachable: tuple[int, ...] = ()
    lost_updates: int = 0
    notes: tuple[CoverageNote, ...] = ()
    unprepared: tuple[int, ...] = ()  # without a recorder: seen from outside only
    unreadable: tuple[int, ...] = ()  # those of them whose recorder exists but cannot be read

    @property
    def complete(self) -> bool:
        return self.reporting >= self.expected > 0 and not self.lost_updates


class DivergenceHint(Struct, frozen=True):
    """Among ops `first` to `last` of a group, the members' checksums differ.

    This is no verdict: some differences are legal, and only the ops themselves show which. `sides`
    are ranks with equal checksums, the largest side first. With `pairs` all checksums are equal,
    but sends and receives do not pair.
    """

    id: int
    group: wire.Group
    first: int
    last: int
    sides: tuple[tuple[int, ...], ...]
    since_ns: int  # operator's clock: when we noticed it
    pairs: bool = False
    complete: bool = False  # all members have reported
    ops: Mapping[int, tuple[wire.Op, ...]] = field(default_factory=dict)
    """By rank, for ranks that were asked and still had them."""


class JobActivity(Struct, frozen=True):
    """When a job began and when anything last moved in it, without a diagnosis.

    `quiet_s` and `waits_s` are None if no live rank is reporting, or if unknown.
    """

    job: wire.Job
    age_s: Real
    quiet_s: Real | None = None  # since any rank last issued an op or began a step
    waits_s: Real | None = None  # how long the oldest op with a waiting rank has been pending
    ended_s: Real | None = None  # since its last rank ended
    ranks: int = 0  # different ones that reported
    unprepared: int = 0  # of them without a recorder
    hosts: int = 0
    notes: tuple[str, ...] = ()  # of its ranks, except for the shown job
    dated: bool = True  # False: the last op predates the first look, so `quiet_s` is a lower bound


class BaseFrame(Struct, frozen=True):
    """One moment of one job. Abstract: an `ObservedFrame` or a judged `Frame`."""

    now_ns: int
    wall_ns: int
    health: Health = "connecting"
    since_ns: int = 0  # operator's clock: when this health began
    job: wire.Job | None = None
    other_jobs: tuple[wire.Job, ...] = ()
    up_s: Real = 0.0
    hosts: tuple[HostView, ...] = ()
    ranks: Mapping[int, Rank] = field(default_factory=dict)
    groups: tuple[GroupView, ...] = ()
    coverage: Coverage = Coverage()
    problem: Problem | None = None  # what keeps frtop from showing anything
    notes: tuple[str, ...] = ()  # worth knowing, but needs no action
    running_jobs: tuple[wire.Job, ...] = ()  # those of `other_jobs` that live
    recorded: Recorded | None = None  # None: live
    read_only: str = ""  # why we may not ask the ranks anything, "" if we may
    activities: tuple[JobActivity, ...] = ()  # of `job` and `other_jobs`
    divergence_hints: tuple[DivergenceHint, ...] = ()  # of the last seconds
    statistics: JobStatistics | None = None  # the newest ones, if anybody asked for them
    shown_statistics: JobStatistics | None = None  # those of a screen's window, if it differs

    @property
    def screen_statistics(self) -> JobStatistics | None:
        return self.shown_statistics or self.statistics


class ObservedFrame(BaseFrame, frozen=True):
    """The evidence of one moment: the input of the diagnosis."""

    ranks: Mapping[int, ObservedRank] = field(default_factory=dict)
