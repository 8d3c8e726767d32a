"""What ranks wait at, who has not entered it, and where the blame goes from there.

Edges go from a point to the points in which its absent members are themselves blocked.
Following them ends at sinks (members that are not blocked), at members that are gone, at
members nobody can see, at points that all have entered, or in a circle.

Points are kept from frame to frame. What was found out of one stands until somebody comes or
leaves there, its group gets on, or something else is known of those that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from frtop_probe import wire
from frtop_tui.diagnosis.moments import NEVER, What
from frtop_tui.diagnosis.point import Crowd, Point, PointId, call_id, crowd, point_id
from frtop_tui.diagnosis.standing import Standing, front_number, local_number
from frtop_tui.diagnosis.survey import Survey
from frtop_tui.job.model import Rank

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
        self._next_ns = NEVER  # when time alone ends one of these
        self._changes = 0
        self._that: dict[What, tuple[int, int, list[Point]]] = {}
        self._known: dict[Hashable, tuple[Sequence[Point], object]] = {}
        self._known_at = 0
        self._quiet: Mapping[str, int] = {}

    def turn(self, now_ns: int, quiet: Mapping[str, int] | None = None) -> None:
        """Follows the survey, after its own turn.

        Args:
            now_ns: as of the frame.
            quiet: hosts that have not been heard for a moment, and when they were last.
        """
        self._quiet = quiet or {}
        survey = self._survey
        if survey.whole:
            self._everybody = tuple(survey.ranks)
            for point in self.all.values():
                point.everybody = self._everybody
        for rank in survey.rewaited:
            self._move(rank)
        if survey.whole or survey.recorrected:
            self._sorted.clear()
            self._changes += 1
        elif survey.moved or now_ns >= self._next_ns:
            moved, known = survey.moved, self._sorted.items()
            for point in [point for point, one in known if not one.stands(moved, now_ns)]:
                # Mostly to the same: who is looked at, say, is known better, and waits on.
                self._changes += self._sort(point, now_ns)
            self._next_ns = min((one.until_ns for one in self._sorted.values()), default=NEVER)

    def that(self, are: What, now_ns: int) -> list[Point]:
        """Points at which somebody's wait is `ripe`, `settled`, `early` or `lasting`."""
        changes, until_ns, found = self._that.get(are, (-1, 0, []))
        if changes != self._changes or now_ns > until_ns:
            begins = {point: point.begins_ns(are, now_ns) for point in self.all.values()}
            found = [point for point, at_ns in begins.items() if now_ns > at_ns]
            until_ns = min((at_ns for at_ns in begins.values() if now_ns <= at_ns), default=NEVER)
            self._that[are] = (self._changes, until_ns, found)
        if self._quiet:
            # What goes on there since then nobody knows: no wait grows older by silence.
            found = [point for point in found if point.has_begun(are, self._heard_ns)]
        return found

    def _heard_ns(self, rank: int) -> int:
        return self._quiet.get(self._survey.views[rank].host, NEVER)

    def ripe(self, now_ns: int) -> list[Point]:
        """Points at which some wait is out of the ordinary, oldest first, looked into."""
        start = self.that("ripe", now_ns)
        return self._once("ripe", start, lambda: sorted(self._follow(start, now_ns), key=_order))

    def settled(self, now_ns: int) -> list[Point]:
        """Points at which ranks surely sit for some seconds, and where these lead."""
        start = self.that("settled", now_ns)
        return self._once("settled", start, lambda: in_order(self._follow(start, now_ns)))

    def ends(self, points: Sequence[Point]) -> list[Point]:
        """Those of `points` from which not all of the blame is passed on."""
        return self._once("ends", points, lambda: [p for p in points if p.sinks or not p.onward])

    def circles(self, points: Sequence[Point]) -> list[list[Point]]:
        """As `circles`, of points that were looked into."""
        return self._once("circles", points, lambda: circles(points))

    def awaiting(self, ranks: Sequence[int], points: Sequence[Point]) -> list[Point]:
        """Those of `points` at which one of `ranks` is awaited, directly or through others."""
        return self._once(("awaiting", *ranks), points, lambda: _awaiting(ranks, points))

    def crowd(self, points: Sequence[Point]) -> Crowd:
        """All who wait at these points."""
        waiting = (point.waiting for point in points)
        return self._once(
            ("crowd", points[0].id), points, lambda: crowd(chain.from_iterable(waiting))
        )

    def at(self, ranks: Iterable[int], now_ns: int) -> list[Point]:
        """Points that one of `ranks` keeps waiting, whatever the length of the wait."""
        wanted = set(ranks)
        found = []
        for point in self.all.values():
            # Of a message the group is as large as any, and no more than one rank is awaited.
            if wanted.isdisjoint((point.peer,) if point.op.p2p else point.members):
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
        if point not in self._sorted:
            self._sort(point, now_ns)
            self._next_ns = min(self._next_ns, self._sorted[point].until_ns)

    def _sort(self, point: Point, now_ns: int) -> bool:
        """Whether that comes to anything else than before."""
        before = (point.sinks, point.gone, point.unseen, point.onward)
        absent, sorting = self._absent(point)
        self._sorted[point] = sorting
        sinks: list[int] = []
        gone: list[int] = []
        unseen: list[int] = []
        onwards: dict[int, Point] = {}
        survey = self._survey
        for rank in absent:
            view = survey.views.get(rank)
            if view is None or view.state == "unheard":
                unseen.append(rank)
            elif view.exit_info is not None:
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
        now = (sinks, gone, unseen, onwards)
        if now == before:
            return False
        point.sinks, point.gone, point.unseen, point.onward = now
        return True

    def _once(self, what: Hashable, points: Sequence[Point], find: Callable[[], _Found]) -> _Found:
        """What was found of these points before, if none of all points has changed since."""
        if self._known_at != self._changes:
            self._known, self._known_at = {}, self._changes
        known = self._known.get(what)
        if known is None or known[0] != points:
            known = self._known[what] = (points, find())
        return known[1]  # type: ignore[return-value]

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
        """`init_process_group`, and calls that do not tell: everybody of the world has to come."""
        views = self._survey.views
        everybody = set(point.callers or ())
        if not everybody:
            world = max((v.identity.job.world_size for v in views.values()), default=0)
            everybody = {*range(world), *views}
        absent = [rank for rank in everybody if not _is_inside(views.get(rank), point)]
        return sorted(absent), _Sorting(everybody, None)

    def _absent_peer(self, point: Point) -> tuple[list[int], _Sorting]:
        """The other side of a send or receive, unless its half is pending already."""
        rank, peer = point.waits[0].rank, point.peer
        if peer is None or peer == rank:
            return [], _Sorting((), None)
        view = self._survey.views.get(peer)
        if view is None:
            return [peer], _Sorting((peer,), None)
        # Its half may be among those that were left out.
        there = view.pending_more > 0 or any(
            answers(other, point) and not self._has_left(peer, other) for other in view.pending
        )
        return ([] if there else [peer]), _Sorting((peer,), None)

    def _has_left(self, rank: int, half: wire.Op) -> bool:
        """Whether a rank waits elsewhere since it issued its half of a message.

        Nobody may have looked yet whether that is complete, and if the other half is there
        as well, it is: then another message is awaited.
        """
        wait = self._survey.waits.get(rank)
        if wait is None or half.sync or not wait.sure or wait.side:
            return False
        # Which one of several messages is waited for late is a guess.
        known = wait.op.sync or not wait.op.p2p
        return known and wait.op.sequence > half.sequence

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
    done = leading_to(ends, known)
    found = list[list[Point]]()
    for start in known:
        path: dict[Point, None] = {}
        here = start
        while here not in done and here not in path:
            path[here] = None
            here = next(iter(here.onward.values()))
        if here in path:
            ring = [*path]
            found.append(ring[ring.index(here) :])
        done |= path.keys()
    return found


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


def _awaiting(ranks: Iterable[int], points: Sequence[Point]) -> list[Point]:
    wanted = set(ranks)
    reached = leading_to([p for p in points if not wanted.isdisjoint(p.sinks)], points)
    return [point for point in points if point in reached]


def answers(other: wire.Op, point: Point) -> bool:
    """Whether a pending op of the peer is the other half of the one waited in at `point`."""
    if other.signature is None or not other.p2p:
        return False
    opposite = ("recv" in point.kind) != ("recv" in other.signature.kind)
    mine = other.signature.peer in (point.waits[0].rank, None)
    return opposite and mine and not tags_differ(point, other)


def _is_inside(view: Rank | None, point: Point) -> bool:
    """Whether a rank is in the call that makes a group; in the world's first, or through it."""
    if view is None:
        return False
    through = point.kind == "init_process_group" and bool(view.groups)
    return through or any(op.pseudo and call_id(op) == point.id for op in view.pending)


def tags_differ(point: Point, other: wire.Op) -> bool:
    """Whether a send and a receive never meet, as one has another tag; NCCL knows no tags."""
    mine, theirs = point.op.signature, other.signature
    if mine is None or theirs is None or point.group is None or "nccl" in point.group.backend:
        return False
    return None not in (mine.tag, theirs.tag) and mine.tag != theirs.tag


def _kind(op: wire.Op) -> str:
    return op.signature.kind if op.signature is not None else ""
