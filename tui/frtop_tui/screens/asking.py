"""Whom to ask for tensors: a rank that others wait for has none, those that wait hold them."""

from __future__ import annotations

from collections.abc import Iterable

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank


def has_tensors(view: JudgedRank | None) -> bool:
    """Whether the rank may hold an op with tensors; what is not known of an op, may be."""
    if view is None:
        return False
    return any(_may_hold(op) for op in (*view.pending, view.blocked_on) if op is not None)


def _may_hold(op: wire.Op) -> bool:
    told = op.signature
    if op.pseudo or op.done_ns:
        return False
    return told is None or not (told.kind.endswith("barrier") or told.inputs == told.outputs == ())


def to_ask(frame: Frame, rank: int) -> int:
    """`rank`, or the first that waits for it where it has nothing pending that has tensors."""
    view = frame.ranks.get(rank)
    if has_tensors(view) or (view is not None and view.tensors is not None and view.tensors.ops):
        return rank
    for waiting in _waiting(frame, rank):
        other = frame.ranks.get(waiting)
        if other is None or other.state in ("dead", "done", "unheard", "silent", "stopped"):
            continue
        answered = other.tensors is not None and other.tensors.ops
        if answered or (has_tensors(other) and frame.recorded is None):
            return waiting
    return rank


def _waiting(frame: Frame, rank: int) -> Iterable[int]:
    for verdict in frame.verdicts:
        if rank in verdict.culprits:
            yield from sorted(verdict.victims)
    for group in frame.groups:
        if rank in group.late:
            yield from group.waiting
