"""The wait-for graph as boxes and arrows with places, for drawing. Pure.

Waiting ranks are above the ranks that they wait for. An arrow that goes up closes a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

from frtop_tui.diagnosis.model import Trace
from frtop_tui.job.naming import rank_words
from frtop_tui.text.wait_boxes import Arrow, Box, wait_boxes

LETTERS_PER_LINE: Final = 42
_RANKS_LENGTH: Final = 34
_MOST_LABELS: Final = 40
"""More labels would cover each other; boxes and titles have the same words."""


def drawing_svg(graph: WaitDrawing) -> str:
    """One `svg` element; "" if nobody waits."""
    if not graph.boxes:
        return ""
    labels = len(graph.arrows) <= _MOST_LABELS
    width = graph.width + GAP_X  # arrows along the right side of the last column
    parts = [
        f'<svg class="graph" viewBox="0 0 {width} {graph.height}" width="{width}"',
        'role="img" aria-label="who waits for whom">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"',
        'markerHeight="7" orient="auto"><path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        *(_arrow(graph, arrow, labelled=labels) for arrow in graph.arrows),
        *(line for box in graph.boxes for line in _box(box)),
        "</svg>",
    ]
    return "\n".join(parts)


def _box(box: Box) -> Iterable[str]:
    waits = box.kind == "waits"
    who = rank_words(box.ranks, _RANKS_LENGTH)
    lines = (box.title, f"{who} in it") if waits else (who, box.title)
    state = box.kind if not waits or box.overdue else "waits young"
    yield f'<g class="box {state}"><title>{escape(box.title)}: {escape(box.ranks)}</title>'
    yield f'<rect x="{box.x}" y="{box.y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
    for row, line in enumerate(lines):
        y = box.y + 22 + 20 * row
        name = "name" if row == 0 else "more"
        yield f'<text class="{name}" x="{box.x + 12}" y="{y}">{escape(_cut(line))}</text>'
    yield "</g>"


def _arrow(graph: WaitDrawing, arrow: Arrow, *, labelled: bool) -> str:
    source, target = graph.boxes[arrow.source], graph.boxes[arrow.target]
    kind = "closing" if arrow.closes else "forward"
    passes_by = target.y - source.y > HEIGHT + GAP_Y
    x1, y1 = source.x + WIDTH // 2, source.y + HEIGHT
    x2, y2 = target.x + WIDTH // 2, target.y
    if arrow.closes or passes_by:  # along the right side, where no box is
        x1, y1, y2 = source.x + WIDTH, source.y + HEIGHT // 2, target.y + HEIGHT // 2
        x2, side = target.x + WIDTH, max(source.x, target.x) + WIDTH + GAP_X - 4
        path = f"M{x1},{y1} C{side},{y1} {side},{y1} {side},{(y1 + y2) // 2} S{side},{y2} {x2},{y2}"
    else:
        path = f"M{x1},{y1} C{x1},{y1 + GAP_Y // 2} {x2},{y2 - GAP_Y // 2} {x2},{y2}"
    who = escape(rank_words(arrow.ranks, _RANKS_LENGTH))
    drawn = f'<path class="arrow {kind}" d="{path}" marker-end="url(#tip)"/>'
    if labelled and not (arrow.closes or passes_by):
        at_x, at_y = (x1 + x2) // 2 + 6, (y1 + y2) // 2 + 4
        drawn += f'<text class="label" x="{at_x}" y="{at_y}">for {who}</text>'
    return f"<g><title>waits for {who}</title>{drawn}</g>"


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS_PER_LINE else f"{text[: LETTERS_PER_LINE - 1]}…"


PER_ROW: Final = 12
"""Boxes side by side in one part of the graph; with more, arrows would cross boxes."""
PAGE_COLUMNS: Final = 3
"""Up to this width, unconnected parts stand side by side."""
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
    """Places at most `MOST_NODES` ops of a judgement."""
    graph = wait_boxes(trace, MOST_NODES)
    boxes, arrows = graph.boxes, graph.arrows
    placed = _placed(boxes, _layers(len(boxes), arrows), _parts(len(boxes), arrows))
    width = max((one.x for one in placed), default=0) + WIDTH + MARGIN
    height = max((one.y for one in placed), default=0) + HEIGHT + MARGIN
    return WaitDrawing(tuple(placed), arrows, width, height, graph.left_out)


def _layers(count: int, arrows: Sequence[Arrow]) -> list[int]:
    """The row of each box: below all boxes that wait for it."""
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
    """Boxes that arrows connect, as one part each."""
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
    """Each part is a block of its own, so that no arrow crosses boxes of another part."""
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
