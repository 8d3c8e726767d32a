"""Ops that are over although their rank never noted it: it could not.

That an op is complete is noted by Python code of the rank. While a thread holds the GIL
none runs, and the last op before stays pending in the ring for ever. What tells that such
an op is over is the stack of its thread, or its other members, who have completed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.standing import Standing
from frtop_tui.diagnosis.waiting import Wait, main_place
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import RankView

_VAGUE: Final = frozenset({"lock", "unknown"})
"""Places that a wait in C++ may look like."""
_CANNOT_TELL: Final = frozenset({"silent", "stopped", "dead", "done", "unheard"})
"""Postures whose pending ops may be over long since."""
_Peers = Mapping[int, RankView]
StandingOf = Callable[[wire.Group], Standing]


def is_doubtful(view: RankView, wait: Wait) -> bool:
    """Whether it may not be there any more: no sign of life, or its stack is elsewhere."""
    if view.posture == "silent":
        return True
    if view.look is None or not wait.op.sync or wait.side:
        return False
    place = main_place(view)
    return place is not None and place.sure and place.kind not in places.WAITS | _VAGUE


def still_pending(view: RankView, ranks: _Peers, standing_of: StandingOf) -> tuple[wire.Op, ...]:
    """The pending ops of a rank in doubt, without those that are over all the same."""
    return tuple(op for op in view.pending if not _is_over(view, op, ranks, standing_of))


def is_past(wait: Wait, ranks: _Peers, theirs: Wait | None) -> bool:
    """Whether a send or receive of a silent rank is over: its peer waits for it elsewhere.

    `theirs` is what the peer is blocked in. Then the other half is over, and this one with
    it; and were it not, who holds the GIL would still be the first to look at.
    """
    if not wait.op.p2p or ranks[wait.rank].posture != "silent":
        return False
    if theirs is None or theirs.op.p2p or theirs.group is None:
        return False
    return wait.rank in members_of(theirs.group.ranks)


def _is_over(view: RankView, op: wire.Op, ranks: _Peers, standing_of: StandingOf) -> bool:
    if op.pseudo or not op.tracked:
        return False
    if _holds_gil_elsewhere(view, op):
        return True
    group = view.groups.get(op.group)
    if group is None or op.p2p or not group.exact:
        return False
    return _others_are_through(view.rank, op.number, standing_of(group), ranks)


def _others_are_through(rank: int, number: int, standing: Standing, ranks: _Peers) -> bool:
    """Whether all other members that can tell have completed an op, and one has."""
    laggards = standing.not_through(number, ranks)
    if any(_can_tell(ranks[other]) for other in laggards if other != rank):
        return False
    return any(_can_tell(ranks[one]) for one in standing.known if one not in laggards)


def _can_tell(view: RankView) -> bool:
    return view.posture not in _CANNOT_TELL and not view.dumped


def _holds_gil_elsewhere(view: RankView, op: wire.Op) -> bool:
    """Whether the op's own thread holds the GIL, which a wait lets go, at another place."""
    if view.posture != "silent" or view.stacks_ns < op.issued_ns or not op.sync:
        return False
    owner = next((thread for thread in view.threads if thread.owns_gil), None)
    if owner is None or owner.ident != op.thread:
        return False
    return places.classify(owner, view.process).kind not in places.WAITS
