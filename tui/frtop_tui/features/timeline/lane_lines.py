"""A lane as a line: a letter per column, phases over ops that nobody waits in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from frtop_probe.ring.layout import Flag
from frtop_tui.features.timeline.cells import NOTHING, SLIVER, Cells, cells_of, lane_text
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.letters import ENDED_WITHIN, NOTE, PHASES, STEP, UNKNOWN, WAITS
from frtop_tui.features.timeline.meetings import Meetings
from frtop_tui.features.timeline.window import TimeWindow
from frtop_tui.widgets.spans import Line, Span, fit

_TONES: Final = {
    WAITS: "dim",
    UNKNOWN: "dim",
    ENDED_WITHIN: "dim",
    STEP: "dim",
    NOTE: "key",
    "d": "warn",
    "f": "moving",
    "b": "starting",
    "o": "good",
    " ": "",
}
_FEWEST_BETWEEN: Final = 4
"""Columns between two steps, so that their bars do not hide what is in them."""


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """What stands in each column, with its tone; `cells` tells which op that is."""

    letters: list[str]
    tones: list[str]
    cells: Cells


def drawn_lane(
    lane: Lane, window: TimeWindow, meetings: Meetings, only: Sequence[int] | None = None
) -> DrawnLane:
    """The columns of a lane.

    Args:
        lane: what is drawn.
        window: which time.
        meetings: the other ranks, to tell waiting from moving data.
        only: positions of the only ops to draw, without phases; None: all.
    """
    ops, step = lane.ops, window.step_ns
    begin = window.begin_ns - lane.clock_ns
    some = ops if only is None else ops.at(only)
    cells = cells_of(some, begin, step, window.columns, ops.known_until)
    if only is not None:
        cells = cells.mapped(only)
    letters = lane_text(
        ops,
        cells,
        begin,
        step,
        _waits(lane, cells, step, meetings),
        at_most=lane.at_most,
        first_known=ops.known_from,
        until_ns=ops.known_until,
    )
    tones = [
        _TONES.get(letter) or _tone(lane, position, taken * SLIVER < step)
        for letter, position, taken in zip(letters, cells.positions, cells.taken, strict=True)
    ]
    if lane.spans.marks and only is None:
        _draw_phases(lane, window, cells, letters, tones)
    _draw_marks(lane, window, letters, tones)
    return DrawnLane(letters, tones, cells)


def lane_line(label: Line, drawn: DrawnLane, cursor: int | None) -> Line:
    """The line of a lane; equal neighbours are one span."""
    tones = drawn.tones
    if cursor is not None and 0 <= cursor < len(tones):
        tones = [*tones]
        tones[cursor] = "cursor"
    pairs = zip(drawn.letters, tones, strict=True)
    return (*label, *_runs(pairs))


def lane_label(lane: Lane, width: int, tone: str, after: str = "", *, marked: bool = False) -> Line:
    """`rank  12 `, with a star where it is marked, then what else belongs to it."""
    number = f"{'*' if marked else ''}{lane.rank}"
    name = fit(f"rank {number:>{max(1, width - 6 - len(after))}}{after}", width)
    return ((name, "mark" if marked else tone),)


def cursor_op(drawn: DrawnLane | None, column: int) -> tuple[int, int]:
    """Position of the op under the cursor (or `NOTHING`), and how many began in its column."""
    if drawn is None or not 0 <= column < len(drawn.letters):
        return NOTHING, 0
    return drawn.cells.positions[column], drawn.cells.begun[column]


def step_columns(lane: Lane, window: TimeWindow) -> list[tuple[int, int]]:
    """Column and number of the steps that end in the window, as far as there is room."""
    steps = lane.steps
    begin, end = window.begin_ns - lane.clock_ns, window.end_ns - lane.clock_ns
    here = [mark for mark in steps if begin <= mark.end_ns < end]
    if len(here) * _FEWEST_BETWEEN > window.columns:
        return []
    return [(window.column(mark.end_ns + lane.clock_ns), mark.number) for mark in here]


def _waits(lane: Lane, cells: Cells, step: int, meetings: Meetings) -> dict[int, int]:
    """By position of an op that takes more than a column: when the last other rank came.

    Only of ops of which the times of all members are known.
    """
    found: dict[int, int] = {}
    for position in set(cells.positions):
        if position == NOTHING or lane.ops.length[position] < step:
            continue
        meeting = meetings.of(lane, position)
        if meeting is not None and meeting.complete and meeting.last_rank != lane.rank:
            found[position] = meeting.last_ns - lane.clock_ns
    return found


def _tone(lane: Lane, position: int, is_sliver: bool) -> str:
    if position == NOTHING:
        return ""
    ops = lane.ops
    if ops.took[position] < 0:
        return "bad"
    if ops.pending(position):
        return "warn"
    return "dim" if is_sliver else "strong"


def _draw_phases(
    lane: Lane, window: TimeWindow, cells: Cells, letters: list[str], tones: list[str]
) -> None:
    """Phases stand over gaps, and over ops during which the program goes on."""
    spans = lane.spans
    shown = cells_of(
        spans, window.begin_ns - lane.clock_ns, window.step_ns, window.columns, lane.ops.known_until
    )
    flags = lane.ops.flags
    for column, span in enumerate(shown.positions):
        position = cells.positions[column]
        if span == NOTHING or (position != NOTHING and flags[position] & Flag.SYNC):
            continue
        letters[column] = PHASES[spans.marks[span].kind]
        tones[column] = _TONES[letters[column]]


def _draw_marks(lane: Lane, window: TimeWindow, letters: list[str], tones: list[str]) -> None:
    for column, _ in step_columns(lane, window):
        letters[column], tones[column] = STEP, _TONES[STEP]
    for mark in lane.notes:
        column = window.column(mark.begin_ns + lane.clock_ns)
        if 0 <= column < window.columns:
            letters[column], tones[column] = NOTE, _TONES[NOTE]


def _runs(pairs: Iterable[tuple[str, str]]) -> Sequence[Span]:
    tone_of: Callable[[tuple[str, str]], str] = itemgetter(1)
    return [("".join(map(itemgetter(0), run)), tone) for tone, run in groupby(pairs, tone_of)]
