"""Finds which unfinished op blocks a rank: dumps do not say.

A device runs the ops of a group in the order of issue. So the oldest unfinished op of each group
counts, and among these the first that some rank has not issued yet; if all ranks have issued all of
them, the oldest. A rank whose stack is clearly elsewhere is blocked in none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.evidence.stack_location import OP_WAITS
from frtop_tui.diagnosis.evidence.stack_state import has_device, stack_state
from frtop_tui.diagnosis.thresholds import MIN_PATIENCE_NS
from frtop_tui.files.flightrecorder.ops import Ops
from frtop_tui.job.model import OneRank, Rank

_SKEW_NS: Final = 60_000_000_000
"""Largest clock error: if a file is older than its content by more than this, its time is wrong."""


def blocked_ops(
    views: Mapping[int, Rank], ops: Ops, written: Mapping[int, int]
) -> dict[int, wire.Op]:
    """The blocking op by rank; omits ranks with no unfinished op, or only a new one.

    `written` is when each file last changed: after the dump, or later if somebody copied it.
    """
    fronts = _Fronts(views)
    found: dict[int, wire.Op] = {}
    for rank, view in views.items():
        if view.state == "unreachable":
            continue
        heads = [op for op in _heads(view) if not _young(op, written.get(rank, 0))]
        if not heads or _is_elsewhere(view):
            continue
        awaited = [op for op in heads if fronts.is_awaited(view, op, ops)]
        found[rank] = min(awaited or heads, key=_order)
    return found


def unfinished_ops(views: Mapping[int, OneRank], written: Mapping[int, int]) -> dict[int, OneRank]:
    """Ranks whose dumps have ops that were unfinished for a while, with these as `pending`.

    They include ranks whose stacks are elsewhere, and ranks that have continued since.
    """
    found = {}
    for rank, view in views.items():
        if view.evidence.has_numbers:
            ops = [op for op in view.pending if not _young(op, written.get(rank, 0))]
            if ops:
                found[rank] = replace(view, pending=tuple(ops))
    return found


def outdated(views: Mapping[int, Rank], completed: Mapping[int, int]) -> list[int]:
    """Ranks that must have continued after their dumps.

    Other ranks have completed an op (the last one of each group) that these had not issued in their
    dumps. If they had issued it and it is unfinished, their devices are behind
    (`cases.stuck` of the diagnosis).
    """
    found = []
    for rank, view in views.items():
        for number, group in view.groups.items():
            if 0 < last_issued_number(view, group) < completed.get(number, 0):
                found.append(rank)
                break
    return found


def _is_elsewhere(view: Rank) -> bool:
    """Whether its stack clearly waits for no op and no device.

    A running line may be waiting for room in the device's queue.
    """
    if working_location(view) is None:
        return False
    found = stack_state(view)
    if found is None or found.at_device or found.location.kind in OP_WAITS:
        return False
    runs = found.activity == "running" and not has_device(view)
    return runs or found.activity == "away"


def _order(op: wire.Op) -> tuple[bool, bool, int]:
    """Collectives first, then sends: a receive may have been posted long before its time."""
    receives = op.p2p and op.signature is not None and "recv" in op.signature.kind
    return receives, op.p2p, op.issued_ns


def _heads(view: Rank) -> list[wire.Op]:
    """The oldest unfinished op of each group, and with each peer."""
    found: dict[tuple[int, int | None, str], wire.Op] = {}
    for op in view.pending:
        if op.p2p:
            signature = op.signature
            key = (op.group, signature.peer, signature.kind) if signature else (op.group, None, "")
        else:
            key = (op.group, -1, "")
        found.setdefault(key, op)
    return list(found.values())


def _young(op: wire.Op, written_ns: int) -> bool:
    """Whether a rank issued an op just before the dump: a running job always has such ops."""
    return is_recent(op.issued_ns, written_ns)


def is_recent(at_ns: int, written_ns: int) -> bool:
    """Whether something happened just before a file was written."""
    return bool(at_ns) and -_SKEW_NS < written_ns - at_ns < MIN_PATIENCE_NS


class _Fronts:
    """How far all ranks are in every group."""

    def __init__(self, views: Mapping[int, Rank]) -> None:
        self._views = views
        self._least: dict[int, int] = {}

    def is_awaited(self, view: Rank, op: wire.Op, ops: Ops) -> bool:
        group = view.groups[op.group]
        if not op.p2p:
            return self._last(group, ops) < op.number
        peer = op.signature.peer if op.signature is not None else None
        other = self._views.get(peer) if peer is not None else None
        if peer is None or other is None:
            return peer is not None
        mine = op.signature is not None and "recv" in op.signature.kind
        return not any(
            answer.p2p
            and answer.signature is not None
            and answer.signature.peer == view.rank
            and ("recv" in answer.signature.kind) != mine
            for answer in other.pending
        )

    def _last(self, group: wire.Group, ops: Ops) -> int:
        """The last op that all members have issued; members without a dump have issued none."""
        least = self._least.get(group.id)
        if least is None:
            members = ops.members(group.id)
            least = min(
                (
                    last_issued_number(self._views[rank], group) if rank in self._views else 0
                    for rank in members
                ),
                default=0,
            )
            self._least[group.id] = least
        return least
