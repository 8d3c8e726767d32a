"""Decodes histories into ops."""

from __future__ import annotations

from typing import Final

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.layout import Flag
from frtop_tui.diagnosis.model import JudgedRank

_SYNC: Final = int(Flag.SYNC)
_P2P: Final = int(Flag.P2P)
_UNTRACKED: Final = int(Flag.UNTRACKED)
_LATE: Final = int(Flag.LATE)


def ops_of(history: wire.History) -> tuple[wire.Op, ...]:
    """The ops of a history. Equal signatures and call sites are shared objects.

    An index outside its table counts as unknown: the rest of the row may be right.
    """
    signatures, sites = (None, *history.signatures), (None, *history.sites)
    return tuple(
        [
            wire.Op(
                row.sequence,
                row.group,
                row.number,
                signatures[row.signature] if 0 <= row.signature < len(signatures) else None,
                sites[row.site] if 0 <= row.site < len(sites) else None,
                row.issued_ns,
                _done_ns(row),
                row.thread,
                bool(row.flags & _SYNC),
                bool(row.flags & _P2P),
                not row.flags & _UNTRACKED,
                row.pseudo,
                row.timeout_ms,
                timed=not row.flags & wire.UNTIMED,
                late=bool(row.flags & _LATE),
            )
            for row in history.rows
        ]
    )


def with_history(view: JudgedRank, history: wire.History | None, now_ns: int) -> JudgedRank:
    """The rank with its full history in its snapshot, in place of the last few ops."""
    if history is None or not history.rows:
        return view
    snapshot = view.snapshot or wire.Snapshot(view.key, now_ns - view.clock_ns)
    usual = {op.sequence: op for op in snapshot.ops if op.usual_count}
    ops = ops_of(history)
    if usual:  # histories do not hold usual durations
        ops = tuple(_with_usual(op, usual.get(op.sequence)) for op in ops)
    note = history.note or snapshot.ops_note
    snapshot = structs.replace(snapshot, ops=ops, ops_lost=history.lost, ops_note=note)
    return replace(view, snapshot=snapshot)


def _done_ns(row: wire.HistoryRow) -> int:
    if not row.took_ns:
        return 0
    done = row.issued_ns + abs(row.took_ns)
    return done if row.took_ns > 0 else -done


def _with_usual(op: wire.Op, known: wire.Op | None) -> wire.Op:
    if known is None:
        return op
    return structs.replace(op, usual_ns=known.usual_ns, usual_count=known.usual_count)
