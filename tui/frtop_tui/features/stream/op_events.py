"""Ops of ranks as events of `frtop stream`, from a file or from ranks that are followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from frtop_probe import wire
from frtop_probe.statistics.op_bytes import tensor_bytes
from frtop_tui.connect.op_follower import FollowedOps
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.stream.events import EventsLost, OpEnded, OpIssued, StreamEvent
from frtop_tui.files.formats.rank_ops import known_ops
from frtop_tui.job.issuer_words import full_path
from frtop_tui.job.model import Rank
from frtop_tui.job.unix_times import Timeline, clock_errors

MAX_SHAPES = 16


class OpEvents:
    """Turns ops into events, using the groups and clocks of one frame."""

    def __init__(self, frame: Frame, timeline: Timeline) -> None:
        self._frame = frame
        self._timeline = timeline
        self._errors = clock_errors(frame)
        self._at_s = timeline.unix_s(frame.now_ns)

    def recorded(self, view: Rank) -> Iterator[StreamEvent]:
        """A rank's ops in a file: its history and its pending ops, in the order of issue."""
        for op in known_ops(view):
            yield self.issued(op, view)
            if not op.pending:
                yield self.ended(op, view)

    def followed(self, ranks: Iterable[FollowedOps]) -> Iterator[StreamEvent]:
        """New ops of ranks, and how many were lost."""
        for one in ranks:
            now = self._frame.ranks.get(one.view.rank)
            same = now is not None and (now.host, now.key) == (one.view.host, one.view.key)
            view = now if now is not None and same else one.view
            if one.lost or one.text:
                yield EventsLost(at_s=self._at_s, why="history", counts={"op_issued": one.lost},
                                 rank=view.rank, text=one.text)  # fmt: skip
            yield from (self.issued(op, view) for op in one.issued)
            yield from (self.ended(op, view) for op in one.ended)

    def issued(self, op: wire.Op, view: Rank) -> OpIssued:
        group, signature = view.groups.get(op.group), op.signature
        specs: tuple[wire.TensorSpec, ...] = ()
        if signature is not None:
            specs = (signature.inputs or signature.outputs or ())[:MAX_SHAPES]
        return OpIssued(
            **self._about(op, view),
            group_ranks=group.ranks if group else "",
            exact=group is not None and group.exact and not (op.pseudo or op.p2p),
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
            issued_s=self._timeline.of_rank(view, op.issued_ns),
            dated=op.dated,
        )

    def ended(self, op: wire.Op, view: Rank) -> OpEnded:
        """The end of an op. If `op` is still pending, when it ended is not known."""
        timed = op.timed and op.done_ns != 0
        return OpEnded(
            **self._about(op, view),
            ended_s=self._timeline.of_rank(view, abs(op.done_ns)) if timed else None,
            took_s=round((abs(op.done_ns) - op.issued_ns) / 1e9, 6) if timed and op.dated else None,
            late=op.late,
            tracked=op.tracked,
            failed=op.done_ns < 0,
        )

    def _about(self, op: wire.Op, view: Rank) -> dict[str, Any]:
        group = view.groups.get(op.group)
        return {
            "at_s": self._at_s,
            "rank": view.rank,
            "host": view.host,
            "sequence": op.sequence,
            "group": group.name if group else "",
            "number": op.number or None,
            "kind": op.signature.kind if op.signature else "",
            "error_s": self._errors.get(view.host),
        }
