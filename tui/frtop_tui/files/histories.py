"""Decodes histories into ops, and puts them into frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.history_columns import unpack
from frtop_probe.ring.layout import Flag
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.statistics.of_frame import statistics_of

Value = TypeVar("Value")
_Flags = tuple[bool, bool, bool, bool, bool, bool, bool]
_SYNC: Final = int(Flag.SYNC)
_P2P: Final = int(Flag.P2P)
_UNTRACKED: Final = int(Flag.UNTRACKED)
_LATE: Final = int(Flag.LATE)
_DEVICE: Final = int(Flag.DEVICE)
_ENQUEUED: Final = int(Flag.ENQUEUED)


def ops_of(history: wire.History, newest: int = 0) -> tuple[wire.Op, ...]:
    """The `newest` ops of a history (0: all). Equal signatures and call sites are shared objects.

    An index beyond its table counts as unknown: the rest of the row may be right.

    Raises:
        ValueError: it has columns that do not fit together.
    """
    signatures, sites = _table(history.signatures), _table(history.sites)
    issuers = _table(history.issuers)
    flags_of: dict[int, _Flags] = {}
    return tuple(
        [
            wire.Op(
                sequence,
                group,
                number,
                signatures.get(signature),
                sites.get(site),
                issued_ns,
                (issued_ns + took_ns if took_ns > 0 else took_ns - issued_ns) if took_ns else 0,
                thread,
                sync,
                p2p,
                tracked,
                pseudo == 1,
                timeout_ms,
                0,
                0,
                0,
                True,
                timed,
                late,
                issued_ns + took_ns - waited_ns if took_ns > 0 < waited_ns else 0,
                on_device,
                enqueued,
                issuers.get(issuer),
            )
            for (
                sequence, group, number, signature, site, issued_ns, took_ns, thread, flags,
                pseudo, timeout_ms, issuer, waited_ns,
            ) in _rows(history, newest)
            for sync, p2p, tracked, timed, late, on_device, enqueued in (
                flags_of.get(flags) or _flags(flags, flags_of),
            )
        ]
    )  # fmt: skip


def _flags(flags: int, known: dict[int, _Flags]) -> _Flags:
    """The meanings of a row's flags, in the order that `ops_of` expects."""
    found = known[flags] = (
        bool(flags & _SYNC),
        bool(flags & _P2P),
        not flags & _UNTRACKED,
        not flags & wire.UNTIMED,
        bool(flags & _LATE),
        bool(flags & _DEVICE),
        bool(flags & _ENQUEUED),
    )
    return found


def _rows(history: wire.History, newest: int) -> Iterable[tuple[int, ...]]:
    """The fields of each op, in the order of `history_columns.FIELDS`."""
    if history.columns is None:
        return ()
    return zip(*(column[-newest:] for column in unpack(history.columns)), strict=True)


def _table(values: Sequence[Value]) -> dict[int, Value]:
    return dict(enumerate(values, 1))


def with_history(view: JudgedRank, history: wire.History | None, now_ns: int) -> JudgedRank:
    """The rank with its full history in its snapshot, instead of the last few ops."""
    if history is None or not (history.columns or history.marks):
        return view
    snapshot = view.snapshot or wire.Snapshot(view.key, now_ns - view.clock_ns)
    usual = {op.sequence: op for op in snapshot.ops if op.usual_count}
    ops = ops_of(history)
    if usual:  # histories do not contain usual durations
        ops = tuple(_with_usual(op, usual.get(op.sequence)) for op in ops)
    note = history.note or snapshot.ops_note
    snapshot = structs.replace(
        snapshot, ops=ops, ops_lost=history.lost, ops_note=note, marks=history.marks
    )
    return replace(view, snapshot=snapshot)


def _with_usual(op: wire.Op, known: wire.Op | None) -> wire.Op:
    if known is None:
        return op
    return structs.replace(op, usual_ns=known.usual_ns, usual_count=known.usual_count)


def with_recorded_ops(frame: Frame, histories: Mapping[int, wire.History]) -> Frame:
    """The frame with the histories of its ranks, and the statistics from them."""
    ranks = {
        rank: with_history(view, histories.get(rank), frame.now_ns)
        for rank, view in frame.ranks.items()
    }
    frame = replace(frame, ranks=ranks)
    found = statistics_of(frame, {rank: history.marks for rank, history in histories.items()})
    return replace(frame, statistics=found) if found is not None or histories else frame
