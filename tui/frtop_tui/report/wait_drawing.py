"""The wait-for graph as boxes and arrows with places, for drawing. Pure.

Waiting ranks are above, whom they wait for below. An arrow that goes up closes a deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from frtop_probe.ring.rank_ranges import fold, unfold
from frtop_tui.diagnosis.trace import NodeTrace, Trace
from frtop_tui.job.naming import printable

BoxKind = Literal["waits", "free", "ended", "unobserved"]
PER_ROW: Final = 12
"""Boxes beside each other in one part of the graph; arrows to more of them cross boxes."""
PAGE_COLUMNS: Final = 3
"""Parts that are not connected stand beside each other up to this width."""
WIDTH: Final = 304
HEIGHT: Final = 54
GAP_X: Final = 22
GAP_Y: Final = 46
MARGIN: Final = 14
MOST_NODES: Final = 120
WORDS: Final[dict[BoxKind, str]] = {
    "waits": "",
    "free": "not entered, not blocked: blame ends here",
    "ended": "not entered, and its process ended",
    "unobserved": "not observed: may have entered",
}


@dataclass(frozen=True, slots=True)
class Box:
    """An op with the ranks that wait in it, or ranks that have not entered one."""

    kind: BoxKind
    title: str
    ranks: str
    overdue: bool
    x: int = 0
    y: int = 0


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a waiting op to those it waits for, as places of boxes; `ranks` are the absent ones."""

    source: int
    target: int
    ranks: str
    closes: bool = False


@dataclass(frozen=True, slots=True)
class WaitDrawing:
    """Boxes with the places of their upper left corners, in pixels."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    left_out: int = 0


def place_waits(trace: Trace) -> WaitDrawing:
    """Places the ops of a judgement: at most `MOST_NODES` of them."""
    nodes = trace.graph[:MOST_NODES]
    boxes = [Box("waits", printable(one.op), one.waiting, one.overdue) for one in nodes]
    arrows: list[Arrow] = []
    places = {one.op: index for index, one in reversed(list(enumerate(nodes)))}
    for index, one in enumerate(nodes):
        arrows += [
            Arrow(index, places[edge.op], edge.ranks) for edge in one.edges if edge.op in places
        ]
    _add_absent(nodes, boxes, arrows)
    boxes, arrows = _with_alike_joined(boxes, arrows)
    arrows = _with_closing(len(boxes), arrows)
    placed = _placed(boxes, _layers(len(boxes), arrows), _parts(len(boxes), arrows))
    width = max((one.x for one in placed), default=0) + WIDTH + MARGIN
    height = max((one.y for one in placed), default=0) + HEIGHT + MARGIN
    left_out = len(trace.graph) - len(nodes) + trace.more_nodes
    return WaitDrawing(tuple(placed), tuple(arrows), width, height, left_out)


def _add_absent(nodes: Sequence[NodeTrace], boxes: list[Box], arrows: list[Arrow]) -> None:
    """Adds a box for each set of absent ranks; a smaller set is drawn in the larger one."""
    absent: list[tuple[BoxKind, str, int]] = []
    for index, one in enumerate(nodes):
        kinds: tuple[tuple[BoxKind, str], ...] = (
            ("free", one.free),
            ("ended", one.ended),
            ("unobserved", one.unobserved),
        )
        absent += [(kind, ranks, index) for kind, ranks in kinds if ranks]
    members = {ranks: _members(ranks) for _, ranks, _ in absent}
    known: list[tuple[BoxKind, frozenset[int], int]] = []
    for kind, ranks, index in sorted(absent, key=lambda one: -len(members[one[1]])):
        place = next((at for k, all_of, at in known if k == kind and members[ranks] <= all_of), -1)
        if place < 0:
            place = len(boxes)
            boxes.append(Box(kind, WORDS[kind], ranks, overdue=True))
            known.append((kind, members[ranks], place))
        arrows.append(Arrow(index, place, ranks))


def _with_alike_joined(
    boxes: Sequence[Box], arrows: Sequence[Arrow]
) -> tuple[list[Box], list[Arrow]]:
    """Ops that wait for the same boxes, and that nobody waits for, share one box."""
    targets: list[set[int]] = [set() for _ in boxes]
    awaited = {arrow.target for arrow in arrows}
    for arrow in arrows:
        targets[arrow.source].add(arrow.target)
    alike: dict[tuple[frozenset[int], bool, int], list[int]] = {}
    for index, box in enumerate(boxes):
        own = box.kind != "waits" or index in awaited or not targets[index]
        key = (frozenset(targets[index]), box.overdue, index if own else -1)
        alike.setdefault(key, []).append(index)
    place = {index: at for at, members in enumerate(alike.values()) for index in members}
    joined = [_joined([boxes[index] for index in members]) for members in alike.values()]
    ranks: dict[tuple[int, int], set[int]] = {}
    for arrow in arrows:
        key_of = (place[arrow.source], place[arrow.target])
        ranks.setdefault(key_of, set()).update(_members(arrow.ranks))
    return joined, [Arrow(source, to, fold(who)) for (source, to), who in ranks.items()]


def _joined(alike: Sequence[Box]) -> Box:
    first = alike[0]
    if len(alike) == 1:
        return first
    ranks = frozenset[int]().union(*(_members(box.ranks) for box in alike))
    title = f"{len(alike)} alike: {first.title}"
    return Box(first.kind, title, fold(ranks), first.overdue)


def _members(ranks: str) -> frozenset[int]:
    try:
        return frozenset(unfold(ranks))
    except ValueError:
        return frozenset()


def _with_closing(count: int, arrows: Sequence[Arrow]) -> list[Arrow]:
    """The same arrows, with those marked that close a circle."""
    out: dict[int, list[int]] = {}
    for index, arrow in enumerate(arrows):
        out.setdefault(arrow.source, []).append(index)
    state = [0] * count  # 1: on the way from the first box to this one, 2: done
    closing: set[int] = set()
    for first in range(count):
        way = [(first, iter(out.get(first, ())))] if not state[first] else []
        if way:
            state[first] = 1
        while way:
            box, left = way[-1]
            index = next(left, -1)
            if index < 0:
                state[box] = 2
                way.pop()
                continue
            target = arrows[index].target
            if state[target] == 1:
                closing.add(index)
            elif state[target] == 0:
                state[target] = 1
                way.append((target, iter(out.get(target, ()))))
    return [
        Arrow(one.source, one.target, one.ranks, closes=index in closing)
        for index, one in enumerate(arrows)
    ]


def _layers(count: int, arrows: Sequence[Arrow]) -> list[int]:
    """How far below the first ones each box is: below everybody that waits for it."""
    layers = [0] * count
    forward = [one for one in arrows if not one.closes]
    for _ in range(count):
        moved = False
        for one in forward:
            if layers[one.target] <= layers[one.source]:
                layers[one.target] = layers[one.source] + 1
                moved = True
        if not moved:
            break
    return layers


def _parts(count: int, arrows: Sequence[Arrow]) -> list[list[int]]:
    """The boxes that arrows connect, together."""
    part = list(range(count))

    def root(index: int) -> int:
        while part[index] != index:
            part[index] = index = part[part[index]]
        return index

    for one in arrows:
        part[root(one.source)] = root(one.target)
    found: dict[int, list[int]] = {}
    for index in range(count):
        found.setdefault(root(index), []).append(index)
    return list(found.values())


def _rows(part: Sequence[int], layers: Sequence[int]) -> list[Sequence[int]]:
    rows: list[Sequence[int]] = []
    for layer in sorted({layers[index] for index in part}):
        row = [index for index in part if layers[index] == layer]
        rows += [row[at : at + PER_ROW] for at in range(0, len(row), PER_ROW)]
    return rows


def _placed(
    boxes: Sequence[Box], layers: Sequence[int], parts: Sequence[Sequence[int]]
) -> list[Box]:
    """Each part is a block of its own, so that no arrow goes through a box of another one."""
    placed = list(boxes)
    left, top, below = 0, 0, 0  # in columns and rows
    for part in parts:
        rows = _rows(part, layers)
        columns = max(map(len, rows))
        if left and left + columns > PAGE_COLUMNS:
            left, top = 0, below
        for number, row in enumerate(rows, top):
            for column, index in enumerate(row, left):
                x = MARGIN + column * (WIDTH + GAP_X)
                y = MARGIN + number * (HEIGHT + GAP_Y)
                placed[index] = replace(boxes[index], x=x, y=y)
        left += columns
        below = max(below, top + len(rows))
    return placed
