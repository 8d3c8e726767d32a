"""A rank's lane: its ops, and how its clock and groups relate to those of other ranks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.features.timeline.letters import PHASES
from frtop_tui.features.timeline.op_columns import OpColumns, Spans
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.unprepared import without_recorder
from frtop_tui.statistics.answers import clock_error

NO_OPS: Final = OpColumns()


@dataclass(frozen=True)
class Lane:
    """One rank on the operator's clock: times in `ops` plus `clock_ns` are the operator's.

    `why_none` is shown where nothing is recorded. `error_ns` is how far the clock may be off, None
    if it was never measured. `at_most`: all ends of ops are upper bounds. `stalled_ns` is when
    others began to wait for it (operator's clock), `ended_ns` when its process ended (its own).
    """

    rank: int
    host: str
    ops: OpColumns = NO_OPS
    clock_ns: int = 0
    error_ns: int | None = None
    groups: Mapping[int, wire.Group] = field(default_factory=dict)
    fronts: Mapping[int, int] = field(default_factory=dict)  # by own id: the last number issued
    why_none: str = ""
    at_most: bool = False
    stalled_ns: int | None = None
    ended_ns: int | None = None

    @cached_property
    def group_ids(self) -> Mapping[Identifier, int]:
        """The rank's own id of each group whose numbers can be compared."""
        return {identifier(group): key for key, group in self.groups.items() if group.exact}

    @cached_property
    def spans(self) -> Spans:
        return Spans([mark for mark in self.ops.marks if mark.kind in PHASES])

    @cached_property
    def steps(self) -> Sequence[wire.Mark]:
        """Steps, oldest first. If the start of a step is not known, `begin_ns` is its end."""
        marks = [mark for mark in self.ops.marks if mark.kind == "step"]
        marks.sort(key=attrgetter("end_ns"))
        for index in range(len(marks) - 1, 0, -1):
            before = marks[index - 1]
            if marks[index].begin_ns == marks[index].end_ns and (
                marks[index].number == before.number + 1
            ):
                marks[index] = structs.replace(marks[index], begin_ns=before.end_ns)
        return marks

    @cached_property
    def notes(self) -> Sequence[wire.Mark]:
        marks = [mark for mark in self.ops.marks if mark.kind == "note"]
        return sorted(marks, key=attrgetter("begin_ns"))

    def front(self, group: int) -> int | None:
        """The last number that the rank issued in a group, by its own id; None: not known."""
        if group not in self.fronts and group not in self.ops.bounds:
            return None
        # A history may be newer than the frame that tells the progress.
        return max(self.fronts.get(group, 0), self.ops.bounds.get(group, (0, 0))[1])

    @property
    def known_until_ns(self) -> int:
        """The time up to which its ops are known (operator's clock); 0 without any."""
        return self.ops.known_until + self.clock_ns if len(self.ops) or self.ops.marks else 0

    def position(self, group: Identifier, number: int, near_ns: int | None = None) -> int | None:
        """The position of the collective `number` of a group; None if it is not here.

        `near_ns` is when another rank issued it (operator's clock).
        """
        own = self.group_ids.get(group)
        if own is None:
            return None
        near = near_ns - self.clock_ns if near_ns is not None else None
        return self.ops.find(own, number, near)

    def same_op(self, sequence: int, issued_ns: int) -> int | None:
        """The position of an op that was seen before: positions shift as older ops come and go."""
        issued = self.ops.issued
        for position in range(bisect_left(issued, issued_ns), len(issued)):
            if issued[position] != issued_ns:
                break
            if self.ops.sequence[position] == sequence:
                return position
        return None

    def pending_ns(self, position: int, now_ns: int) -> int:
        """How long an op has been pending at `now_ns` (the rank's clock), or was at the end."""
        until_ns = now_ns if self.ended_ns is None else self.ended_ns
        return max(0, until_ns - self.ops.issued[position])

    def last_by(self, at_ns: int) -> int:
        """Position of the last op issued by `at_ns` (operator's clock), -1 for none."""
        return bisect_left(self.ops.issued, at_ns - self.clock_ns + 1) - 1


def lane_of(
    frame: BaseFrame,
    rank: int,
    ops: OpColumns | None,
    why_none: str = "",
    stalled_ns: int | None = None,
) -> Lane:
    """The lane of a rank.

    Without `ops`, `why_none` says why there are none (yet).
    """
    view = frame.ranks.get(rank)
    if view is None:
        return Lane(rank, "", why_none="never reported")
    host = next((one for one in frame.hosts if one.name == view.host), None)
    why = (
        ""
        if ops is not None and (len(ops) or ops.marks)
        else why_none or _why_none(frame, view, ops)
    )
    dumped = not view.evidence.has_process
    if ops is not None and view.exit_info is not None and not view.identity.prepared:
        ops = _as_last_read(view, ops)
    return Lane(
        rank,
        view.host,
        ops or NO_OPS,
        view.clock_ns,
        host.clock_error_ns if host is not None else None,
        view.groups,
        _fronts(view),
        why,
        dumped or not view.identity.prepared,
        stalled_ns,
        view.exit_info.at_ns if view.exit_info is not None else None,
    )


def _as_last_read(view: Rank, ops: OpColumns) -> OpColumns:
    """The ops of a rank that ended, read from outside: nobody saw how long the last of them took.

    Its counters, which are read more often, show that it issued more.
    """
    pending = {op.sequence for op in view.pending}
    fronts = _fronts(view)
    return ops.without_end(
        position
        for position in range(len(ops) - 1, -1, -1)
        if ops.pending(position)
        and ops.sequence[position] not in pending
        and ops.is_numbered(position)
        and ops.number[position] < fronts.get(ops.group[position], 0)
    )


def _why_none(frame: BaseFrame, view: Rank, ops: OpColumns | None) -> str:
    if ops is not None and ops.note:
        return ops.note
    if without_recorder(view):
        return "not recorded: no recorder in its process"
    if view.state == "starting":
        return "no op yet"
    if ops is not None:
        return "no ops"
    return "not recorded" if frame.recorded is not None else "its agent was not asked yet"


def _fronts(view: Rank) -> dict[int, int]:
    """The last number issued in each group. A recorder only reports groups that have ops."""
    fronts = dict.fromkeys(view.groups, 0) if view.identity.prepared and view.status else {}
    return fronts | {key: one.number for key, one in view.group_progress.items()}


def clock_error_ns(lanes: Sequence[Lane]) -> int | None:
    """How far the clocks of any two of the lanes may be apart; None: not measured."""
    return clock_error({lane.host: lane.error_ns for lane in lanes if lane.host}.values())
