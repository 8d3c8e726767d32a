"""Ops of ranks as events of `frtop stream`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from frtop_probe import wire
from frtop_probe.statistics.op_bytes import tensor_bytes
from frtop_tui.features.stream.events import OpEnded, OpIssued, StreamEvent
from frtop_tui.job.issuer_words import full_path
from frtop_tui.job.model import Rank
from frtop_tui.job.unix_times import Timeline

MAX_SHAPES = 16


def is_of(op: wire.Op, view: Rank, groups: Collection[str]) -> bool:
    """Whether an op is of one of these groups, by name or description; without groups it is."""
    if not groups:
        return True
    group = view.groups.get(op.group)
    return group is not None and (group.name in groups or group.description in groups)


def recorded_ops(view: Rank) -> tuple[wire.Op, ...]:
    """What a file has of a rank: its history, and what was pending, in the order of issue."""
    known = {op.sequence: op for op in view.pending}
    if view.snapshot is not None:
        known |= {op.sequence: op for op in view.snapshot.ops}
    return tuple(sorted(known.values(), key=lambda op: op.issued_ns))


def issued(
    op: wire.Op, view: Rank, timeline: Timeline, errors: Mapping[str, float | None], at_s: float
) -> OpIssued:
    """That `op` was issued by `view`, seen at `at_s`."""
    group, signature = view.groups.get(op.group), op.signature
    specs: tuple[wire.TensorSpec, ...] = ()
    if signature is not None:
        specs = (signature.inputs or signature.outputs or ())[:MAX_SHAPES]
    return OpIssued(
        at_s=at_s,
        rank=view.rank,
        host=view.host,
        sequence=op.sequence,
        group=group.name if group else "",
        group_ranks=group.ranks if group else "",
        number=op.number or None,
        exact=group is not None and group.exact and not (op.pseudo or op.p2p),
        kind=signature.kind if signature else "",
        p2p=op.p2p,
        sync=op.sync,
        reduce=signature.reduce if signature else None,
        root=signature.root if signature else None,
        peer=signature.peer if signature else None,
        dtypes=tuple(one.dtype for one in specs),
        shapes=tuple(one.shape for one in specs),
        bytes_in=tensor_bytes(signature.inputs) if signature else None,
        bytes_out=tensor_bytes(signature.outputs) if signature else None,
        site=f"{op.site.file}:{op.site.line} ({op.site.function})" if op.site else "",
        phase=op.issuer.phase if op.issuer else "",
        module=full_path(op.issuer) if op.issuer else "",
        module_part=op.issuer.part if op.issuer else "",
        issued_s=timeline.of_rank(view, op.issued_ns),
        dated=op.dated,
        error_s=errors.get(view.host),
    )


def ended(
    op: wire.Op,
    view: Rank,
    timeline: Timeline,
    errors: Mapping[str, float | None],
    at_s: float,
) -> OpEnded:
    """That `op` is over. Pending, it is over without anybody knowing since when."""
    group = view.groups.get(op.group)
    timed = op.timed and op.done_ns != 0
    return OpEnded(
        at_s=at_s,
        rank=view.rank,
        host=view.host,
        sequence=op.sequence,
        group=group.name if group else "",
        number=op.number or None,
        kind=op.signature.kind if op.signature else "",
        ended_s=timeline.of_rank(view, abs(op.done_ns)) if timed else None,
        took_s=round((abs(op.done_ns) - op.issued_ns) / 1e9, 6) if timed and op.dated else None,
        late=op.late,
        tracked=op.tracked,
        failed=op.done_ns < 0,
        error_s=errors.get(view.host),
    )


def op_events(
    ops: Collection[wire.Op],
    view: Rank,
    timeline: Timeline,
    errors: Mapping[str, float | None],
    at_s: float,
) -> Iterator[StreamEvent]:
    """Both events of each op, as far as it has come."""
    for op in ops:
        yield issued(op, view, timeline, errors, at_s)
        if not op.pending:
            yield ended(op, view, timeline, errors, at_s)
