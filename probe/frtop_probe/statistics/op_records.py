"""Converts ops from files and from torch's Flight Recorder to `OpFields`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from frtop_probe import wire
from frtop_probe.statistics.calls import CallKey, OpClass, OpFields, RankCalls, SiteTable
from frtop_probe.statistics.op_bytes import op_bytes

_Kind = tuple[int, int, int, bool, bool, bool, bool, bool, bool, int]


def fields_of(
    ops: Iterable[wire.Op],
    table: RankCalls,
    sites: SiteTable,
    members: Callable[[int], int],
) -> OpFields:
    """Returns ops in order of issue, without pseudo-ops and ops whose time is unknown.

    Args:
        ops: in any order.
        table: gets a row for each kind of op.
        sites: gets their lines.
        members: returns the number of ranks in a group, 0 if unknown.
    """
    classes: dict[_Kind, OpClass] = {}
    rows = []
    for op in ops:
        if op.pseudo or op.issued_ns <= 0:
            continue
        kind = (op.group, id(op.signature), id(op.site), op.p2p, op.tracked, op.timed, op.late,
                op.sync, op.on_device, id(op.issuer))  # fmt: skip
        one = classes.get(kind)
        if one is None:
            one = classes[kind] = _class_of(op, table, sites, members)
        took = 0 if not op.done_ns else max(1, op.done_ns - op.issued_ns) if op.done_ns > 0 else -1
        waited = op.done_ns - op.wait_ns if op.done_ns > op.wait_ns >= op.issued_ns else 0
        rows.append((op.issued_ns, op.sequence, one, op.number, took, op.thread, waited))
    rows.sort(key=lambda row: row[:2])
    if not rows:
        return OpFields((), (), (), (), (), ())
    issued, _, found, number, took_ns, thread, waits = zip(*rows, strict=True)
    return OpFields(found, number, issued, took_ns, thread, waits)


def _class_of(
    op: wire.Op, table: RankCalls, sites: SiteTable, members: Callable[[int], int]
) -> OpClass:
    signature = op.signature
    size = op_bytes(signature, members(op.group)) if signature is not None else None
    kind = signature.kind if signature is not None else ""
    key = CallKey(
        kind, op.group, sites.place(op.site), (size or 0).bit_length(), op.p2p, op.on_device
    )
    return OpClass(
        table.place(key),
        op.group,
        collective=not op.p2p and op.group > 0,
        size=size or 0,
        exact=op.tracked and op.timed and not op.late,
        late=op.tracked and op.timed and op.late,
        sync=op.sync,
        module=sites.module(op.issuer, kind),
        message=op.p2p and not op.on_device,
    )
