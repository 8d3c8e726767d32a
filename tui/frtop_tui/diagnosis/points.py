"""What ranks wait at, who has not entered it, and where the blame goes from there.

Edges go from a point to the points in which its absent members are themselves blocked.
Following them ends at sinks (members that are not blocked), at members that are gone, at
members nobody can see, at points that all have entered, or in a circle.

Points are kept from frame to frame. What was found out of one stands until somebody comes or
leaves there, its group gets on, or something else is known of those that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from frtop_probe import wire
from frtop_tui.diagnosis.moments import NEVER
from frtop_tui.diagnosis.point import Point, PointId, point_id
from frtop_tui.diagnosis.standing import Standing, front_number, local_number
from frtop_tui.diagnosis.survey import Survey

__all__ = ["Point", "PointId", "Points", "circles", "front_number", "leading_to", "local_number"]

SETTLED_NS = 1_000_000_000
"""A rank that entered its own wait less than this ago is on its way, not blocked."""
_Found = TypeVar("_Found")


class _Sorting:
    """When the members of a point that have not entered it were sorted, and what ends that."""

    __slots__ = ("standing", "turns", "until_ns", "watched")

    def __init__(self, watched: Iterable[int], standing: Standing | None) -> None:
        self.watched = set(watched)
        self.standing = standing
        self.turns = standing.turns if standing is not None else 0
        self.until_ns = NEVER

    def stands(self, moved: set[int], now_ns: int) -> bool:
        return (
            (self.standing is None or self.standing.turns == self.turns)
            and now_ns < self.until_ns
            and self.watched.isdisjoint(moved)
        )


class Points:
    """All points of a job; those that matter are looked into on demand."""

    def __init__(self, survey: Survey) -> None:
        self.all: dict[PointId, Point] = {}
        self._survey = survey
        self._everybody: tuple[int, ...] = ()
        self._at: dict[int, Point] = {}
        self._sorted: dict[Point, _Sorting] = {}
        self._changes = 0
        self._known: dict[str, tuple[int, Sequence[Point], object]] = {}

    def turn(self, now_ns: int) -> None:
        """Follows the survey, after its own turn."""
        survey = self._survey
        if survey.whole:
            self._everybody = tuple(survey.ranks)
            for point in self.all.values():
                point.everybody = self._everybody
        for rank in survey.rewaited:
            self._move(rank)
        if survey.whole or survey.recorrected:
            self._forget([*self._sorted])
        elif self._sorted:
            moved = survey.moved
            stale = [p for p, one in self._sorted.items() if not one.stands(moved, now_ns)]
            self._forget(stale)

    def ripe(self, now_ns: int) -> list[Point]:
        """Points at which some wait is out of the ordinary, oldest first, looked into."""
        start = [point for point in self.all.values() if point.is_ripe(now_ns)]
        return self._once("ripe", start, lambda: sorted(self._follow(start, now_ns), key=_order))

    def settled(self, now_ns: int) -> list[Point]:
        """Points at which ranks surely sit for some seconds, and where these lead."""
        start = [point for point in self.all.values() if point.is_settled(now_ns)]
        return self._once("settled", start, lambda: in_order(self._follow(start, now_ns)))

    def circles(self, points: Sequence[Point]) -> list[list[Point]]:
        """As `circles`, of points that were looked into."""
        return self._once("circles", points, lambda: circles(points))

    def at(self, ranks: Iterable[int], now_ns: int) -> list[Point]:
        """Points that one of `ranks` keeps waiting, whatever the length of the wait."""
        wanted = set(ranks)
        found = []
        for point in self.all.values():
            if wanted.isdisjoint(point.members):
                continue
            self.look_into(point, now_ns)
            if not (
                wanted.isdisjoint(point.sinks)
                and wanted.isdisjoint(point.gone)
                and wanted.isdisjoint(point.onward)
            ):
                found.append(point)
        return in_order(found)

    def look_into(self, point: Point, now_ns: int) -> None:
        """Sorts the members that have not entered, if that does not stand already."""
        if point in self._sorted:
            return
        absent, sorting = self._absent(point)
        self._sorted[point] = sorting
        sinks: list[int] = []
        gone: list[int] = []
        unseen: list[int] = []
        onwards: dict[int, Point] = {}
        survey = self._survey
        for rank in absent:
            view = survey.views.get(rank)
            if view is None or view.posture == "unheard":
                unseen.append(rank)
            elif view.ending is not None:
                gone.append(rank)
            else:
                wait, onward = survey.waits.get(rank), self._at.get(rank)
                blocked = wait is not None and not wait.side and onward is not point
                if wait is None or onward is None or not blocked:
                    sinks.append(rank)
                elif wait.has_lasted(SETTLED_NS, now_ns):
                    onwards[rank] = onward
                else:
                    sinks.append(rank)
                    sorting.until_ns = min(sorting.until_ns, wait.since_ns + SETTLED_NS)
        point.sinks, point.gone, point.unseen, point.onward = sinks, gone, unseen, onwards

    def _once(self, name: str, points: Sequence[Point], find: Callable[[], _Found]) -> _Found:
        """What was found of these points before, if none has changed since."""
        known = self._known.get(name)
        if known is None or known[0] != self._changes or known[1] != points:
            found = find()
            # After that: to look into points for the first time changes them.
            self._known[name] = (self._changes, points, found)
            return found
        return known[2]  # type: ignore[return-value]

    def _follow(self, start: Iterable[Point], now_ns: int) -> set[Point]:
        seen: set[Point] = set()
        todo = list(start)
        while todo:
            point = todo.pop()
            if point not in seen:
                seen.add(point)
                self.look_into(point, now_ns)
                todo.extend(point.onward.values())
        return seen

    def _move(self, rank: int) -> None:
        wait, before = self._survey.waits.get(rank), self._at.pop(rank, None)
        self._changes += 1
        key = point_id(wait) if wait is not None else None
        if before is not None and before.id != key and before.leave(rank):
            del self.all[before.id]
            self._sorted.pop(before, None)
        if wait is None or key is None:
            return
        point = self.all.get(key)
        if point is None:
            point = self.all[key] = Point(key, self._everybody)
        point.come(wait)
        self._at[rank] = point

    def _forget(self, points: Iterable[Point]) -> None:
        for point in points:
            del self._sorted[point]
            self._changes += 1

    def _absent(self, point: Point) -> tuple[list[int], _Sorting]:
        """Who has not entered, and how long that is so."""
        group = point.group
        if group is None or point.op.pseudo:
            return self._absent_from_pseudo(point)
        if point.op.p2p:
            return self._absent_peer(point)
        standing = self._survey.standing(group)
        if point.number is not None:
            absent = [*standing.behind(point.number), *standing.never]
        else:
            known = {m for m in standing.known if self._has_pending(m, group)}
            absent = [m for m in standing.members if m not in known]
        return sorted(absent), _Sorting(absent, standing)

    def _absent_from_pseudo(self, point: Point) -> tuple[list[int], _Sorting]:
        """`new_group`, `init_process_group`: everybody of the world has to come."""
        views = self._survey.views
        world = max((v.identity.job.world_size for v in views.values()), default=0)
        everybody = set(range(world)) | views.keys()
        inside = {
            rank
            for rank, view in views.items()
            if any(op.pseudo and _kind(op) == point.kind for op in view.pending)
        }
        if point.kind == "init_process_group":
            inside |= {rank for rank, view in views.items() if view.groups}
        return sorted(everybody - inside), _Sorting(everybody, None)

    def _absent_peer(self, point: Point) -> tuple[list[int], _Sorting]:
        """The other side of a send or receive, unless its half is pending already."""
        op, rank = point.op, point.waits[0].rank
        peer = op.signature.peer if op.signature is not None else None
        if peer is None or peer == rank:
            return [], _Sorting((), None)
        view = self._survey.views.get(peer)
        if view is None:
            return [peer], _Sorting((peer,), None)
        # Its half may be among those that were left out.
        there = view.pending_more > 0 or any(_answers(other, point, rank) for other in view.pending)
        return ([] if there else [peer]), _Sorting((peer,), None)

    def _has_pending(self, rank: int, group: wire.Group) -> bool:
        view = self._survey.views[rank]
        number = local_number(view, group)
        return any(op.group == number and not op.p2p for op in view.pending)


def in_order(points: Iterable[Point]) -> list[Point]:
    """By the first rank that waits there: no two points have the same one."""
    return sorted(points, key=_first)


def _first(point: Point) -> int:
    return point.waits[0].rank


def _order(point: Point) -> tuple[int, int, int]:
    """The oldest first; where nobody knows how old they are, those with the most waiting."""
    return (-len(point.waits) if point.undated else 0, point.since_ns, _first(point))


def circles(points: Iterable[Point]) -> list[list[Point]]:
    """Rings of points that wait for each other and from which no edge leads out."""
    known = dict.fromkeys(points)
    ends = {
        p
        for p in known
        if p.sinks or p.gone or p.unseen or not p.onward or not known.keys() >= set(p.leads_to)
    }
    leads_out = leading_to(ends, known)
    found: dict[frozenset[Point], list[Point]] = {}
    for start in known:
        if start in leads_out:
            continue
        path: list[Point] = []
        here = start
        while here not in path:
            path.append(here)
            here = next(iter(here.onward.values()))
        ring = path[path.index(here) :]
        found.setdefault(frozenset(ring), ring)
    return list(found.values())


def leading_to(ends: Iterable[Point], points: Iterable[Point]) -> set[Point]:
    """`ends`, and every point from which edges lead to one of them."""
    back: dict[Point, list[Point]] = {}
    for point in points:
        for onward in point.leads_to:
            back.setdefault(onward, []).append(point)
    reached = set(ends)
    todo = list(reached)
    while todo:
        for before in back.get(todo.pop(), ()):
            if before not in reached:
                reached.add(before)
                todo.append(before)
    return reached


def _answers(other: wire.Op, point: Point, rank: int) -> bool:
    """Whether a pending op of the peer is the other half of what `rank` waits in."""
    if other.signature is None or not other.p2p:
        return False
    opposite = ("recv" in point.kind) != ("recv" in other.signature.kind)
    return opposite and other.signature.peer in (rank, None)


def _kind(op: wire.Op) -> str:
    return op.signature.kind if op.signature is not None else ""
