"""Which rank to ask for tensors: a late rank often has none, but the ranks that wait for it do."""

from __future__ import annotations

from collections.abc import Iterable

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank


def has_tensors(view: JudgedRank | None) -> bool:
    """Whether a pending op of the rank may hold tensors; unknown signatures may."""
    if view is None:
        return False
    return any(_may_hold_tensors(op) for op in (*view.pending, view.blocked_on) if op is not None)


def _may_hold_tensors(op: wire.Op) -> bool:
    signature = op.signature
    if op.pseudo or op.done_ns:
        return False
    if signature is None:
        return True
    return not (signature.kind.endswith("barrier") or signature.inputs == signature.outputs == ())


def tensor_target(frame: Frame, rank: int) -> int:
    """`rank`, or where it has no tensors the first rank waiting for it that has some."""
    view = frame.ranks.get(rank)
    if has_tensors(view) or (view is not None and view.tensors is not None and view.tensors.ops):
        return rank
    for number in _waiting_ranks(frame, rank):
        other = frame.ranks.get(number)
        if other is None or other.state in ("dead", "done", "unreachable", "silent", "stopped"):
            continue
        answered = other.tensors is not None and other.tensors.ops
        if answered or (has_tensors(other) and frame.recorded is None):
            return number
    return rank


def _waiting_ranks(frame: Frame, rank: int) -> Iterable[int]:
    for verdict in frame.verdicts:
        if rank in verdict.culprits:
            yield from sorted(verdict.victims)
    for group in frame.groups:
        if rank in group.late:
            yield from group.waiting
