"""Which other ranks hold the same data in the same op: checksums side by side. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank


@dataclass(frozen=True, slots=True)
class Agreement:
    """Members of the op's group by what is known of their data."""

    same: tuple[int, ...] = ()
    differ: tuple[int, ...] = ()
    other: tuple[int, ...] = ()  # another shape, or fewer values looked at: cannot be compared
    unasked: tuple[int, ...] = ()
    none: tuple[int, ...] = ()  # asked, and this op is not pending there, or has no data
    mute: tuple[int, ...] = ()  # asked, and could not say


def known_op(rank: JudgedRank, sequence: int) -> wire.Op | None:
    """The op of this sequence, as far as the rank's queue still tells of it."""
    for op in rank.pending:
        if op.sequence == sequence:
            return op
    if rank.blocked_on is not None and rank.blocked_on.sequence == sequence:
        return rank.blocked_on
    look = rank.snapshot
    found = (op for op in (look.ops if look is not None else ()) if op.sequence == sequence)
    return next(found, None)


def _place(rank: JudgedRank, sequence: int) -> tuple[object, ...] | None:
    """What the same op has in common on all its ranks; None where nothing is."""
    op = known_op(rank, sequence)
    group = rank.groups.get(op.group) if op is not None else None
    if op is None or group is None or op.p2p or not group.exact:
        return None
    return (group.name, group.ranks, group.epoch, op.number)


def agreement(frame: Frame, rank: JudgedRank, sequence: int, index: int) -> Agreement:
    """Compares tensor `index` of an op with that of the other ranks that have answered."""
    place = _place(rank, sequence)
    mine = _tensor(rank, sequence, index)
    if place is None or mine is None or not mine.checksum:
        return Agreement()
    found: tuple[list[int], ...] = ([], [], [], [], [], [])
    for number in _members(frame, place):
        if number == rank.rank:
            continue
        view = frame.ranks.get(number)
        theirs = _same_op(view, place, index)
        if view is None or view.tensors is None:
            found[3].append(number)
        elif theirs is None or not theirs.checksum:
            found[4 if view.tensors.error in ("", "none") else 5].append(number)
        elif (theirs.dtype, theirs.elements, theirs.seen) != (mine.dtype, mine.elements, mine.seen):
            found[2].append(number)
        else:
            found[0 if theirs.checksum == mine.checksum else 1].append(number)
    return Agreement(*map(tuple, found))


def _members(frame: Frame, place: tuple[object, ...]) -> tuple[int, ...]:
    for group in frame.groups:
        if (group.key.name, group.key.ranks, group.key.epoch) == place[:3]:
            return group.members
    return ()


def _tensor(rank: JudgedRank, sequence: int, index: int) -> wire.TensorSummary | None:
    for op in rank.tensors.ops if rank.tensors is not None else ():
        if op.sequence == sequence and index < len(op.tensors):
            return op.tensors[index]
    return None


def _same_op(
    rank: JudgedRank | None, place: tuple[object, ...], index: int
) -> wire.TensorSummary | None:
    if rank is None or rank.tensors is None:
        return None
    for op in rank.tensors.ops:
        if _place(rank, op.sequence) == place:
            return _tensor(rank, op.sequence, index)
    return None
