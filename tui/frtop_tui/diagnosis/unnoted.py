"""Ops that are over although their rank never noted it: it could not.

That an op is complete is noted by Python code of the rank. While a thread holds the GIL
none runs, and the last op before stays pending in the ring for ever. What tells that such
an op is over is the stack of its thread, or its other members, who have completed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis import places
from frtop_tui.diagnosis.points import front_number, local_number
from frtop_tui.diagnosis.waiting import Wait, main_place, wait_of
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import RankView

_CANNOT_TELL: Final = frozenset({"silent", "stopped", "dead", "done", "unheard"})
"""Postures whose pending ops may be over long since."""
_VAGUE: Final = frozenset({"lock", "unknown"})
"""Places that a wait in C++ may look like."""
_Peers = Mapping[int, RankView]
_Laggards = dict[tuple[object, ...], tuple[frozenset[int], bool]]


def noted(ranks: Mapping[int, RankView]) -> tuple[Mapping[int, RankView], dict[int, Wait]]:
    """The ranks without pending ops that are over all the same, and who is blocked in what."""
    known: _Laggards = {}
    waits: dict[int, Wait] = {}
    changed: dict[int, RankView] = {}
    for rank, view in ranks.items():
        wait = wait_of(view)
        if wait is not None and _in_doubt(view, wait):
            left = tuple(op for op in view.pending if not _is_over(view, op, ranks, known))
            if len(left) < len(view.pending):
                changed[rank] = replace(view, pending=left)
                wait = wait_of(changed[rank])
        if wait is not None:
            waits[rank] = wait
    for rank, wait in list(waits.items()):
        if wait.op.p2p and ranks[rank].posture == "silent" and _peer_is_past(wait, ranks, waits):
            del waits[rank]
    return ({**ranks, **changed} if changed else ranks), waits


def _in_doubt(view: RankView, wait: Wait) -> bool:
    """Whether it may not be there any more: no sign of life, or its stack is elsewhere."""
    if view.posture == "silent":
        return True
    if view.look is None or not wait.op.sync or wait.side:
        return False
    place = main_place(view)
    return place is not None and place.sure and place.kind not in places.WAITS | _VAGUE


def _is_over(view: RankView, op: wire.Op, ranks: _Peers, known: _Laggards) -> bool:
    if op.pseudo or not op.tracked:
        return False
    if _holds_gil_elsewhere(view, op):
        return True
    group = view.groups.get(op.group)
    if group is None or op.p2p or not group.exact:
        return False
    key = (group.name, group.ranks, group.epoch, op.number)
    if key not in known:
        known[key] = _laggards(group, op.number, ranks)
    laggards, any_done = known[key]
    return any_done and laggards <= {view.rank}


def _holds_gil_elsewhere(view: RankView, op: wire.Op) -> bool:
    """Whether the op's own thread holds the GIL, which a wait lets go, at another place."""
    if view.posture != "silent" or view.stacks_ns < op.issued_ns or not op.sync:
        return False
    owner = next((thread for thread in view.threads if thread.owns_gil), None)
    if owner is None or owner.ident != op.thread:
        return False
    return places.classify(owner, view.process).kind not in places.WAITS


def _laggards(group: wire.Group, number: int, ranks: _Peers) -> tuple[frozenset[int], bool]:
    """Members that can tell and have not completed an op; and whether one has."""
    found: set[int] = set()
    any_done = False
    for rank in members_of(group.ranks):
        view = ranks.get(rank)
        if view is None or view.posture in _CANNOT_TELL or view.dumped:
            continue
        if _has_completed(view, group, number):
            any_done = True
        else:
            found.add(rank)
    return frozenset(found), any_done


def _has_completed(view: RankView, group: wire.Group, number: int) -> bool:
    if view.pending_more or front_number(view, group) < number:
        return False
    mine = local_number(view, group)
    return not any(op.group == mine and not op.p2p and op.number == number for op in view.pending)


def _peer_is_past(wait: Wait, ranks: _Peers, waits: Mapping[int, Wait]) -> bool:
    """Whether the other side of a send or receive waits for this rank elsewhere meanwhile.

    Then its half is over, and ours with it; and were it not, who holds the GIL would still
    be the first to look at.
    """
    peer = wait.op.signature.peer if wait.op.signature is not None else None
    theirs = waits.get(peer) if peer is not None else None
    if peer is None or theirs is None or theirs.op.p2p:
        return False
    group = ranks[peer].groups.get(theirs.op.group)
    return group is not None and wait.rank in members_of(group.ranks)
