"""The wait-for graph as SVG inside of a page, whose style sheet colours it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from frtop_tui.job.naming import shortened
from frtop_tui.text.wait_boxes import Arrow, Box
from frtop_tui.text.wait_drawing import GAP_X, GAP_Y, HEIGHT, WIDTH, WaitDrawing

LETTERS_PER_LINE: Final = 42
_RANKS_LENGTH: Final = 34
_MOST_LABELS: Final = 40
"""More labels on arrows than these cover each other; boxes and titles say it, too."""


def drawing_svg(graph: WaitDrawing) -> str:
    """One `svg` element; "" where nobody waits."""
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


def ranks_words(ranks: str) -> str:
    """`rank 2`, `ranks 0-1,3`."""
    plural = "-" in ranks or "," in ranks
    return f"rank{'s' if plural else ''} {shortened(ranks, _RANKS_LENGTH)}"


def _box(box: Box) -> Iterable[str]:
    waits = box.kind == "waits"
    who = ranks_words(box.ranks)
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
    who = escape(ranks_words(arrow.ranks))
    drawn = f'<path class="arrow {kind}" d="{path}" marker-end="url(#tip)"/>'
    if labelled and not (arrow.closes or passes_by):
        at_x, at_y = (x1 + x2) // 2 + 6, (y1 + y2) // 2 + 4
        drawn += f'<text class="label" x="{at_x}" y="{at_y}">for {who}</text>'
    return f"<g><title>waits for {who}</title>{drawn}</g>"


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS_PER_LINE else f"{text[: LETTERS_PER_LINE - 1]}…"
