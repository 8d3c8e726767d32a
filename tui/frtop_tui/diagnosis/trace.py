"""What each stage of a judgement found, for `frtop diagnose --explain`.

Ranks are folded (`0-36,38-63`) and alike ones share a line, so that a trace of thousands of ranks
can be read.
"""

from __future__ import annotations

from msgspec import Struct


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
    """One op that ranks wait in, and its members that have not entered it.

    Attributes:
        overdue: whether the wait is longer than it may take.
        free: absent members that nothing blocks: the blame ends there.
        ended: absent members whose process ended.
        unobserved: absent members that nobody observes.
        edges: absent members that are blocked elsewhere: the blame goes on there.
        seconds: the longest wait; None where nothing tells.
        open: where all members have entered, what is known of the other half of a send or receive,
            and that a stack does not tell who has to enter its call.
        by_elimination: `free` is the only rank that is in no op: nothing else shows who is absent.
    """

    op: str
    waiting: str
    overdue: bool
    free: str = ""
    ended: str = ""
    unobserved: str = ""
    edges: tuple[Edge, ...] = ()
    seconds: float | None = None
    open: str = ""
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
