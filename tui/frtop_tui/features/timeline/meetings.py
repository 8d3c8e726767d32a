"""One collective across ranks: who arrived when, who arrived last, and when it was over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from frtop_probe import wire
from frtop_tui.features.timeline.lane import Lane, clock_error_ns
from frtop_tui.features.timeline.op_columns import OpColumns
from frtop_tui.job.arrivals import LateIn
from frtop_tui.job.groups import Identifier, identifier, members_of

_LOOKED_AT: Final = 64
"""At most this many ops of a group are searched; each is looked up in all members' lanes."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """One op. Times are on the operator's clock, `issued_ns` is by rank.

    Members in `absent` have certainly not issued it. Whether those in `unknown` have issued it
    is not known.
    """

    group: wire.Group
    number: int
    issued_ns: Mapping[int, int]
    members: tuple[int, ...]
    absent: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    ended_ns: int | None = None  # the last exact end; None: not known, or it is not over
    error_ns: int | None = None
    kinds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # who called what, if known

    @property
    def key(self) -> tuple[Identifier, int]:
        """What identifies this op on all ranks."""
        return identifier(self.group), self.number

    @property
    def complete(self) -> bool:
        """Whether the times of all members are known, and they called the same."""
        return len(self.kinds) <= 1 < len(self.members) == len(self.issued_ns)

    @property
    def first_ns(self) -> int:
        return min(self.issued_ns.values())

    @property
    def last_ns(self) -> int:
        return max(self.issued_ns.values())

    @property
    def last_rank(self) -> int:
        return max(self.issued_ns, key=self.issued_ns.__getitem__)


class Meetings:
    """Looks up collectives across the available lanes, each once."""

    def __init__(self, lane_of: Callable[[int], Lane | None]) -> None:
        """Args: lane_of: the lane of a rank; None: it is not in view."""
        self._lane_of = lane_of
        self._known: dict[tuple[Identifier, int], Meeting | None] = {}

    def of(self, lane: Lane, position: int) -> Meeting | None:
        """The collective that this op is part of; None if ranks do not share its number."""
        group = lane.groups.get(lane.ops.group[position])
        number = lane.ops.number[position]
        if group is None or not group.exact or not lane.ops.is_numbered(position):
            return None
        key = (identifier(group), number)
        if key not in self._known:
            near_ns = lane.ops.issued[position] + lane.clock_ns
            self._known[key] = self._look_up(group, key, near_ns)
        return self._known[key]

    def _look_up(
        self, group: wire.Group, key: tuple[Identifier, int], near_ns: int
    ) -> Meeting | None:
        members = members_of(group.ranks)
        issued: dict[int, int] = {}
        lanes, ends = [], []
        kinds: dict[str, list[int]] = {}
        absent: list[int] = []
        unknown: list[int] = []
        open_somewhere = False
        for rank in members:
            lane = self._lane_of(rank)
            position = lane.position(*key, near_ns) if lane is not None else None
            if lane is None or position is None:
                (absent if lane is not None and _not_yet(lane, key) else unknown).append(rank)
                continue
            ops = lane.ops
            issued[rank] = ops.issued[position] + lane.clock_ns
            lanes.append(lane)
            if kind := ops.kind(position):
                kinds.setdefault(kind, []).append(rank)
            if ops.pending(position):
                open_somewhere = True
            elif ops.end_known(position) and not (lane.at_most or ops.at_most(position)):
                ends.append(ops.end[position] + lane.clock_ns)
        ended = max(ends) if ends and not open_somewhere and not absent else None
        return Meeting(
            group,
            key[1],
            issued,
            members,
            tuple(absent),
            tuple(unknown),
            ended,
            clock_error_ns(lanes),
            {kind: tuple(ranks) for kind, ranks in kinds.items()},
        )


def last_late_op(lane: Lane, meetings: Meetings, late: LateIn, most_members: int) -> int | None:
    """Position of the newest of the `late` ops at which the lane's rank certainly arrived last.

    If a group has more than `most_members`, not all are in view, and nobody can say which came
    last: then it is simply the newest of these ops.
    """
    group = late.group
    own = lane.group_ids.get(group)
    if own is None:
        return None
    ops = lane.ops
    of_group = (n for n in reversed(range(len(ops))) if ops.group[n] == own and ops.is_numbered(n))
    here = list(islice((n for n in of_group if _is_sought(late, ops, n)), _LOOKED_AT))[::-1]
    if len(members_of(group[1])) > most_members:
        return here[-1] if here else None
    for position in reversed(here):
        meeting = meetings.of(lane, position)
        if meeting is None or not meeting.complete or meeting.last_rank != lane.rank:
            continue
        if meeting.error_ns is not None and meeting.last_ns - meeting.first_ns > meeting.error_ns:
            return position
    return None


def _not_yet(lane: Lane, key: tuple[Identifier, int]) -> bool:
    """Whether a rank has certainly not got that far in a group."""
    own = lane.group_ids.get(key[0])
    front = lane.front(own) if own is not None else None
    return front is not None and front < key[1]


def _is_sought(late: LateIn, ops: OpColumns, position: int) -> bool:
    """Whether an op of the group is one of the `late` ops."""
    site = ops.site[position]
    return (not late.kind or ops.kind(position) == late.kind) and (
        late.site is None or (site > 0 and ops.sites[site - 1] == late.site)
    )
