"""Ops that are over although their rank never noted it: it could not.

That an op is complete is noted by Python code of the rank. While a thread holds the GIL
none runs, and the last op before stays pending in the ring for ever. What tells that such
an op is over is the stack of its thread, or its other members, who have completed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import Wait, main_place
from frtop_tui.diagnosis.blocked.group_frontier import GroupFrontier
from frtop_tui.diagnosis.evidence import stack_location as places
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import Rank

_VAGUE: Final = frozenset({"lock", "unknown"})
"""Places that a wait in C++ may look like."""
_CANNOT_TELL: Final = frozenset({"silent", "stopped", "dead", "done", "unheard"})
"""Postures whose pending ops may be over long since."""
_Peers = Mapping[int, Rank]
StandingOf = Callable[[wire.Group], GroupFrontier]


def is_doubtful(view: Rank, wait: Wait) -> bool:
    """Whether it may not be there any more: no sign of life, or its stack is elsewhere."""
    if view.state == "silent":
        return True
    if view.snapshot is None or not wait.op.sync or wait.side:
        return False
    place = main_place(view)
    return place is not None and place.sure and place.kind not in places.WAITS | _VAGUE


class Others:
    """What the members of groups tell of ops at one moment; asked once for all in doubt."""

    def __init__(self, ranks: _Peers, frontier_of: StandingOf) -> None:
        self._ranks = ranks
        self._standing_of = frontier_of
        self._told: dict[tuple[GroupFrontier, int], tuple[bool, list[int]]] = {}

    def are_through(self, rank: int, group: wire.Group, number: int) -> bool:
        """Whether all other members that can tell have completed an op, and one has."""
        frontier = self._standing_of(group)
        told = self._told.get((frontier, number))
        if told is None:
            told = self._told[frontier, number] = self._ask(frontier, number)
        through, slow = told
        return through and all(other == rank for other in slow)

    def _ask(self, frontier: GroupFrontier, number: int) -> tuple[bool, list[int]]:
        """Whether one is through, and of those that are not, two."""
        laggards = frontier.not_through(number, self._ranks)
        slow = (rank for rank in laggards if _can_tell(self._ranks[rank]))
        through = (rank not in laggards and _can_tell(self._ranks[rank]) for rank in frontier.known)
        return any(through), [*islice(slow, 2)]


def still_pending(view: Rank, others: Others) -> tuple[wire.Op, ...]:
    """The pending ops of a rank in doubt, without those that are over all the same."""
    return tuple(op for op in view.pending if not _is_over(view, op, others))


def is_past(wait: Wait, ranks: _Peers, theirs: Wait | None) -> bool:
    """Whether a send or receive of a silent rank is over: its peer waits for it elsewhere.

    `theirs` is what the peer is blocked in. Then the other half is over, and this one with
    it; and were it not, who holds the GIL would still be the first to look at.
    """
    if not wait.op.p2p or ranks[wait.rank].state != "silent":
        return False
    if theirs is None or theirs.op.p2p or theirs.group is None:
        return False
    return wait.rank in members_of(theirs.group.ranks)


def _is_over(view: Rank, op: wire.Op, others: Others) -> bool:
    if op.pseudo or not op.tracked:
        return False
    if _holds_gil_elsewhere(view, op):
        return True
    group = view.groups.get(op.group)
    if group is None or op.p2p or not group.exact:
        return False
    return others.are_through(view.rank, group, op.number)


def _can_tell(view: Rank) -> bool:
    return view.state not in _CANNOT_TELL and view.evidence.has_ages


def _holds_gil_elsewhere(view: Rank, op: wire.Op) -> bool:
    """Whether the op's own thread holds the GIL, which a wait lets go, at another place."""
    if view.state != "silent" or view.stacks_taken_ns < op.issued_ns or not op.sync:
        return False
    owner = next((thread for thread in view.threads if thread.owns_gil), None)
    if owner is None or owner.ident != op.thread:
        return False
    return places.classify(owner, view.process).kind not in places.WAITS
