"""The tensors of one op in the answers of the members of its group, and whether they are equal."""

from __future__ import annotations

from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import identifier

OpIdentity = tuple[object, ...]
"""Group name, ranks and epoch, and the op's number: equal on all ranks that issued the op."""


def find_op(rank: JudgedRank, sequence: int) -> wire.Op | None:
    """The op with this sequence number, if frtop still knows it."""
    for op in rank.pending:
        if op.sequence == sequence:
            return op
    if rank.blocked_on is not None and rank.blocked_on.sequence == sequence:
        return rank.blocked_on
    ops = rank.snapshot.ops if rank.snapshot is not None else ()
    return next((op for op in ops if op.sequence == sequence), None)


def op_identity(rank: JudgedRank, sequence: int) -> OpIdentity | None:
    """None for p2p ops and for groups without exact op numbers."""
    op = find_op(rank, sequence)
    group = rank.groups.get(op.group) if op is not None else None
    if op is None or group is None or op.p2p or not group.exact:
        return None
    return (*identifier(group), op.number)


def members_of_op(frame: Frame, identity: OpIdentity) -> tuple[int, ...]:
    """The ranks of the op's group."""
    for group in frame.groups:
        if identifier(group.key) == identity[:3]:
            return group.members
    return ()


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """What a member says of an op: its tensors, or why there are none (`state`)."""

    rank: int
    state: str  # "" it answered; else "not asked", "not pending", "no answer"
    op: wire.Op | None = None
    tensors: wire.OpTensors | None = None


def member_answer(rank: int, view: JudgedRank | None, identity: OpIdentity) -> MemberAnswer:
    """What one member says of this op."""
    if view is None or view.tensors is None:
        return MemberAnswer(rank, "not asked")
    for found in view.tensors.ops:
        if op_identity(view, found.sequence) == identity:
            return MemberAnswer(rank, "", find_op(view, found.sequence), found)
    return MemberAnswer(rank, "not pending" if view.tensors.error in ("", "none") else "no answer")


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
