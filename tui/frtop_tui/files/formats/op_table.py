"""Ops as CSV: one row per rank and op."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.formats.rank_ops import RankOp, rank_ops
from frtop_tui.job.issuer_words import full_path
from frtop_tui.job.naming import group_label, printable

COLUMNS: Final = {
    "rank": "global rank",
    "host": "",
    "pid": "empty if a dump does not say",
    "group": "name or description of the process group; empty: no group",
    "group_ranks": "its members, folded: 0-3,8",
    "group_epoch": "counts groups with the same name and members",
    "number": "among the group's collectives; for sends, receives and calls outside of"
    " groups: the rank's own count",
    "number_exact": "1: counted from the group's creation, so comparable between ranks",
    "p2p": "1: a send or receive",
    "kind": "",
    "reduce_op": "",
    "root": "global rank",
    "peer": "global rank: the other side of a send or receive",
    "tag": "",
    "inputs": "dtype[shape]xCOUNT, separated by blanks; empty: unknown",
    "outputs": "the same",
    "issued_unix_ns": "on the operator's clock; hosts' clocks are aligned by their measured offset",
    "issued_dated": "0: the rank issued it at that time or before",
    "end_unix_ns": "empty: pending, or unknown",
    "end": "exact; at most: found over then, may have ended before; failed; pending; unknown",
    "took_ns": "end minus issue; an upper bound if the end is `at most`",
    "timeout_ms": "its own timeout; 0: that of its group",
    "file": "of the line that issued it",
    "line": "",
    "function": "",
    "thread": "pthread ident",
    "sequence": "of the rank, over all groups",
    "phase": "forward, backward, optimizer, recompute (forward again, inside a backward), outside;"
    " empty: not recorded",
    "module": "that issued it, or that it is for: class of the outermost one, and the path below",
    "module_part": "a bucket of DDP, a compiled graph",
}
"""The columns in order, and what they mean."""
_FORMULA: Final = ("=", "+", "-", "@")
"""What starts a formula in spreadsheets: such texts get an apostrophe in front."""


def op_table(frame: Frame) -> bytes:
    """The whole file."""
    views = (view for _, view in sorted(frame.ranks.items()))
    return csv_of(COLUMNS, (_row(one) for view in views for one in rank_ops(frame, view)))


def csv_of(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> bytes:
    """A CSV file in UTF-8, with LF line ends."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(safe_cell, row) for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _row(one: RankOp) -> tuple[object, ...]:
    op, view, group = one.op, one.view, one.group
    signature = op.signature or wire.Signature("")
    site = op.site or wire.Site("", 0, "")
    issuer = op.issuer or wire.Issuer("")
    has_group = group is not None and not op.pseudo
    took = max(0, one.end_ns - one.begin_ns) if one.end_ns else None
    return (
        view.rank,
        view.host,
        view.identity.pid or None,
        group_label(group.name, group.description) if group is not None else "",
        group.ranks if group is not None else "",
        group.epoch if group is not None else None,
        op.number,
        int(group.exact and not op.p2p) if group is not None and has_group else 0,
        int(op.p2p),
        signature.kind,
        signature.reduce,
        signature.root,
        signature.peer,
        signature.tag,
        tensors_text(signature.inputs),
        tensors_text(signature.outputs),
        one.begin_ns,
        int(op.dated),
        one.end_ns or None,
        one.end,
        took,
        op.timeout_ms,
        site.file,
        site.line or None,
        site.function,
        op.thread or None,
        op.sequence,
        issuer.phase,
        full_path(issuer),
        issuer.part,
    )


def tensors_text(specs: tuple[wire.TensorSpec, ...] | None) -> str:
    """`float32[1024,8]x2 int64[]`."""
    return " ".join(
        f"{one.dtype}[{','.join(map(str, one.shape))}]{f'x{one.count}' if one.count > 1 else ''}"
        for one in specs or ()
    )


def safe_cell(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula, and no terminal for an escape."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text
