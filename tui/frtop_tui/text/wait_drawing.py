"""The wait-for graph as boxes and arrows with places, for drawing. Pure.

Waiting ranks are above, whom they wait for below. An arrow that goes up closes a deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_tui.diagnosis.trace import Trace
from frtop_tui.text.wait_boxes import Arrow, Box, wait_boxes

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
    graph = wait_boxes(trace, MOST_NODES)
    boxes, arrows = graph.boxes, graph.arrows
    placed = _placed(boxes, _layers(len(boxes), arrows), _parts(len(boxes), arrows))
    width = max((one.x for one in placed), default=0) + WIDTH + MARGIN
    height = max((one.y for one in placed), default=0) + HEIGHT + MARGIN
    return WaitDrawing(tuple(placed), arrows, width, height, graph.left_out)


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
