"""The lanes of a timeline, and their lines, which are built when they become visible."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from frtop_probe.ring.layout import Flag
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.timeline.cells import NOTHING, SLIVER, Cells, cells_of, lane_text
from frtop_tui.features.timeline.histories import Histories
from frtop_tui.features.timeline.lane import Lane, lane_of
from frtop_tui.features.timeline.letters import (
    ENDED,
    ENDED_WITHIN,
    NOTE,
    PHASES,
    STALLED,
    STEP,
    UNKNOWN,
    WAITS,
)
from frtop_tui.features.timeline.meetings import Meeting, Meetings
from frtop_tui.features.timeline.window import TimeWindow
from frtop_tui.job.groups import Identifier
from frtop_tui.job.units import timing
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
    STALLED: "alarm",
    ENDED: "alarm",
    " ": "",
}
_FEWEST_BETWEEN: Final = 4
"""Columns between two steps: closer bars would hide the ops."""


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One lane, for a rank or for one of its groups."""

    rank: int
    group: int | None = None
    name: str = ""


class LaneRows:
    """The lanes in their order. A rank's lanes are redrawn when its ops change."""

    def __init__(self) -> None:
        self._rows: Sequence[LaneRow] = ()
        self.ranks: Sequence[int] = ()
        self.window: TimeWindow | None = None
        self.meetings = Meetings(lambda _: None)
        self._frame: Frame | None = None
        self._histories = Histories()
        self._lanes: dict[LaneRow, Lane] = {}
        self._drawn: dict[LaneRow, tuple[object, ...]] = {}
        self._op: tuple[Identifier, int] | None = None
        self._op_ns = 0
        """When one rank issued that op: other ranks issued it at about that time."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, y: int) -> LaneRow:
        return self._rows[min(y, len(self._rows) - 1)]

    def show_ranks(self, ranks: Sequence[int]) -> None:
        if self.ranks != ranks or self._op is not None or any(r.name for r in self._rows[:1]):
            self._set(ranks, [LaneRow(rank) for rank in ranks], None)

    def show_groups(self, rank: int, names: Mapping[int, str], others: Iterable[int]) -> None:
        """One lane per group of a rank, by its own id; `others` are members of these groups."""
        rows = [LaneRow(rank, key, name or f"group {key}") for key, name in names.items()]
        self._set([rank, *others], rows or [LaneRow(rank)], None)

    def show_op(self, ranks: Sequence[int], key: tuple[Identifier, int], at_ns: int) -> None:
        """A lane for each member of one op; the lanes show only that op."""
        self._op_ns = at_ns
        if self._op != key or set(self.ranks) != set(ranks):
            self._set(ranks, [LaneRow(rank) for rank in ranks], key)

    def _set(
        self, ranks: Sequence[int], rows: Sequence[LaneRow], op: tuple[Identifier, int] | None
    ) -> None:
        self.ranks, self._rows, self._op = ranks, rows, op
        self._lanes.clear()
        self._drawn.clear()

    def take(self, frame: Frame, histories: Histories, in_view: Iterable[int]) -> None:
        """Takes new data. Ops are looked up on other ranks only for lanes `in_view`."""
        if frame is self._frame and histories is self._histories and self._lanes:
            return
        self._frame, self._histories = frame, histories
        self._lanes.clear()
        near = frozenset(in_view)
        self.meetings = Meetings(lambda rank: self._of_rank(rank) if rank in near else None)
        if self._op is not None:
            self._sort_by_arrivals()

    def _sort_by_arrivals(self) -> None:
        meeting = self._meeting()
        if meeting is None:
            return
        when = meeting.issued_ns
        self.ranks = sorted(self.ranks, key=lambda one: (one not in when, when.get(one, 0), one))
        self._rows = [LaneRow(rank) for rank in self.ranks]

    def _meeting(self) -> Meeting | None:
        for rank in self.ranks:
            lane = self._of_rank(rank)
            position = lane.position(*self._op, self._op_ns) if self._op is not None else None
            if position is not None:
                return self.meetings.of(lane, position)
        return None

    def line_of(self, rank: int) -> int:
        """The line of a rank's lane; the first line if it has none."""
        return next((y for y, row in enumerate(self._rows) if row.rank == rank), 0)

    def lane(self, y: int) -> Lane:
        row = self[y]
        return self._of_rank(row.rank)

    def _of_rank(self, rank: int) -> Lane:
        key = LaneRow(rank)
        if key not in self._lanes:
            assert self._frame is not None
            ops = self._histories.ops.get(rank)
            why = self._histories.why_none.get(rank, "")
            self._lanes[key] = lane_of(self._frame, rank, ops, why, self._stalled_ns(rank))
        return self._lanes[key]

    def _stalled_ns(self, rank: int) -> int | None:
        """Since when a job that hangs, or is held up, waits for this rank; None if it does not."""
        frame = self._frame
        if frame is None or frame.health not in ("hung", "held up") or not frame.since_ns:
            return None
        blamed = any(rank in verdict.culprits for verdict in frame.verdicts)
        return frame.since_ns if blamed else None

    @property
    def label_width(self) -> int:
        """Cells before the first column."""
        if any(row.name for row in self._rows[:1]):
            return min(16, max(len(row.name) for row in self._rows)) + 1
        widest = len(str(max(self.ranks, default=0))) + 1
        return len("rank ") + widest + 1 + (12 if self._op is not None else 0)

    def drawn(self, y: int) -> DrawnLane | None:
        """The cells of a lane; None if nothing is recorded for it."""
        row, window = self[y], self.window
        lane = self._of_rank(row.rank)
        if window is None or lane.why_none:
            return None
        state = (lane.ops, lane.clock_ns, window, self._op, lane.error_ns, lane.stalled_ns,
                 lane.ended_ns)  # fmt: skip
        known = self._drawn.get(row)
        if known is None or known[0] is not lane.ops or known[1:-1] != state[1:]:
            made = drawn_lane(lane, window, self.meetings, self._shown(row, lane))
            known = self._drawn[row] = (*state, made)
        found = known[-1]
        assert isinstance(found, DrawnLane)
        return found

    def _shown(self, row: LaneRow, lane: Lane) -> Sequence[int] | None:
        """Positions of the ops that a lane shows; None: all."""
        if self._op is not None:
            position = lane.position(*self._op, self._op_ns)
            return () if position is None else (position,)
        if row.group is not None:
            return [n for n, group in enumerate(lane.ops.group) if group == row.group]
        return None

    def drawn_letters(self, y: int) -> set[str]:
        drawn = self.drawn(y)
        return set(drawn.letters) if drawn is not None else set()

    def line(self, y: int, cursor: int | None, marked: Collection[int]) -> Line:
        """The line of a lane, with the cursor in column `cursor`."""
        row = self[y]
        lane = self._of_rank(row.rank)
        label = self._label(row, lane, marked)
        drawn = self.drawn(y)
        if drawn is None:
            return (*label, (lane.why_none or "no op is known yet", "dim"))
        return lane_line(label, drawn, cursor)

    def _label(self, row: LaneRow, lane: Lane, marked: Collection[int]) -> Line:
        width = self.label_width
        if row.name:
            return ((fit(row.name, width - 1) + " ", "strong"),)
        after = ""
        if self._op is not None:
            meeting = self._meeting()
            came = meeting.issued_ns.get(row.rank) if meeting is not None else None
            if meeting is not None and came is not None:
                after = f"+{timing(came - meeting.first_ns)}"
            elif meeting is not None:
                after = "absent" if row.rank in meeting.absent else "not known"
            after = f"{after:>10}"
        view = self._frame.ranks.get(row.rank) if self._frame is not None else None
        state = view.state if view is not None else "unreachable"
        return lane_label(lane, width, state, after, marked=row.rank in marked)


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """The character in each column, with its tone; `cells` says which op it shows."""

    letters: list[str]
    tones: list[str]
    cells: Cells


def drawn_lane(
    lane: Lane, window: TimeWindow, meetings: Meetings, only: Sequence[int] | None = None
) -> DrawnLane:
    """The columns of a lane.

    `meetings` tell waiting from moving data. `only` are positions of the ops to draw, without
    phases; None: all.
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
    if only is None:
        _draw_stall(lane, window, letters)
    tones = [
        _tone(lane, letter, position, taken * SLIVER < step)
        for letter, position, taken in zip(letters, cells.positions, cells.taken, strict=True)
    ]
    if lane.spans.marks and only is None:
        _draw_phases(lane, window, cells, letters, tones)
    _draw_marks(lane, window, letters, tones)
    _draw_end(lane, window, letters, tones)
    return DrawnLane(letters, tones, cells)


def lane_line(label: Line, drawn: DrawnLane, cursor: int | None) -> Line:
    """The line of a lane; equal neighbours share a span."""
    tones = drawn.tones
    if cursor is not None and 0 <= cursor < len(tones):
        tones = [*tones]
        tones[cursor] = "cursor"
    pairs = zip(drawn.letters, tones, strict=True)
    return (*label, *_runs(pairs))


def lane_label(lane: Lane, width: int, tone: str, after: str = "", *, marked: bool = False) -> Line:
    """`rank  12 `, with a star if it is marked, then `after`."""
    number = f"{'*' if marked else ''}{lane.rank}"
    name = fit(f"rank {number:>{max(1, width - 6 - len(after))}}{after}", width)
    return ((name, "mark" if marked else tone),)


def cursor_op(drawn: DrawnLane | None, column: int) -> tuple[int, int]:
    """Position of the op under the cursor (or `NOTHING`), and how many began in its column."""
    if drawn is None or not 0 <= column < len(drawn.letters):
        return NOTHING, 0
    return drawn.cells.positions[column], drawn.cells.begun[column]


def step_columns(lane: Lane, window: TimeWindow) -> list[tuple[int, int]]:
    """Column and number of the steps that end in the window, if there is room for them."""
    steps = lane.steps
    begin, end = window.begin_ns - lane.clock_ns, window.end_ns - lane.clock_ns
    here = [mark for mark in steps if begin <= mark.end_ns < end]
    if len(here) * _FEWEST_BETWEEN > window.columns:
        return []
    return [(window.column(mark.end_ns + lane.clock_ns), mark.number) for mark in here]


def _waits(lane: Lane, cells: Cells, step: int, meetings: Meetings) -> dict[int, int]:
    """When the last other rank came, by position, for ops that take more than a column.

    Only ops for which the times of all members are known are included.
    """
    found: dict[int, int] = {}
    for position in set(cells.positions):
        if position == NOTHING or lane.ops.length[position] < step:
            continue
        meeting = meetings.of(lane, position)
        if meeting is not None and meeting.complete and meeting.last_rank != lane.rank:
            found[position] = meeting.last_ns - lane.clock_ns
    return found


def _tone(lane: Lane, letter: str, position: int, is_sliver: bool) -> str:
    ops = lane.ops
    if position != NOTHING and ops.took[position] < 0:
        return "bad"
    if letter in _TONES or position == NOTHING:
        return _TONES.get(letter, "")
    if ops.pending(position):
        return "waits"
    return "dim" if is_sliver else "heat0"


def _draw_phases(
    lane: Lane, window: TimeWindow, cells: Cells, letters: list[str], tones: list[str]
) -> None:
    """Draws phases over gaps but a stall, and over ops during which the program goes on."""
    spans = lane.spans
    shown = cells_of(
        spans, window.begin_ns - lane.clock_ns, window.step_ns, window.columns, lane.ops.known_until
    )
    flags = lane.ops.flags
    for column, span in enumerate(shown.positions):
        position = cells.positions[column]
        if (
            span == NOTHING
            or letters[column] == STALLED
            or (position != NOTHING and flags[position] & Flag.SYNC)
        ):
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


def _draw_stall(lane: Lane, window: TimeWindow, letters: list[str]) -> None:
    """Shows where others wait for a rank that is in no op, as far as it is known."""
    if lane.stalled_ns is None:
        return
    for column in range(max(0, window.column(lane.stalled_ns)), window.columns):
        if letters[column] == " ":
            letters[column] = STALLED


def _draw_end(lane: Lane, window: TimeWindow, letters: list[str], tones: list[str]) -> None:
    """Shows nothing of a process after its end: an op that it left pending ended with it."""
    if lane.ended_ns is None:
        return
    at = window.column(lane.ended_ns + lane.clock_ns)
    if at >= window.columns:
        return
    for column in range(max(0, at), window.columns):
        letters[column], tones[column] = " ", ""
    if at >= 0:
        letters[at], tones[at] = ENDED, _TONES[ENDED]


def _runs(pairs: Iterable[tuple[str, str]]) -> Sequence[Span]:
    tone_of: Callable[[tuple[str, str]], str] = itemgetter(1)
    return [("".join(map(itemgetter(0), run)), tone) for tone, run in groupby(pairs, tone_of)]
