"""What the diagnosis says: verdicts, and ranks in the light of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

from frtop_probe import wire
from frtop_probe.wire.values import Real
from frtop_tui.diagnosis.causes import CAUSES, Cause, Layer
from frtop_tui.diagnosis.thresholds import SUSPECT_LASTS_NS
from frtop_tui.job.model import BaseFrame, ObservedFrame, ObservedRank, Rank, Writing, as_rank
from frtop_tui.job.naming import GroupKey


class BlockedRanks(Struct, frozen=True):
    """Ranks that are blocked in one op, and the sign that shows it."""

    ranks: str
    op: str
    sign: str
    seconds: float | None = None  # the longest wait; None where nothing tells
    dated: bool = True  # False: it was there at the first look, so `seconds` is a lower bound


class Edge(Struct, frozen=True):
    """Absent ranks of a node that are themselves blocked, and in which op.

    `node` is its place in the graph, -1 where it was cut off: ops of groups with one name are
    called alike.
    """

    ranks: str
    op: str
    node: int = -1


class NodeTrace(Struct, frozen=True):
    """One op that ranks wait in, and its members that have not entered it."""

    op: str
    waiting: str
    overdue: bool  # whether the wait is longer than it may take
    free: str = ""  # absent members that nothing blocks: the blame ends there
    ended: str = ""  # absent members whose process ended
    unobserved: str = ""  # absent members that nobody observes
    # absent members that are blocked elsewhere: the blame goes on there
    edges: tuple[Edge, ...] = ()
    seconds: float | None = None  # the longest wait; None where nothing tells
    # where all members have entered, what is known of the other half of a send or receive, and that
    # a stack does not tell who has to enter its call
    open: str = ""
    # `free` is the only rank that is in no op: nothing else shows who is absent
    by_elimination: bool = False


class LeftOut(Struct, frozen=True):
    """Absent ranks that are not blamed, and the rule that leaves them out."""

    ranks: str
    rule: str


class FindingTrace(Struct, frozen=True):
    """One finding, what it explains, whom it leaves out, and why it is confirmed or not."""

    kind: str
    cause: str
    progress: str
    culprits: str
    victims: str
    confirmation: str
    explains: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class Trace(Struct, frozen=True):
    """The stages of one judgement. `more` counts what was cut from each list."""

    blocked: tuple[BlockedRanks, ...] = ()
    graph: tuple[NodeTrace, ...] = ()
    findings: tuple[FindingTrace, ...] = ()
    more_blocked: int = 0
    more_nodes: int = 0


VerdictKind = Literal["dead", "mismatch", "deadlock", "not_entered", "stuck", "slow", "undecided"]
Confidence = Literal["suspect", "confirmed"]
Progress = Literal["none", "active", "unknown"]


class Why(Struct, frozen=True):
    """Cause of a rank's absence, slowness or end, and the sentence about it."""

    cause: Cause
    layer: Layer
    text: str

    @classmethod
    def of(cls, cause: Cause, text: str = "", layer: Layer | None = None) -> Why:
        """With the usual sentence and layer of `cause`, where no other is given."""
        usual = CAUSES[cause]
        return cls(cause, layer or usual.layer, text or usual.sentence)


class OpName(Struct, frozen=True):
    """The op a verdict is about; `number` None when it cannot be compared."""

    kind: str
    number: int | None = None


class Slowness(Struct, frozen=True):
    """How slow somebody is, and what that costs the others.

    Times are in ns. With `at_least` it may have begun before anything of it was seen.
    """

    late: int  # sampled ops that were late, or long
    sampled: int  # of so many
    late_ns: int  # by how much: the median of these
    error_ns: int  # by how much clocks of hosts may make that wrong
    share: Real  # of the time of all who wait, that they lose
    waiting: int  # how many wait
    lost_ns: int  # the time that all who wait have lost together since then
    step_ns: int | None = None  # how long a step takes; None where steps are not recorded
    on_gpus: bool = False  # whether those who wait keep a GPU each
    at_least: bool = False
    most_share: Real = 0.0  # where `share` is a lower bound, as few ops were sampled; else 0


class Verdict(Struct, frozen=True):
    """Who is waited for, why, and whether it is hung. Blames as few as can be justified."""

    kind: VerdictKind
    confidence: Confidence
    progress: Progress
    culprits: tuple[int, ...]
    headline: str  # one line: who and what
    why: Why
    next: str  # what to do, fitting the cause
    victims: frozenset[int] = frozenset()
    parties: tuple[tuple[int, ...], ...] = ()
    group: GroupKey | None = None
    op: OpName | None = None
    since_ns: int = 0  # operator's clock: since when it has been so
    left_s: Real | None = None  # until the op's own timeout
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be seen
    slow: Slowness | None = None  # of a verdict of the kind "slow"
    issuer: wire.Issuer | None = None  # of the op, where modules are recorded


class Sentences(Struct, frozen=True):
    """`head` says who and what, `waiting` ends the headline with who waits, if that fits."""

    head: str
    why: Why
    next: str
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    waiting: str = ""

    @property
    def headline(self) -> str:
        return f"{self.head}; {self.waiting}" if self.waiting else self.head


class JudgedRank(Rank, frozen=True):
    """A rank in the light of the others: what the screens and the exports read.

    Its state may be "blocked" or "late"; `blocked_on` is what it is blocked in.
    """


BASE_FIELDS: Final = tuple(name for name in BaseFrame.__struct_fields__ if name != "ranks")
_SINCE_THE_END: Final = frozenset({"dead", "ended", "unreachable"})
"""Healths of which the age is that of the end itself."""


class Frame(BaseFrame, frozen=True):
    """One judged moment of one job: what is drawn, printed and captured."""

    ranks: Mapping[int, JudgedRank] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    writings: tuple[Writing, ...] = ()  # the last of each kind
    trace: Trace | None = None  # where it was asked for

    @property
    def awaits_cause(self) -> bool:
        """Whether looks that were asked for may tell why somebody is slow."""
        return any(one.kind == "slow" and one.why.cause == "unknown" for one in self.verdicts)

    @property
    def is_compared(self) -> bool:
        """Whether ranks were searched for a late one, and some seconds more tell no more of it."""
        found = self.statistics
        if found is None:
            return False
        begun = [one.arrivals[0].first_ns for one in found.groups if one.arrivals]
        return not begun or found.until_ns - min(begun) >= 2 * SUSPECT_LASTS_NS

    @property
    def until_ns(self) -> int:
        """Up to when what is said has lasted: now, for a wait not beyond its ranks' end."""
        if self.health in _SINCE_THE_END or not self.ranks:
            return self.now_ns
        endpoints = 0
        for view in self.ranks.values():
            if view.state not in ("dead", "done"):
                return self.now_ns
            endpoints = max(endpoints, view.state_since_ns)
        return min(self.now_ns, endpoints)


def unjudged(frame: ObservedFrame) -> Frame:
    """The same moment, of which there is nothing to say."""
    return judged_frame(frame, {n: as_rank(JudgedRank, rank) for n, rank in frame.ranks.items()})


def judged_frame(frame: ObservedFrame, ranks: Mapping[int, JudgedRank], **changes: object) -> Frame:
    """The same moment, with what the diagnosis `changes` in it."""
    known = {name: getattr(frame, name) for name in BASE_FIELDS}
    return Frame(ranks=ranks, **{**known, **changes})


def observed(frame: Frame) -> ObservedFrame:
    """The same moment without what the diagnosis said of it."""
    known = {name: getattr(frame, name) for name in BASE_FIELDS}
    ranks = {number: as_rank(ObservedRank, rank) for number, rank in frame.ranks.items()}
    return ObservedFrame(**{**known, "ranks": ranks, "notes": ()})
