"""What the diagnosis says: verdicts, and ranks judged together with the others."""

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
    seconds: float | None = None  # the longest wait; None if not known
    dated: bool = True  # False: it was there at the first look, so `seconds` is a lower bound


class Edge(Struct, frozen=True):
    """Absent ranks of a node that are themselves blocked, and the op that they are blocked in.

    `node` is that op's place in the graph, as its name may not be unique; -1 if it was cut off.
    """

    ranks: str
    op: str
    node: int = -1


class NodeTrace(Struct, frozen=True):
    """One op that ranks wait in, and its members that have not entered it."""

    op: str
    waiting: str
    overdue: bool  # whether the wait is unusually long
    free: str = ""  # absent members that nothing blocks: the blame ends there
    ended: str = ""  # absent members whose process ended
    unobserved: str = ""  # absent members that nobody observes
    edges: tuple[Edge, ...] = ()  # absent members that are blocked elsewhere
    seconds: float | None = None  # the longest wait; None if not known
    # if all members have entered: what is not known about a message's other half, or about the
    # ranks that have to make a call
    open: str = ""
    by_elimination: bool = False  # nothing but this shows it: `free` is the only rank in no op
    differ: tuple[Edge, ...] = ()  # members that made another call at its number, and that call


class LeftOut(Struct, frozen=True):
    """Absent ranks that are not blamed, and why."""

    ranks: str
    rule: str


class FindingTrace(Struct, frozen=True):
    """One finding: what it explains, which ranks it leaves out, why it is confirmed or not."""

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
        """With the usual sentence and layer of `cause`, unless others are given."""
        usual = CAUSES[cause]
        return cls(cause, layer or usual.layer, text or usual.sentence)


class OpName(Struct, frozen=True):
    """The op of a verdict; `number` is None if it cannot be compared."""

    kind: str
    number: int | None = None


class Slowness(Struct, frozen=True):
    """How slow a rank or link is, and what that costs the others.

    `at_least`: it may have begun before frtop saw it.
    """

    late: int  # how many of the `sampled` ops were late or long
    sampled: int
    late_ns: int  # by how much: the median
    error_ns: int  # how wrong the hosts' clocks may make that
    share: Real  # of their time that the waiting ranks lose
    waiting: int  # how many ranks wait
    lost_ns: int  # the time that all of them have lost together
    step_ns: int | None = None  # how long a step takes; None if steps are not recorded
    on_gpus: bool = False  # whether each waiting rank occupies a GPU
    at_least: bool = False
    most_share: Real = 0.0  # the upper bound, if `share` is a lower bound; else 0


class Verdict(Struct, frozen=True):
    """Which ranks are to blame, as few as can be justified, why, and whether the job hangs."""

    kind: VerdictKind
    confidence: Confidence
    progress: Progress
    culprits: tuple[int, ...]
    headline: str  # one line: which ranks, and what
    why: Why
    next: str  # what to do
    victims: frozenset[int] = frozenset()
    parties: tuple[tuple[int, ...], ...] = ()
    group: GroupKey | None = None
    op: OpName | None = None
    since_ns: int = 0  # operator's clock; 0 if not known
    left_s: Real | None = None  # until the op's own timeout
    evidence: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be seen
    slow: Slowness | None = None  # if the kind is "slow"
    issuer: wire.Issuer | None = None  # of the op, if modules are recorded

    @property
    def first_ranks(self) -> tuple[int, ...]:
        """The ranks to look at first: the culprits, or one of each party where none is known."""
        return self.culprits or tuple(party[0] for party in self.parties if party)


class Sentences(Struct, frozen=True):
    """The headline consists of `head` and `waiting`, which says which ranks wait."""

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
    """A rank judged together with the others: what screens and exports read.

    Its state may be "blocked" or "late"; `blocked_on` is the op that it is blocked in.
    """


BASE_FIELDS: Final = tuple(name for name in BaseFrame.__struct_fields__ if name != "ranks")
_SINCE_THE_END: Final = frozenset({"dead", "ended", "unreachable"})
"""Healths whose age is the age of the end itself."""


class Frame(BaseFrame, frozen=True):
    """One judged moment of one job: what is drawn, printed and captured."""

    ranks: Mapping[int, JudgedRank] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    writings: tuple[Writing, ...] = ()  # the last of each kind
    trace: Trace | None = None  # on request

    @property
    def awaits_cause(self) -> bool:
        """Whether pending looks may show why a rank is slow."""
        return any(one.kind == "slow" and one.why.cause == "unknown" for one in self.verdicts)

    @property
    def is_compared(self) -> bool:
        """Whether ranks were searched for stragglers, for long enough to find one."""
        found = self.statistics
        if found is None:
            return False
        begun = [one.arrivals[0].first_ns for one in found.groups if one.arrivals]
        return not begun or found.until_ns - min(begun) >= 2 * SUSPECT_LASTS_NS

    @property
    def is_over(self) -> bool:
        """Whether all ranks have ended, and the health is that of the time before."""
        ended = all(view.state in ("dead", "done") for view in self.ranks.values())
        return bool(self.ranks) and ended and self.health not in _SINCE_THE_END

    @property
    def until_ns(self) -> int:
        """When the health was last seen to hold: now, or when the last rank ended."""
        if not self.is_over:
            return self.now_ns
        return min(self.now_ns, max(view.state_since_ns for view in self.ranks.values()))


def unjudged(frame: ObservedFrame) -> Frame:
    """The same moment, without a judgement."""
    return judged_frame(frame, {n: as_rank(JudgedRank, rank) for n, rank in frame.ranks.items()})


def judged_frame(frame: ObservedFrame, ranks: Mapping[int, JudgedRank], **changes: object) -> Frame:
    """The same moment, with the `changes` of the diagnosis."""
    known = {name: getattr(frame, name) for name in BASE_FIELDS}
    return Frame(ranks=ranks, **{**known, **changes})


def observed(frame: Frame) -> ObservedFrame:
    """The same moment without its judgement."""
    known = {name: getattr(frame, name) for name in BASE_FIELDS}
    ranks = {number: as_rank(ObservedRank, rank) for number, rank in frame.ranks.items()}
    return ObservedFrame(**{**known, "ranks": ranks, "notes": ()})
