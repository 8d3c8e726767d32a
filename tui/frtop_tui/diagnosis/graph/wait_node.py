"""A node of the wait-for graph: an op, the ranks that wait in it, and its absent members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.blocked.wait import (
    NEVER,
    Wait,
    WaitDeadlines,
    WaitStage,
    deadlines_of,
)
from frtop_tui.diagnosis.evidence.c10d_call import C10dCall
from frtop_tui.diagnosis.evidence.rpc_call import RpcCall
from frtop_tui.job.groups import members_of

NodeId = tuple[object, ...]


def node_id(wait: Wait) -> NodeId:
    """Equal for ranks that wait in the same op of the same group."""
    op, group, call = wait.op, wait.group, wait.call
    if wait.rpc is not None:
        return ("rpc", wait.rank, wait.rpc)
    if call is not None:
        alone = wait.rank if wait.peer is not None else None
        return ("call", call.kind, call.group, call.steps, alone)
    if op.pseudo or group is None:
        return call_id(op)
    if op.p2p:
        # Messages from stacks all have the same sequence.
        return ("p2p", wait.rank, op.sequence, kind_of(op), wait.peer)
    return (group.name, group.ranks, group.epoch, op.number if group.exact else None)


def call_id(op: wire.Op) -> NodeId:
    """Equal for ranks in the same group-making call with the same callers."""
    signature = op.signature
    return ("pseudo", signature and signature.kind, signature and signature.members)


def kind_of(op: wire.Op) -> str:
    """`all_reduce`; `an op` if the signature was lost."""
    return op.signature.kind if op.signature is not None else "an op"


def number_of(op: wire.Op, group: wire.Group | None) -> int | None:
    """The op's number; None if it cannot be compared between ranks."""
    counted = group is not None and group.exact and not (op.pseudo or op.p2p)
    return op.number if counted else None


class RankSet(NamedTuple):
    """Ranks, and their folded text, which is slow to make for thousands."""

    ranks: frozenset[int]
    folded: str

    def without(self, some: Collection[int]) -> RankSet:
        return self if self.ranks.isdisjoint(some) else rank_set(self.ranks.difference(some))


def rank_set(ranks: Iterable[int]) -> RankSet:
    found = frozenset(ranks)
    return RankSet(found, fold(found))


class WaitNode:
    """One op that ranks wait in; `op`, `group` and `peer` are those of its first waiting rank.

    `everybody` holds the members if no group lists them.
    """

    __slots__ = (
        "_bounds", "_deadlines", "_exact", "_oldest", "_ordered", "_waits", "answered",
        "blocked_at", "by_elimination", "callee", "ended", "everybody", "free", "id", "unobserved",
    )  # fmt: skip

    def __init__(self, identifier: NodeId, everybody: tuple[int, ...]) -> None:
        self.id = identifier
        self.free: Sequence[int] = ()  # not entered, and free to go on
        self.ended: Sequence[int] = ()  # not entered, and never will
        self.unobserved: Sequence[int] = ()  # not known
        self.blocked_at: Mapping[int, WaitNode] = {}  # not entered: blocked there
        self.answered = False  # a message: its other half was surely issued
        self.by_elimination = False  # absent only because all other ranks wait
        self.callee: int | None = None  # a remote call: the rank that works on it
        self.everybody = everybody
        self._waits: dict[int, Wait] = {}
        self._ordered: list[Wait] | None = None
        self._oldest: Wait | None = None
        self._deadlines: dict[int, WaitDeadlines] = {}
        self._bounds = WaitDeadlines()
        self._exact = True

    def arrive(self, wait: Wait) -> None:
        """Adds a waiting rank, or replaces its wait."""
        if wait.rank in self._waits:
            self._exact = False
        self._waits[wait.rank] = wait
        deadlines = self._deadlines[wait.rank] = deadlines_of(wait)
        self._bounds = WaitDeadlines(*map(min, self._bounds, deadlines))
        self._ordered = self._oldest = None

    def leave(self, rank: int) -> bool:
        """Removes a rank; returns whether it was the last one."""
        del self._waits[rank], self._deadlines[rank]
        self._ordered, self._oldest, self._exact = None, None, False
        return not self._waits

    @property
    def waits(self) -> list[Wait]:
        """By rank."""
        if self._ordered is None:
            self._ordered = [self._waits[rank] for rank in sorted(self._waits)]
        return self._ordered

    @property
    def waiting(self) -> list[int]:
        return [wait.rank for wait in self.waits]

    @property
    def oldest(self) -> Wait:
        if self._oldest is None:
            self._oldest = min(self.waits, key=lambda wait: wait.since_ns)
        return self._oldest

    @property
    def op(self) -> wire.Op:
        return self.waits[0].op

    @property
    def call(self) -> C10dCall | None:
        """The call on the stacks, if nothing else shows the op."""
        return self.waits[0].call

    @property
    def rpc(self) -> RpcCall | None:
        """The remote call whose answer the rank waits for."""
        return self.waits[0].rpc

    @property
    def group(self) -> wire.Group | None:
        return self.waits[0].group

    @property
    def kind(self) -> str:
        return kind_of(self.op)

    @property
    def peer(self) -> int | None:
        return self.waits[0].peer

    @property
    def number(self) -> int | None:
        return number_of(self.op, self.group)

    @property
    def members(self) -> tuple[int, ...]:
        if self.op.pseudo or self.group is None:
            return self.callers or self.everybody
        return members_of(self.group.ranks)

    @property
    def callers(self) -> tuple[int, ...] | None:
        """The ranks that have to make this call; None if the call does not name them."""
        signature = self.op.signature if self.op.pseudo else None
        named = signature.members if signature is not None else None
        return (members_of(named) or None) if named else None

    @property
    def members_known(self) -> bool:
        """Whether it is known which ranks have to enter.

        All ranks of the world have to enter `init_process_group`. Calls such as `new_group` name
        their ranks; if one does not, usually all ranks have to enter.
        """
        known = self.kind == "init_process_group" or self.callers is not None
        return not self.op.pseudo or known or self.rpc is not None

    @property
    def deadlines(self) -> WaitDeadlines:
        """The earliest deadlines of all waits."""
        if not self._exact:
            of_each_stage = zip(*self._deadlines.values(), strict=True)
            self._bounds, self._exact = WaitDeadlines(*map(min, of_each_stage)), True
        return self._bounds

    def has_begun(self, stage: WaitStage, until_ns: Callable[[int], int]) -> bool:
        """Whether a wait had reached `stage` by the `until_ns` of its rank."""
        return any(getattr(one, stage) < until_ns(rank) for rank, one in self._deadlines.items())

    def begins_ns(self, stage: WaitStage, now_ns: int) -> int:
        """When the first wait reaches `stage`; exact if that is before `now_ns`."""
        # After a rank has left, bounds may be too early, never too late.
        bound: int = getattr(self._bounds, stage)
        return bound if now_ns <= bound else getattr(self.deadlines, stage)

    @property
    def since_ns(self) -> int:
        return self.deadlines.since

    @property
    def undated(self) -> bool:
        """Whether no rank's waiting time is known."""
        return all(wait.undated for wait in self.waits)

    @property
    def known_since_ns(self) -> int:
        """When ranks began to wait; 0 if not known."""
        return 0 if self.undated else self.since_ns

    @property
    def entered_by_all(self) -> bool:
        return not (self.free or self.ended or self.unobserved or self.blocked_at)

    @property
    def successors(self) -> Collection[WaitNode]:
        """The nodes in which its absent members are themselves blocked."""
        return set(self.blocked_at.values()) if self.blocked_at else ()

    def left_s(self, now_ns: int) -> float | None:
        """Seconds until torch's own timeout of the first wait."""
        at_ns = self.deadlines.timeout
        return max(0.0, (at_ns - now_ns) / 1e9) if at_ns < NEVER else None


def soonest_left_s(nodes: Iterable[WaitNode], now_ns: int) -> float | None:
    """Seconds until torch's own timeout ends the first of several waits."""
    return min((s for one in nodes if (s := one.left_s(now_ns)) is not None), default=None)
