"""Compares the tensors of one pending op between the members of its group.

Shapes and dtypes must agree where the op needs that, so a rank that differs in them is at fault.
Bytes need not agree: inputs differ by nature, and outputs may be written in part while the op is
pending. So sides of equal bytes are shown, and nobody is blamed for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from frtop_probe import wire
from frtop_probe.consistency.signatures import difference
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import identifier
from frtop_tui.job.naming import group_label
from frtop_tui.job.rank_sides import RankSide, odd_ranks, sides_of

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
    """A member's answer about an op: its tensors, or why there are none (`state`)."""

    rank: int
    state: str  # "" it answered; else "not asked", "not pending", "no answer"
    op: wire.Op | None = None
    tensors: wire.OpTensors | None = None


def member_answer(rank: int, view: JudgedRank | None, identity: OpIdentity) -> MemberAnswer:
    """One member's answer about this op."""
    if view is None or view.tensors is None:
        return MemberAnswer(rank, "not asked")
    for found in view.tensors.ops:
        if op_identity(view, found.sequence) == identity:
            return MemberAnswer(rank, "", find_op(view, found.sequence), found)
    return MemberAnswer(rank, "not pending" if view.tensors.error in ("", "none") else "no answer")


MOST_ASKED = 1024
"""Members that are asked at once: each works for up to 1.2 s, and sends some kilobytes."""


@dataclass(frozen=True, slots=True)
class TensorSides:
    """One tensor of the op on all members that answered.

    `layouts` are dtype and shape, `contents` checksums of those with the most common layout.
    """

    label: str
    layouts: tuple[RankSide, ...]
    differ_in: str  # in which layouts differ although they must agree; "" if they agree
    odd_layouts: tuple[int, ...]
    contents: tuple[RankSide, ...]
    not_finite: tuple[tuple[int, int, int], ...]  # rank, NaN, Inf
    norms: tuple[float, float] | None  # the least and the greatest
    partly: tuple[int, ...]  # ranks that read another part of it: not compared
    unread: tuple[RankSide, ...]  # by the reason

    @property
    def odd_contents(self) -> tuple[int, ...]:
        """Ranks whose bytes differ from those of more than half."""
        return odd_ranks(self.contents)


@dataclass(frozen=True, slots=True)
class MembersComparison:
    """The answers of a group's members about an op's tensors, compared."""

    kind: str
    number: int
    group: str
    members: int
    answered: tuple[int, ...]
    not_asked: tuple[int, ...]
    not_pending: tuple[int, ...]
    no_answer: tuple[int, ...]
    tensors: tuple[TensorSides, ...]


def members_to_ask(frame: Frame, rank: JudgedRank, sequence: int) -> tuple[int, ...]:
    """The members of an op's group that are there, this rank first; none for p2p ops."""
    identity = op_identity(rank, sequence)
    members = members_of_op(frame, identity) if identity is not None else ()
    others = [number for number in members if number != rank.rank and number in frame.ranks]
    return (rank.rank, *others)[:MOST_ASKED] if members else ()


def compare_members(frame: Frame, rank: JudgedRank, sequence: int) -> MembersComparison | None:
    """Compares an op of this rank; None if other ranks cannot find it by its number."""
    identity, op = op_identity(rank, sequence), find_op(rank, sequence)
    if identity is None or op is None:
        return None
    return compare(frame, identity, op, rank.groups[op.group])


def compare(
    frame: Frame, identity: OpIdentity, op: wire.Op, group: wire.Group
) -> MembersComparison:
    """Compares the op of this identity between all members."""
    members = members_of_op(frame, identity)
    answers = [member_answer(number, frame.ranks.get(number), identity) for number in members]
    with_tensors = [one for one in answers if not one.state]
    most = max((len(one.tensors.tensors) for one in with_tensors if one.tensors), default=0)
    by_state: defaultdict[str, list[int]] = defaultdict(list)
    for one in answers:
        by_state[one.state].append(one.rank)
    sides = (_sides(with_tensors, index, group.backend) for index in range(most))
    return MembersComparison(
        op.signature.kind if op.signature is not None else "op",
        op.number,
        group_label(group.name, group.description),
        len(members),
        tuple(by_state[""]),
        tuple(by_state["not asked"]),
        tuple(by_state["not pending"]),
        tuple(by_state["no answer"]),
        tuple(one for one in sides if one is not None),
    )


def _sides(answers: Sequence[MemberAnswer], index: int, backend: str) -> TensorSides | None:
    """Tensor `index` of all members that answered; None if no member has it."""
    known = {
        one.rank: one.tensors.tensors[index]
        for one in answers
        if one.tensors is not None and index < len(one.tensors.tensors)
    }
    if not known:
        return None
    layouts = sides_of((rank, _layout(summary)) for rank, summary in known.items())
    common = layouts[0].value
    alike = {rank: one for rank, one in known.items() if _layout(one) == common}
    read = {rank: one for rank, one in alike.items() if one.checksum}
    counts = Counter(one.seen for one in read.values())
    seen = max(counts, key=lambda length: (counts[length], length), default=0)
    comparable = [(rank, one.checksum) for rank, one in read.items() if one.seen == seen]
    norms = [one.norm for one in read.values() if one.norm is not None]
    what = _differ_in(answers, layouts, backend)
    return TensorSides(
        _label(answers, index),
        layouts,
        what,
        odd_ranks(layouts) if what else (),
        sides_of(comparable),
        tuple((rank, one.nans, one.infinities) for rank, one in sorted(known.items())
              if one.nans or one.infinities),
        (min(norms), max(norms)) if norms else None,
        tuple(sorted(rank for rank, one in read.items() if one.seen != seen)),
        sides_of((rank, one.error) for rank, one in known.items() if one.error),
    )  # fmt: skip


def _differ_in(answers: Sequence[MemberAnswer], layouts: Sequence[RankSide], backend: str) -> str:
    """What must agree between the sides and does not, by the rule of the op's kind."""
    ops = {one.rank: one.op.signature for one in answers if one.op is not None}
    first = ops.get(layouts[0].ranks[0])
    for side in layouts[1:]:
        other = ops.get(side.ranks[0])
        what = difference(first, other, backend) if first is not None and other is not None else ""
        if what:
            return what
    return ""


def _layout(summary: wire.TensorSummary) -> str:
    return f"{summary.dtype}[{','.join(map(str, summary.shape))}]"


def _label(answers: Sequence[MemberAnswer], index: int) -> str:
    """`input`, or `output 2 of 3`."""
    tensors = next(
        one.tensors.tensors
        for one in answers
        if one.tensors is not None and index < len(one.tensors.tensors)
    )
    roles = [summary.role for summary in tensors]
    role, count = roles[index], roles.count(roles[index])
    return role if count == 1 else f"{role} {roles[: index + 1].count(role)} of {count}"
