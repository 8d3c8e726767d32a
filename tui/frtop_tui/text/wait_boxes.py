"""The wait-for graph as boxes and arrows: the one definition for drawings and for screens. Pure.

A box is an op with the ranks that wait in it, or ranks that have not entered one. Ops that wait
for the same boxes, and that no rank waits for, share a box: hundreds become few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Edge, NodeTrace, Trace
from frtop_tui.job.groups import members_of
from frtop_tui.job.naming import printable

BoxKind = Literal["waits", "free", "between", "ended", "unobserved", "differs"]
WORDS: Final[dict[BoxKind, str]] = {
    "waits": "",
    "free": "root cause: it waits for no rank",
    "between": "in no op at this moment; nobody waits unusually long",
    "ended": "not entered, and its process ended",
    "unobserved": "not observed: may have entered",
    "differs": "called something else",
}


@dataclass(frozen=True, slots=True)
class Box:
    """An op with the ranks that wait in it, or ranks that have not entered one.

    `seconds` is the longest wait; `alike` are the ops that share the box. `x` and `y` are its
    place in a drawing.
    """

    kind: BoxKind
    title: str
    ranks: str
    overdue: bool
    seconds: float | None = None
    alike: tuple[Box, ...] = ()
    x: int = 0
    y: int = 0


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a waiting op to what it waits for, by index of boxes; `ranks` are the absent ones."""

    source: int
    target: int
    ranks: str
    closes: bool = False


@dataclass(frozen=True, slots=True)
class WaitBoxes:
    """`left_out`: how many ops with waiting ranks have no box."""

    boxes: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    left_out: int = 0


def wait_boxes(trace: Trace, most_nodes: int) -> WaitBoxes:
    """The boxes of at most `most_nodes` ops of a judgement."""
    nodes = trace.graph[:most_nodes]
    boxes = [
        Box("waits", printable(one.op), _in_the_op(one), one.overdue, one.seconds) for one in nodes
    ]
    arrows: list[Arrow] = []
    places = {one.op: index for index, one in reversed(list(enumerate(nodes)))}
    for index, one in enumerate(nodes):
        for edge in one.edges:
            target = edge.node if edge.node >= 0 else places.get(edge.op, len(nodes))
            if target < len(nodes):
                arrows.append(Arrow(index, target, edge.ranks))
    _add_absent(nodes, boxes, arrows)
    boxes, arrows = _with_alike_joined(boxes, arrows)
    arrows = _with_closing(len(boxes), arrows)
    return WaitBoxes(tuple(boxes), tuple(arrows), len(trace.graph) - len(nodes) + trace.more_nodes)


def differs_words(edge: Edge) -> str:
    """What ranks did that made another call than the others at one number."""
    return f"called {printable(edge.op)} instead"


def _in_the_op(node: NodeTrace) -> str:
    """The waiting ranks, without those that wait in another op at its number."""
    if not node.differ:
        return node.waiting
    others = {rank for edge in node.differ for rank in members_of(edge.ranks)}
    return fold(rank for rank in members_of(node.waiting) if rank not in others)


def _add_absent(nodes: Sequence[NodeTrace], boxes: list[Box], arrows: list[Arrow]) -> None:
    """Adds a box for each set of absent ranks; a smaller set is drawn in the larger one."""
    absent: list[tuple[BoxKind, str, int]] = []
    for index, one in enumerate(nodes):
        kinds: tuple[tuple[BoxKind, str], ...] = (
            ("free" if one.overdue else "between", one.free),
            ("ended", one.ended),
            ("unobserved", one.unobserved),
        )
        absent += [(kind, ranks, index) for kind, ranks in kinds if ranks]
    members = {ranks: frozenset(members_of(ranks)) for _, ranks, _ in absent}
    known: list[tuple[BoxKind, frozenset[int], int]] = []
    for kind, ranks, index in sorted(absent, key=lambda one: -len(members[one[1]])):
        place = next((at for k, all_of, at in known if k == kind and members[ranks] <= all_of), -1)
        if place < 0:
            place = len(boxes)
            boxes.append(Box(kind, WORDS[kind], ranks, overdue=kind != "between"))
            known.append((kind, members[ranks], place))
        arrows.append(Arrow(index, place, ranks))
    for index, one in enumerate(nodes):
        for edge in one.differ:
            boxes.append(Box("differs", differs_words(edge), edge.ranks, overdue=True))
            arrows.append(Arrow(index, len(boxes) - 1, edge.ranks))


def _with_alike_joined(
    boxes: Sequence[Box], arrows: Sequence[Arrow]
) -> tuple[list[Box], list[Arrow]]:
    """Ops that wait for the same boxes, and that no rank waits for, share one box."""
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
        ranks.setdefault(key_of, set()).update(members_of(arrow.ranks))
    return joined, [Arrow(source, to, fold(who)) for (source, to), who in ranks.items()]


def _joined(alike: Sequence[Box]) -> Box:
    first = alike[0]
    if len(alike) == 1:
        return first
    ranks = frozenset[int]().union(*(members_of(box.ranks) for box in alike))
    title = f"{len(alike)} alike: {first.title}"
    seconds = max((box.seconds for box in alike if box.seconds is not None), default=None)
    return Box(first.kind, title, fold(ranks), first.overdue, seconds, tuple(alike))


def _with_closing(count: int, arrows: Sequence[Arrow]) -> list[Arrow]:
    """The same arrows; those that close a deadlock are marked."""
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
