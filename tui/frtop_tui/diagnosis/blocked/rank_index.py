"""All ranks of a job, indexed: which are blocked in what, which died, how far each group is.

The index is kept from frame to frame. A rank that is the same object has the same facts, so an
update visits only changed ranks. A new index of the same ranks has the same content
(`tests/diagnosis/test_incremental.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice
from operator import attrgetter, is_, is_not
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import wait_of
from frtop_tui.diagnosis.blocked.group_frontier import GroupFrontier
from frtop_tui.diagnosis.blocked.wait import Wait
from frtop_tui.diagnosis.evidence.death import Death, death_of
from frtop_tui.diagnosis.evidence.rank_activity import gil_holder, is_stale, working_location
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS, locate
from frtop_tui.diagnosis.evidence.working_thread import kernel_view
from frtop_tui.diagnosis.thresholds import LASTING_USUAL_WAITS, MIN_PATIENCE_NS
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import Rank, RankState


class RankIndex:
    """The ranks of the last update."""

    def __init__(self, give_way: Callable[[], None] = lambda: None) -> None:
        """`give_way` is called between ranks: an update of thousands takes long."""
        self._give_way = give_way
        self.ranks: Mapping[int, Rank] = {}  # as the frame has them
        self.corrected: Mapping[int, Rank] = {}  # without pending ops that are over
        self.waits: dict[int, Wait] = {}  # which op each blocked rank is blocked in
        self.states: defaultdict[RankState, set[int]] = defaultdict(set)
        self.dead: dict[int, Death] = {}
        self.beside: set[int] = set()  # ranks that may wait for unobserved transports
        self.partial: set[int] = set()  # ranks whose ops are not all known
        self.stale: set[int] = set()  # ranks that could not be read for a while
        self.deaths_version = 0  # grows whenever the order of deaths may differ
        # What differs from the update before:
        self.seen: list[int] = []  # ranks whose object is new
        self.replaced: list[tuple[Rank | None, Rank | None]] = []  # whose facts differ: old, new
        self.moved: set[int] = set()  # ranks with a changed fact, whichever rank it came from
        self.rewaited: list[int] = []  # ranks that are blocked in another op
        self.recorrected = False  # other pending ops are over
        self.renumbered = True  # ranks came or went
        self._frontiers: dict[Identifier, GroupFrontier] = {}
        self._doubtful: dict[int, Wait] = {}  # waits as their ranks report them
        self._corrections: dict[int, Rank] = {}

    def update(self, ranks: Mapping[int, Rank]) -> None:
        """Brings everything to `ranks`."""
        before, self.ranks = self.ranks, ranks
        self.renumbered = len(before) != len(ranks) or not all(map(is_, before, ranks))
        self.replaced, self.moved, self.rewaited, self.recorrected = [], set(), [], False
        if self.renumbered:
            self._frontiers.clear()
            self.seen = [rank for rank, view in ranks.items() if before.get(rank) is not view]
        else:
            self.seen = [*compress(ranks, map(is_not, ranks.values(), before.values()))]
        waits: dict[int, Wait | None] = {}
        for rank in before.keys() - ranks.keys() if self.renumbered else ():
            waits[rank] = self._put(before[rank], None)
        for rank in self.seen:
            self._give_way()
            old, new = before.get(rank), ranks[rank]
            if old is None or not _only_counters_differ(old, new):
                waits[rank] = self._put(old, new)
        if waits:
            self.moved.update(waits)
            waits.update(self._settle_doubts())
            self._settle(waits)
        else:  # only counters differ
            for rank in self._corrections.keys() & set(self.seen):
                pending = self._corrections[rank].pending
                self._corrections[rank] = replace(ranks[rank], pending=pending)
        self.corrected = {**ranks, **self._corrections} if self._corrections else ranks

    def frontier(self, group: wire.Group) -> GroupFrontier:
        """How far the members of a group are; updated in every frame once asked for."""
        key = identifier(group)
        known = self._frontiers.get(key)
        if known is None:
            known = self._frontiers[key] = GroupFrontier(group, self.ranks)
        return known

    def _put(self, old: Rank | None, new: Rank | None) -> Wait | None:
        """Replaces the old view of a rank by the new one; returns the rank's wait."""
        died = bool(self.dead)
        if old is not None:
            self.states[old.state].discard(old.rank)
            self._doubtful.pop(old.rank, None)
            self.dead.pop(old.rank, None)
            self.beside.discard(old.rank)
            self.partial.discard(old.rank)
            self.stale.discard(old.rank)
        self.replaced.append((old, new))
        wait = None
        if new is not None:
            self.states[new.state].add(new.rank)
            if not new.evidence.has_transports:
                self.beside.add(new.rank)
            if not new.evidence.has_every_op:
                self.partial.add(new.rank)
            if is_stale(new):
                self.stale.add(new.rank)
            wait = wait_of(new)
            if wait is not None and is_wait_doubtful(new, wait):
                self._doubtful[new.rank] = wait
            if (death := death_of(new)) is not None:
                self.dead[new.rank] = death
            self._advance(old, new)
        # Once a rank has died, what the living did counts as well.
        self.deaths_version += bool(self.dead) or died
        return wait

    def _advance(self, old: Rank | None, new: Rank) -> None:
        if not self._frontiers:
            return
        groups = [*new.groups.values(), *(old.groups.values() if old is not None else ())]
        for key in set(map(identifier, groups)):
            if key in self._frontiers:
                self._frontiers[key].update(new)

    def _settle(self, waits: Mapping[int, Wait | None]) -> None:
        """Updates `self.waits`; doubtful waits are first checked against the peer's wait."""
        for rank, found in waits.items():
            wait = found
            if wait is not None and wait.peer is not None and rank in self._doubtful:
                theirs = waits.get(wait.peer, self.waits.get(wait.peer))
                wait = None if is_message_over(wait, self.ranks, theirs) else wait
            if wait == self.waits.get(rank):
                continue
            self.rewaited.append(rank)
            if wait is None:
                del self.waits[rank]
            else:
                self.waits[rank] = wait
        self.moved.update(self.rewaited)

    def _settle_doubts(self) -> dict[int, Wait | None]:
        """The doubtful waits, after removing ops that are over from their ranks."""
        before, self._corrections = self._corrections, {}
        waits: dict[int, Wait | None] = {}
        others = CompletionByMembers(self.ranks, self.frontier)
        for rank, wait in self._doubtful.items():
            view = self.ranks[rank]
            left = still_pending(view, others)
            waits[rank] = wait
            if len(left) < len(view.pending):
                self._corrections[rank] = replace(view, pending=left)
                waits[rank] = wait_of(self._corrections[rank])
        for rank in before.keys() | self._corrections.keys():
            was, now = before.get(rank), self._corrections.get(rank)
            if was is None or now is None or was.pending != now.pending:
                self.moved.add(rank)
                self.recorrected = True
        return waits


_COUNTERS: Final = frozenset({
    "reported_ns", "heartbeat_ns", "ops", "cpu_ns", "io_bytes", "rss", "threads", "children",
})  # fmt: skip
"""These change in every update of every rank, so nothing kept between frames may depend on them. A
heartbeat that stops changes the rank's state."""


def _only_counters_differ(one: Rank, other: Rank) -> bool:
    """Whether only counters differ; may be False even then."""
    return (
        all(map(is_, _rank_facts(one), _rank_facts(other)))
        and _equal(one.status, other.status, _status_facts)
        and _equal(one.process, other.process, _process_facts)
    )


def _equal(one: object, other: object, facts: attrgetter[tuple[object, ...]]) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return facts(one) == facts(other)


def _facts_of(kind: type[Struct]) -> attrgetter[tuple[object, ...]]:
    omitted = _COUNTERS | {"status", "process"}  # compared by themselves
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in omitted))


_rank_facts: Final = _facts_of(Rank)
_status_facts: Final = _facts_of(wire.RankStatus)
_process_facts: Final = _facts_of(wire.Process)


_VAGUE: Final = frozenset({"lock", "unknown"})
"""Places that a wait in C++ may look like."""
_OUTDATED_STATES: Final = frozenset({"silent", "stopped", "dead", "done", "unreachable"})
"""States of ranks whose pending ops may be over."""


def is_wait_doubtful(view: Rank, wait: Wait) -> bool:
    """Whether the wait may be over: the rank is silent, or its stack is elsewhere."""
    if view.state == "silent":
        return True
    if view.snapshot is None or not wait.op.sync or wait.background:
        return False
    location = working_location(view)
    return location is not None and location.sure and location.kind not in OP_WAITS | _VAGUE


class CompletionByMembers:
    """Which ops the members of groups have completed, in one frame; answers are cached."""

    def __init__(
        self, ranks: Mapping[int, Rank], frontier_of: Callable[[wire.Group], GroupFrontier]
    ) -> None:
        self._ranks = ranks
        self._frontier_of = frontier_of
        self._known: dict[tuple[GroupFrontier, int], tuple[bool, list[int]]] = {}

    def others_completed(self, rank: int, group: wire.Group, number: int) -> bool:
        """Whether a member has completed an op, and at most `rank` still has it pending."""
        frontier = self._frontier_of(group)
        known = self._known.get((frontier, number))
        if known is None:
            known = self._known[frontier, number] = self._ask(frontier, number)
        any_completed, pending = known
        return any_completed and all(other == rank for other in pending)

    def _ask(self, frontier: GroupFrontier, number: int) -> tuple[bool, list[int]]:
        """Whether any member has completed an op, and up to two members that have not."""
        not_completed = frontier.not_completed(number, self._ranks)
        pending = (rank for rank in not_completed if _is_up_to_date(self._ranks[rank]))
        any_completed = any(
            rank not in not_completed and _is_up_to_date(self._ranks[rank])
            for rank in frontier.issued
        )
        return any_completed, [*islice(pending, 2)]


def still_pending(view: Rank, completion: CompletionByMembers) -> tuple[wire.Op, ...]:
    """The pending ops of a doubtful rank that are not known to be over."""
    return tuple(op for op in view.pending if not _is_over(view, op, completion))


def is_message_over(wait: Wait, ranks: Mapping[int, Rank], peer_wait: Wait | None) -> bool:
    """Whether a silent rank's send or receive is over: its peer waits for it in a collective.

    Even if it is not over, the rank that holds the GIL is the one to look at.
    """
    if not wait.op.p2p or ranks[wait.rank].state != "silent":
        return False
    if peer_wait is None or peer_wait.op.p2p or peer_wait.group is None:
        return False
    return wait.rank in members_of(peer_wait.group.ranks)


def _is_over(view: Rank, op: wire.Op, completion: CompletionByMembers) -> bool:
    if op.pseudo or not op.tracked:
        return False
    if _holds_gil_elsewhere(view, op):
        return True
    group = view.groups.get(op.group)
    if group is None or op.p2p or not group.exact:
        return False
    return completion.others_completed(view.rank, group, op.number)


def _is_up_to_date(view: Rank) -> bool:
    return view.state not in _OUTDATED_STATES and view.evidence.has_ages


def _holds_gil_elsewhere(view: Rank, op: wire.Op) -> bool:
    """Whether the op's thread holds the GIL, which waits release, at another place."""
    if view.state != "silent" or view.stacks_taken_ns < op.issued_ns or not op.sync:
        return False
    holder = gil_holder(view)
    if holder is None or holder.ident != op.thread:
        return False
    return locate(holder, kernel_view(view, holder)).kind not in OP_WAITS


@dataclass(slots=True)
class Releases:
    """Follows the waits of all ranks from frame to frame."""

    _waits: dict[int, Wait] = field(default_factory=dict)
    _at_ns: dict[int, int] = field(default_factory=dict)

    def follow(self, index: RankIndex, now_ns: int) -> Mapping[int, int]:
        """By rank, when it was first seen after its last unusually long wait."""
        ranks = self._waits.keys() | index.waits.keys() if index.renumbered else index.rewaited
        for rank in ranks:
            before, wait = self._waits.pop(rank, None), index.waits.get(rank)
            if wait is not None:
                self._waits[rank] = wait
            view = index.ranks.get(rank)
            if view is None:
                self._at_ns.pop(rank, None)
            elif before is not None and _is_out_of(before, view) and _was_long(before, now_ns):
                self._at_ns[rank] = now_ns
        return self._at_ns


def _is_out_of(wait: Wait, view: Rank) -> bool:
    """Whether its op is complete, and not just a newer stack elsewhere."""
    if wait.background or wait.undated:
        return False
    return not any(map(partial(_is_same, wait.op), view.pending))


def _is_same(op: wire.Op, other: wire.Op) -> bool:
    # An op from a stack has another sequence.
    return (op.group, op.number, op.p2p) == (other.group, other.number, other.p2p)


def _was_long(wait: Wait, now_ns: int) -> bool:
    usual = max(MIN_PATIENCE_NS, LASTING_USUAL_WAITS * wait.op.usual_ns)
    return now_ns - wait.since_ns > usual
