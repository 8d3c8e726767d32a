"""The frame: everything the screens, the diagnosis and the exports see, frozen.

Values are plain and shared; a new frame reuses what has not changed. Times named
`*_ns` inside `wire` values are the sending host's monotonic clock; `RankView.age_s`
turns them into ages at the frame's `now_ns`, which is the operator's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from frtop_probe import wire
from frtop_tui.job.parting import Parting

Posture = Literal[
    "moving",  # its numbers advance, or nothing says otherwise
    "blocked",  # waits in an op
    "late",  # others wait for it, or all are kept outside of any op
    "silent",  # alive, but its beat stopped: something holds the GIL
    "stopped",  # its process is stopped (SIGSTOP, a debugger); its beat with it
    "dead",  # its process ended, and not by itself in an orderly way
    "done",  # left cleanly
    "unheard",  # its host or agent cannot be reached: last known state
    "starting",  # no group yet
]

Health = Literal[
    "connecting",  # nothing heard yet
    "empty",  # agents answer, no job there
    "starting",
    "healthy",
    "waiting",  # somebody waits, or nobody is in an op, for long; what to make of it is open yet
    "unheard",  # none of those that may still live is heard: last known state
    "held up",  # somebody is waited for, and makes progress
    "hung",
    "dead",
    "diverged",
    "undecided",
    "ended",
]

VerdictKind = Literal["dead", "mismatch", "cycle", "not_entered", "stuck", "slow", "undecided"]
Confidence = Literal["suspect", "confirmed"]
Progress = Literal["none", "active", "unknown"]
Layer = Literal["software", "data", "device", "network", "unknown"]
HostState = Literal["connecting", "heard", "silent", "failed"]


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group across ranks: its number or name alone repeats with other members."""

    name: str
    ranks: str  # folded
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank. `clock_ns` added to its host's times gives the operator's clock."""

    rank: int
    host: str
    key: int
    identity: wire.Identity
    posture: Posture
    posture_since_ns: int  # operator's clock
    heard_ns: int  # operator's clock: last time its agent spoke of it
    clock_ns: int
    present: wire.Present | None = None
    groups: Mapping[int, wire.Group] = field(default_factory=dict)
    fronts: Mapping[int, wire.Front] = field(default_factory=dict)
    pending: tuple[wire.Op, ...] = ()
    pending_more: int = 0
    blocked_on: wire.Op | None = None  # told beforehand where there is only a dump
    process: wire.Process | None = None
    raised: wire.Raised | None = None
    ending: wire.Ending | None = None
    look: wire.Look | None = None
    prior_look: wire.Look | None = None  # an earlier one, at least 2 s before, to compare
    notes: tuple[str, ...] = ()
    stacks_ns: int = 0  # host's clock: when the stacks in `look` were taken
    tensors: wire.TensorsAnswer | None = None  # the last answer of the rank itself

    def age_s(self, host_ns: int, now_ns: int) -> float:
        """Seconds between a time of this rank's host and the operator's `now_ns`."""
        return max(0.0, (now_ns - self.clock_ns - host_ns) / 1e9)

    def judged(self, posture: Posture, since_ns: int, blocked_on: wire.Op | None) -> RankView:
        """The same rank in the light of the others; written out, as `replace` is slow."""
        return RankView(
            self.rank,
            self.host,
            self.key,
            self.identity,
            posture,
            since_ns,
            self.heard_ns,
            self.clock_ns,
            self.present,
            self.groups,
            self.fronts,
            self.pending,
            self.pending_more,
            blocked_on,
            self.process,
            self.raised,
            self.ending,
            self.look,
            self.prior_look,
            self.notes,
            self.stacks_ns,
            self.tensors,
        )

    @property
    def dumped(self) -> bool:
        """Known from what others wrote about its ops: nothing is known of its process."""
        return not self.identity.pid

    @property
    def main_stack(self) -> wire.ThreadStack | None:
        """Main thread of the last dump, if there is one."""
        return self._main_in(self.look)

    @property
    def prior_stack(self) -> wire.ThreadStack | None:
        """Main thread in the look before."""
        return self._main_in(self.prior_look)

    @property
    def threads(self) -> tuple[wire.ThreadStack, ...]:
        """The rank's own threads in the last dump; empty if there is none."""
        return self._threads_in(self.look)

    def _threads_in(self, look: wire.Look | None) -> tuple[wire.ThreadStack, ...]:
        dumps = look.dumps if look is not None else ()
        return next((d.threads for d in dumps if d.pid == self.identity.pid), ())

    def _main_in(self, look: wire.Look | None) -> wire.ThreadStack | None:
        threads, main = self._threads_in(look), self.identity.main_ident
        return next((t for t in threads if t.ident == main), threads[0]) if threads else None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group across its ranks. `number` is the furthest collective anybody issued."""

    key: GroupKey
    description: str
    backend: str
    members: tuple[int, ...]
    number: int
    last: wire.Op | None  # an op at `number`, if anybody told
    late: tuple[int, ...] = ()  # members that have not issued `number`
    waiting: tuple[int, ...] = ()  # members blocked in an op of this group
    exact: bool = True
    issued_ns: int = 0  # operator's clock: the last op issued by anybody, 0 for none

    def judged(self, late: tuple[int, ...], waiting: tuple[int, ...]) -> GroupView:
        """The same group in the light of the others; written out, as `replace` is slow."""
        return GroupView(
            self.key,
            self.description,
            self.backend,
            self.members,
            self.number,
            self.last,
            late,
            waiting,
            self.exact,
            self.issued_ns,
        )

    def idle_s(self, now_ns: int) -> float:
        """Seconds since the last op issued by anybody; 0.0 while there is none."""
        return max(0.0, (now_ns - self.issued_ns) / 1e9) if self.issued_ns else 0.0


@dataclass(frozen=True, slots=True)
class HostView:
    """One address the operator named. `problem` is a sentence with the next step."""

    name: str
    state: HostState
    problem: str = ""
    heard_ns: int = 0
    lost_updates: int = 0
    version: str = ""
    notes: tuple[str, ...] = ()
    clock_ns: int = 0  # added to its wall clock it gives the operator's
    clock_error_ns: int | None = None  # that may be wrong by so much; None: not measured
    may_act: bool = True  # false: our key may only read there
    address: str = ""  # where its agent is, "" when not known yet


@dataclass(frozen=True, slots=True)
class Writing:
    """A file that the operator asked for, or that writes itself: how far it has come.

    `done` of `total` are ranks for a capture, bytes for tensors. `automatic` says that
    nobody asked: a confirmed hang is captured by itself.
    """

    kind: Literal["capture", "tensors"]
    state: Literal["collecting", "writing", "written", "failed"]
    path: str
    done: int = 0
    total: int = 0
    size: int = 0  # bytes on disk, when written
    problem: str = ""  # what is missing in it, or why it failed, with the next step
    automatic: bool = False
    at_ns: int = 0  # operator's clock: since when it has been in this state


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a frame comes from that is not live. `wall_ns` is when it was recorded."""

    kind: str  # "capture", "black box"
    path: str
    wall_ns: int
    by: str = ""  # user@host
    version: str = ""
    notes: tuple[str, ...] = ()  # files that could not be read, what is missing
    filled: bool = False  # dumps or stacks beside it told more than it says itself


@dataclass(frozen=True, slots=True)
class Why:
    """Cause of a rank's absence. `cause` is a stable word, `text` the sentence."""

    cause: str  # dataloader, file_io, gil, stopped, sleeping, lock, computing, compiling,
    # exited, exception, signal, oom, interrupted, idle, other_group, out_of_loop,
    # never_joined, unknown, ...
    layer: Layer
    text: str


@dataclass(frozen=True, slots=True)
class OpName:
    """The op a verdict is about; `number` None when it cannot be compared."""

    kind: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who is waited for, why, and whether it is hung. Blames as few as can be justified."""

    kind: VerdictKind
    confidence: Confidence
    progress: Progress
    culprits: tuple[int, ...]
    headline: str  # one line: who and what
    why: Why
    next: str  # what to do, fitting the cause
    victims: str = ""  # folded
    parties: tuple[tuple[int, ...], ...] = ()
    group: GroupKey | None = None
    op: OpName | None = None
    since_ns: int = 0  # operator's clock: since when it has been so
    left_s: float | None = None  # until the op's own timeout
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be seen


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the job was seen; partial is never shown as complete."""

    expected: int = 0
    heard: int = 0
    unheard: tuple[int, ...] = ()
    lost_updates: int = 0
    notes: tuple[str, ...] = ()  # "below c10d: not seen", "1,204 ops lost on rank 6"

    @property
    def complete(self) -> bool:
        return self.heard >= self.expected > 0 and not self.lost_updates


@dataclass(frozen=True, slots=True)
class JobPulse:
    """When a job began and when anything last moved in it: seen without judging it.

    `quiet_s` and `waits_s` are None where nobody living is heard, or nothing is known.
    """

    job: wire.Job
    age_s: float
    quiet_s: float | None = None  # since anybody last issued an op or began a step
    waits_s: float | None = None  # how long the oldest op that anybody waits in is pending


_SINCE_THE_END: Final = frozenset({"dead", "ended", "unheard"})
"""Healths of which the age is that of the end itself."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment of one job."""

    now_ns: int
    wall_ns: int
    health: Health = "connecting"
    since_ns: int = 0  # operator's clock: since when this health
    job: wire.Job | None = None
    other_jobs: tuple[wire.Job, ...] = ()
    up_s: float = 0.0
    hosts: tuple[HostView, ...] = ()
    ranks: Mapping[int, RankView] = field(default_factory=dict)
    groups: tuple[GroupView, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    coverage: Coverage = Coverage()
    problem: str = ""  # what keeps us from seeing anything, with the next step
    # Worth knowing, nothing to act on: a death nobody waits for; who waits when "waiting".
    notes: tuple[str, ...] = ()
    running_jobs: tuple[wire.Job, ...] = ()  # those of `other_jobs` that live
    writings: tuple[Writing, ...] = ()  # the last of each kind
    recorded: Recorded | None = None  # None: live
    read_only: str = ""  # why nothing may be asked of the ranks, "" if it may
    pulses: tuple[JobPulse, ...] = ()  # of `job` and `other_jobs`
    partings: tuple[Parting, ...] = ()  # hints that ops differ, of the last seconds

    @property
    def until_ns(self) -> int:
        """Up to when what is said has lasted: now, for a wait not beyond its ranks' end."""
        if self.health in _SINCE_THE_END or not self.ranks:
            return self.now_ns
        ends = 0
        for view in self.ranks.values():
            if view.posture not in ("dead", "done"):
                return self.now_ns
            ends = max(ends, view.posture_since_ns)
        return min(self.now_ns, ends)
