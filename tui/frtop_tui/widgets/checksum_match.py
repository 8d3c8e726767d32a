"""Compares the checksums of an op's tensors between ranks. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.diagnosis.pending_tensors import OpIdentity, members_of_op, op_identity


@dataclass(frozen=True, slots=True)
class ChecksumMatch:
    """The other members of the op's group, by how their data compares."""

    same: tuple[int, ...] = ()
    differ: tuple[int, ...] = ()
    incomparable: tuple[int, ...] = ()  # another shape, or another number of values read
    not_asked: tuple[int, ...] = ()
    not_pending: tuple[int, ...] = ()  # asked; the op is not pending there, or has no data
    unanswered: tuple[int, ...] = ()  # asked; the rank could not answer


def match_checksums(frame: Frame, rank: JudgedRank, sequence: int, index: int) -> ChecksumMatch:
    """Compares tensor `index` of an op with the same tensor on the group's other ranks."""
    identity = op_identity(rank, sequence)
    own = _tensor(rank, sequence, index)
    if identity is None or own is None or not own.checksum:
        return ChecksumMatch()
    found: tuple[list[int], ...] = ([], [], [], [], [], [])
    for number in members_of_op(frame, identity):
        if number == rank.rank:
            continue
        view = frame.ranks.get(number)
        other = _same_tensor(view, identity, index)
        if view is None or view.tensors is None:
            found[3].append(number)
        elif other is None or not other.checksum:
            found[4 if view.tensors.error in ("", "none") else 5].append(number)
        elif (other.dtype, other.elements, other.seen) != (own.dtype, own.elements, own.seen):
            found[2].append(number)
        else:
            found[0 if other.checksum == own.checksum else 1].append(number)
    return ChecksumMatch(*map(tuple, found))


def _tensor(rank: JudgedRank, sequence: int, index: int) -> wire.TensorSummary | None:
    for op in rank.tensors.ops if rank.tensors is not None else ():
        if op.sequence == sequence and index < len(op.tensors):
            return op.tensors[index]
    return None


def _same_tensor(
    rank: JudgedRank | None, identity: OpIdentity, index: int
) -> wire.TensorSummary | None:
    if rank is None or rank.tensors is None:
        return None
    for op in rank.tensors.ops:
        if op_identity(rank, op.sequence) == identity:
            return _tensor(rank, op.sequence, index)
    return None
