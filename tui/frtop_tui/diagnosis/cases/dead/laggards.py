"""Which ranks others had waited for when these broke off."""

from __future__ import annotations

from typing import NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number
from frtop_tui.diagnosis.finding import group_key
from frtop_tui.diagnosis.graph.wait_node import kind_of
from frtop_tui.job.model import ObservedFrame, Rank


class MissedOp(NamedTuple):
    """An op that a rank entered too late for the others; `number` is 0 for a message."""

    group: wire.Group
    kind: str
    number: int


def laggards(frame: ObservedFrame, victims: set[int]) -> dict[int, MissedOp]:
    """Reporting ranks that lag the victims in a group they share, and the op that they missed.

    A laggard that sat in an op of another group only waited itself: whoever lags it counts.
    """
    found, waiting = _lagging(frame, victims), set(victims)
    while waited := {rank for rank in found if _sat_in_op(frame.ranks[rank])}:
        waiting |= waited
        further = _lagging(frame, waiting)
        if not further:
            break
        found = further
    return found


def _lagging(frame: ObservedFrame, victims: set[int]) -> dict[int, MissedOp]:
    views = frame.ranks
    found: dict[int, MissedOp] = {}
    for group in frame.groups:
        members = [rank for rank in group.members if rank in views]
        inside = [rank for rank in members if rank in victims]
        if not inside or not group.exact:
            continue
        groups = views[inside[0]].groups.values()
        known = next((one for one in groups if group_key(one) == group.key), None)
        if known is None:
            continue
        furthest = max(last_issued_number(views[rank], known) for rank in inside)
        kind = kind_of(group.last) if group.last is not None else "op"
        # A rank that does not report may have gone on since: its last number proves nothing.
        for rank in members:
            reported = rank not in victims and views[rank].state != "unreachable"
            if reported and last_issued_number(views[rank], known) < furthest:
                found.setdefault(rank, MissedOp(known, kind, furthest))
    return found or _not_met(frame, victims)


def _not_met(frame: ObservedFrame, victims: set[int]) -> dict[int, MissedOp]:
    """Who left in good order, and should have been at the other end of a victim's last op."""
    views = frame.ranks
    found: dict[int, MissedOp] = {}
    for rank in sorted(victims):
        fronts = views[rank].group_progress.values()
        front = max(fronts, key=lambda front: front.issued_ns, default=None)
        last = front.last if front is not None else None
        if last is None or not last.p2p or last.signature is None:
            continue
        group, peer = views[rank].groups.get(last.group), last.signature.peer
        if group and peer is not None and peer in views and views[peer].state == "done":
            found.setdefault(peer, MissedOp(group, kind_of(last), 0))
    return found


def _sat_in_op(view: Rank) -> bool:
    return any(op.sync and op.pending and not op.pseudo for op in view.pending)
