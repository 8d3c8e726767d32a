"""The histories of some ranks by field, fetched from agents or read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from frtop_tui.features.timeline.op_columns import OpColumns, columns_of_ops
from frtop_tui.job.model import BaseFrame, Rank


@dataclass(frozen=True, slots=True)
class Histories:
    """Histories by rank; `why_none` says why other ranks have none."""

    ops: Mapping[int, OpColumns] = field(default_factory=dict)
    why_none: Mapping[int, str] = field(default_factory=dict)


class _OfFrame(Mapping[int, OpColumns]):
    """The ops in a frame; a rank's ops are put into columns when they are first looked at."""

    def __init__(self, frame: BaseFrame) -> None:
        self._frame = frame
        self._made: dict[int, OpColumns] = {}

    def __getitem__(self, rank: int) -> OpColumns:
        if rank not in self._made:
            view = self._frame.ranks[rank]
            if view.snapshot is None and not view.pending:
                raise KeyError(rank)
            self._made[rank] = _of_view(view, self._frame.now_ns)
        return self._made[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._frame.ranks)

    def __len__(self) -> int:
        return len(self._frame.ranks)


def histories_in(frame: BaseFrame) -> Histories:
    """The histories in a frame: a file's frame has all that was recorded."""
    return Histories(_OfFrame(frame))


def _of_view(view: Rank, now_ns: int) -> OpColumns:
    snapshot = view.snapshot
    open_ops = {op.sequence: op for op in view.pending}
    if view.blocked_on is not None:
        open_ops.setdefault(view.blocked_on.sequence, view.blocked_on)
    ops = {op.sequence: op for op in (snapshot.ops if snapshot is not None else ())}
    if not view.evidence.has_one_naming:  # its pending ops are numbered separately
        waits = {(op.group, op.number, op.p2p) for op in open_ops.values()}
        ops = {n: op for n, op in ops.items() if (op.group, op.number, op.p2p) not in waits}
    ops |= {sequence: op for sequence, op in open_ops.items() if sequence not in ops}
    over = view.exit_info is not None and view.exit_info.at_ns
    return columns_of_ops(
        ops.values(),
        snapshot.marks if snapshot is not None else (),
        lost=snapshot.ops_lost if snapshot is not None else 0,
        note=snapshot.ops_note if snapshot is not None else "",
        known_until=over or now_ns - view.clock_ns,
        open_ops=open_ops,
        all_open=view.evidence.has_process,
    )
