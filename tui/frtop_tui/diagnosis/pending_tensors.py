"""Finds the tensors of one op in the answers of the members of its group."""

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
