"""Joins what the ranks of a group report about the same ops: when each rank arrived and ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from frtop_probe import wire
from frtop_probe.history_columns import unpack_column
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import SampledGroup, SampledOp
from frtop_tui.statistics.alike_groups import GroupAcross
from frtop_tui.statistics.answers import RankAnswer, clock_error

MOST_OPS: Final = 65_536
"""Most ops of one group, whatever agents send."""
RowKey = tuple[str, tuple[str, int], wire.Site | None, int, bool, bool]
"""Kind, groups that are alike, line, class of size, p2p, on a device."""


class JoinedOp:
    """One op, as far as its ranks have reported it."""

    __slots__ = ("bytes", "complete", "ended_ns", "exact", "issued", "last_ns", "last_rank",
                 "number", "result", "rows", "skew_ns", "slice")  # fmt: skip

    def __init__(self, number: int, slice_number: int) -> None:
        self.number = number
        self.slice = slice_number
        self.issued: dict[int, int] = {}
        self.ended_ns = self.exact = self.bytes = 0
        self.rows: list[RowKey] = []
        self.result: SampledOp | None = None
        self.complete = False
        self.skew_ns = self.last_ns = self.last_rank = 0

    @property
    def is_clear(self) -> bool:
        """Whether the last rank to arrive is certain: it is later by more than the clock error."""
        error = self.result.error_ns if self.result is not None else None
        return error is not None and self.skew_ns > error

    @property
    def transfer_ns(self) -> int | None:
        """From the last arrival to the last end; None if an end is not exact."""
        if not self.complete or self.exact < len(self.issued) or self.ended_ns <= self.last_ns:
            return None
        return self.ended_ns - self.last_ns


class JoinedGroup:
    """The ops of one group. Numbers mean the same ops on all ranks."""

    def __init__(self, known: GroupAcross) -> None:
        self.key: GroupKey = known.key
        self.members = known.members
        self.hosts: set[str] = set()
        self.ops: dict[int, JoinedOp] = {}
        self._strides: defaultdict[int, int] = defaultdict(lambda: 1)  # the largest of each slice
        self._last: tuple[object, SampledGroup] | None = None

    def add(
        self,
        answer: RankAnswer,
        sampled: wire.SampledOps,
        rows: Sequence[RowKey | None],
        number: int,
    ) -> None:
        packed = (
            sampled.number, sampled.issued_ns, sampled.took_ns, sampled.bytes, sampled.call
        )  # fmt: skip
        try:
            columns = [unpack_column(column, sampled.count) for column in packed]
        except ValueError:
            return
        self.hosts.add(answer.host)
        self._strides[number] = max(self._strides[number], sampled.stride)
        rank, clock = answer.rank, answer.clock_ns
        for op, issued, took, size, call in zip(*columns, strict=True):
            joined = self.ops.get(op)
            if joined is None:
                if len(self.ops) >= MOST_OPS:
                    continue
                joined = self.ops[op] = JoinedOp(op, number)
            if rank in joined.issued:
                continue  # its slices touch
            joined.result = None
            joined.issued[rank] = issued + clock
            if took > 0:
                joined.exact += 1
                joined.ended_ns = max(joined.ended_ns, issued + took + clock)
            joined.bytes = max(joined.bytes, size)
            row = rows[call] if 0 <= call < len(rows) else None
            if row is not None and row not in joined.rows:
                joined.rows.append(row)

    def forget(self, before: int) -> None:
        """Forgets ops of slices with smaller numbers."""
        if any(one.slice < before for one in self.ops.values()):
            self.ops = {number: op for number, op in self.ops.items() if op.slice >= before}
        for number in [number for number in self._strides if number < before]:
            del self._strides[number]

    def build(
        self, errors: Mapping[str, int | None], first: int = 0
    ) -> tuple[SampledGroup, list[JoinedOp]]:
        """The group, and its ops in the same order."""
        error = clock_error([errors.get(host) for host in self.hosts])
        strides, found = self._strides, []
        for number in sorted(self.ops):
            op = self.ops[number]
            if op.slice < first or not is_chosen(number, strides[op.slice]):
                continue  # before the window, or not reported by all ranks
            if op.result is None or op.result.error_ns != error:
                _finish(op, len(self.members), error)
            found.append(op)
        results = tuple(op.result for op in found if op.result is not None)
        stride = max(self._strides.values(), default=1)
        return SampledGroup(self.key, self.members, results, stride), found


def _finish(op: JoinedOp, members: int, error_ns: int | None) -> None:
    issued = op.issued
    op.complete = len(issued) == members
    op.last_rank = max(issued, key=issued.__getitem__)
    op.last_ns = issued[op.last_rank]
    op.skew_ns = op.last_ns - min(issued.values())
    row = op.rows[0] if op.rows else None
    op.result = SampledOp(
        op.number,
        dict(issued),
        op.complete,
        row[0] if row is not None else "",
        row[2] if row is not None else None,
        op.bytes,
        op.ended_ns or None,
        error_ns,
        op.transfer_ns,
    )
