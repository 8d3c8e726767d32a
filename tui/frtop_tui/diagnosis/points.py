"""What ranks wait at, who has not entered it, and where the blame goes from there.

Edges go from a point to the points in which its absent members are themselves blocked.
Following them ends at sinks (members that are not blocked), at members that are gone, at
members nobody can see, at points that all have entered, or in a circle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from frtop_probe import wire
from frtop_tui.diagnosis.waiting import AT_LEAST_NS, Wait, patience_ns, timeout_ns
from frtop_tui.job.groups import Identifier, members_of
from frtop_tui.job.model import RankView

SETTLED_NS = 1_000_000_000
"""A rank that entered its own wait less than this ago is on its way, not blocked."""

PointId = tuple[object, ...]


@dataclass(slots=True, eq=False)
class Point:
    """An op that ranks are blocked in. `number` is None where it cannot be compared."""

    id: PointId
    op: wire.Op
    group: wire.Group | None
    number: int | None
    members: tuple[int, ...]
    waits: list[Wait] = field(default_factory=list)
    sinks: list[int] = field(default_factory=list)  # not entered, and free to go on
    gone: list[int] = field(default_factory=list)  # not entered, and never will
    unseen: list[int] = field(default_factory=list)  # nobody knows
    onward: dict[int, PointId] = field(default_factory=dict)  # not entered: blocked there
    seen: bool = False  # whether the members have been sorted

    @property
    def kind(self) -> str:
        return self.op.signature.kind if self.op.signature is not None else "an op"

    @property
    def since_ns(self) -> int:
        return min(wait.since_ns for wait in self.waits)

    @property
    def undated(self) -> bool:
        """Nobody knows how long anybody has waited there."""
        return all(wait.undated for wait in self.waits)

    @property
    def told_since_ns(self) -> int:
        """Since when, as far as that is known; else 0."""
        return 0 if self.undated else self.since_ns

    @property
    def waiting(self) -> list[int]:
        return [wait.rank for wait in self.waits]

    @property
    def entered_by_all(self) -> bool:
        return not (self.sinks or self.gone or self.unseen or self.onward)

    def left_s(self, now_ns: int) -> float | None:
        """Until the first waiter's own timeout."""
        left = [
            (wait.since_ns + limit - now_ns) / 1e9
            for wait in self.waits
            if not wait.undated and (limit := timeout_ns(wait.op, self.group))
        ]
        return max(0.0, min(left)) if left else None


class Points:
    """The points of one frame; those that matter are looked into on demand."""

    def __init__(self, ranks: Mapping[int, RankView], waits: Mapping[int, Wait]) -> None:
        self._ranks = ranks
        self._waits = waits
        self._fronts: dict[Identifier, tuple[list[int], list[int], list[int]]] = {}
        self.all: dict[PointId, Point] = {}
        for wait in waits.values():
            self._add(wait)

    def ripe(self, now_ns: int) -> list[Point]:
        """Points at which some wait is out of the ordinary, oldest first, looked into."""
        found = [
            point
            for point in self.all.values()
            if any(
                w.undated or now_ns - w.since_ns > patience_ns(w.op, point.group)
                for w in point.waits
            )
        ]
        return sorted(self._follow(found, now_ns), key=_order)

    def settled(self, now_ns: int) -> list[Point]:
        """Points at which ranks surely sit for some seconds: enough to see a circle."""
        found = [
            point
            for point in self.all.values()
            if any(w.undated or (w.sure and now_ns - w.since_ns > AT_LEAST_NS) for w in point.waits)
        ]
        return self._follow(found, now_ns)

    def at(self, ranks: Iterable[int], now_ns: int) -> list[Point]:
        """Points that one of `ranks` keeps waiting, whatever the length of the wait."""
        wanted = set(ranks)
        found = []
        for point in self.all.values():
            if wanted.isdisjoint(point.members):
                continue
            self.look_into(point, now_ns)
            if wanted & {*point.sinks, *point.gone, *point.onward}:
                found.append(point)
        return found

    def _follow(self, start: list[Point], now_ns: int) -> list[Point]:
        seen: dict[PointId, Point] = {}
        todo = list(start)
        while todo:
            point = todo.pop()
            if point.id in seen:
                continue
            seen[point.id] = point
            self.look_into(point, now_ns)
            todo.extend(self.all[onward] for onward in set(point.onward.values()))
        return list(seen.values())

    def _add(self, wait: Wait) -> None:
        view, op = self._ranks[wait.rank], wait.op
        group = view.groups.get(op.group)
        number: int | None = None
        if op.pseudo or group is None:
            key: PointId = ("pseudo", op.signature.kind if op.signature else "")
            members = tuple(self._ranks)
        elif op.p2p:
            key = ("p2p", wait.rank, op.sequence)
            members = members_of(group.ranks)
        else:
            number = op.number if group.exact else None
            key = (group.name, group.ranks, group.epoch, number)
            members = members_of(group.ranks)
        point = self.all.get(key)
        if point is None:
            point = self.all[key] = Point(key, op, group, number, members)
        point.waits.append(wait)

    def look_into(self, point: Point, now_ns: int) -> None:
        """Sorts the members that have not entered; once per frame and point."""
        if point.seen:
            return
        point.seen = True
        for rank in self._absent(point):
            view = self._ranks.get(rank)
            if view is None or view.posture == "unheard":
                point.unseen.append(rank)
            elif view.ending is not None:
                point.gone.append(rank)
            else:
                wait = self._waits.get(rank)
                onward = self._point_of(wait) if wait is not None and not wait.side else None
                settled = wait is not None and wait.has_lasted(SETTLED_NS, now_ns)
                if onward is not None and settled and onward != point.id:
                    point.onward[rank] = onward
                else:
                    point.sinks.append(rank)

    def _point_of(self, wait: Wait) -> PointId:
        op, group = wait.op, self._ranks[wait.rank].groups.get(wait.op.group)
        if op.pseudo or group is None:
            return ("pseudo", op.signature.kind if op.signature else "")
        if op.p2p:
            return ("p2p", wait.rank, op.sequence)
        return (group.name, group.ranks, group.epoch, op.number if group.exact else None)

    def _absent(self, point: Point) -> list[int]:
        group = point.group
        if group is None or point.op.pseudo:
            return self._absent_from_pseudo(point)
        if point.op.p2p:
            return self._absent_peer(point)
        if point.number is None:
            return [m for m in point.members if not self._has_pending(m, group)]
        numbers, ranks, never = self._numbers(group, point.members)
        return sorted([*ranks[: bisect_left(numbers, point.number)], *never])

    def _absent_from_pseudo(self, point: Point) -> list[int]:
        """`new_group`, `init_process_group`: everybody of the world has to come."""
        world = max((v.identity.job.world_size for v in self._ranks.values()), default=0)
        everybody = set(range(world)) | set(self._ranks)
        inside = {
            rank
            for rank, view in self._ranks.items()
            if any(op.pseudo and _kind(op) == point.kind for op in view.pending)
        }
        if point.kind == "init_process_group":
            inside |= {rank for rank, view in self._ranks.items() if view.groups}
        return sorted(everybody - inside)

    def _absent_peer(self, point: Point) -> list[int]:
        """The other side of a send or receive, unless its half is pending already."""
        op, rank = point.op, point.waits[0].rank
        peer = op.signature.peer if op.signature is not None else None
        if peer is None or peer == rank:
            return []
        view = self._ranks.get(peer)
        if view is None:
            return [peer]
        if view.pending_more:
            return []  # its half may be among those that were left out
        receives = "recv" in point.kind
        for other in view.pending:
            if other.signature is None or not other.p2p:
                continue
            answers = receives != ("recv" in other.signature.kind)
            if answers and other.signature.peer in (rank, None):
                return []
        return [peer]

    def _has_pending(self, rank: int, group: wire.Group) -> bool:
        view = self._ranks.get(rank)
        if view is None:
            return False
        number = local_number(view, group)
        return any(op.group == number and not op.p2p for op in view.pending)

    def _numbers(
        self, group: wire.Group, members: tuple[int, ...]
    ) -> tuple[list[int], list[int], list[int]]:
        """How far the members are, in order of numbers; and who was never heard of."""
        key = (group.name, group.ranks, group.epoch)
        known = self._fronts.get(key)
        if known is None:
            never = [rank for rank in members if rank not in self._ranks]
            pairs = sorted(
                (front_number(self._ranks[rank], group), rank)
                for rank in members
                if rank in self._ranks
            )
            known = ([number for number, _ in pairs], [rank for _, rank in pairs], never)
            self._fronts[key] = known
        return known


def _order(point: Point) -> tuple[int, int]:
    """The oldest first; where nobody knows how old they are, those with the most waiting."""
    return (-len(point.waits) if point.undated else 0, point.since_ns)


def circles(points: Iterable[Point]) -> list[list[Point]]:
    """Rings of points that wait for each other and from which no edge leads out."""
    known = {point.id: point for point in points}
    ends = {
        p.id
        for p in known.values()
        if p.sinks or p.gone or p.unseen or not p.onward or not known.keys() >= _onward(p)
    }
    leads_out = leading_to(ends, known.values())
    found: dict[frozenset[PointId], list[Point]] = {}
    for start in known.values():
        if start.id in leads_out:
            continue
        path: list[PointId] = []
        here = start.id
        while here not in path:
            path.append(here)
            here = next(iter(known[here].onward.values()))
        ring = path[path.index(here) :]
        found.setdefault(frozenset(ring), [known[identifier] for identifier in ring])
    return list(found.values())


def leading_to(ends: Iterable[PointId], points: Iterable[Point]) -> set[PointId]:
    """`ends`, and every point from which edges lead to one of them."""
    back: dict[PointId, list[PointId]] = {}
    for point in points:
        for onward in _onward(point):
            back.setdefault(onward, []).append(point.id)
    reached = set(ends)
    todo = list(reached)
    while todo:
        for before in back.get(todo.pop(), ()):
            if before not in reached:
                reached.add(before)
                todo.append(before)
    return reached


def _onward(point: Point) -> set[PointId]:
    return set(point.onward.values())


def local_number(view: RankView, group: wire.Group) -> int | None:
    """The rank's own number for a group that another rank knows as `group`."""
    same = view.groups.get(group.id)
    if same is group or (same is not None and _is_same(same, group)):
        return group.id
    return next((n for n, other in view.groups.items() if _is_same(other, group)), None)


def front_number(view: RankView, group: wire.Group) -> int:
    """Number of the last collective the rank has issued in `group`, 0 for none."""
    number = local_number(view, group)
    front = view.fronts.get(number) if number is not None else None
    newest = front.number if front is not None else 0
    # Pending ops may be newer than the front: both are read without a lock.
    for op in view.pending:
        if op.group == number and not op.p2p and op.number > newest:
            newest = op.number
    return newest


def _is_same(one: wire.Group, other: wire.Group) -> bool:
    return (one.name, one.ranks, one.epoch) == (other.name, other.ranks, other.epoch)


def _kind(op: wire.Op) -> str:
    return op.signature.kind if op.signature is not None else ""
