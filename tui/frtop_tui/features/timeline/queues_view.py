"""The queues of some ranks side by side, aligned by group and number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.timeline.alignment import Alignment, Differing, RowKey, aligned
from frtop_tui.features.timeline.base import HistoriesScreen
from frtop_tui.features.timeline.choice import to_compare
from frtop_tui.features.timeline.lane import Lane, lane_of
from frtop_tui.features.timeline.op_columns import OpColumns
from frtop_tui.features.timeline.op_lines import lost_text
from frtop_tui.features.timeline.pane import WordsPane
from frtop_tui.features.timeline.queue_cells import difference_lines, row_line, title_line
from frtop_tui.job.units import counted
from frtop_tui.screens.base import BACK, WAITS
from frtop_tui.screens.messages import OpenRank, OpenTimeline
from frtop_tui.widgets.lines import LazyLines, LineView
from frtop_tui.widgets.spans import Line, clip, plain

MOST: Final = 8
"""The most ranks side by side."""
USUAL: Final = 4
NEWEST: Final = 1024
"""Newest ops of each rank to align while a job runs; for a recorded job all are aligned."""
RECORDED: Final = 8192


class QueuesScreen(HistoriesScreen):
    """The ranks to compare are chosen once, when the screen opens and ranks are known."""

    AUTO_FOCUS = "#queues"
    crumb = "queues"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("n", "difference(1)", "next difference", id="difference.next"),
        Binding("p", "difference(-1)", "previous", show=False, id="difference.previous"),
        Binding(
            "plus,equals_sign", "more(1)", "more ranks", tooltip="one rank more", id="lanes.more"
        ),
        Binding(
            "minus", "more(-1)", "fewer ranks", show=False, tooltip="one rank less", id="lanes.less"
        ),
        replace(WAITS, show=False),
        Binding("T", "timeline", "timeline", tooltip="the same ranks on one clock", id="when"),
    ]

    def __init__(self, marked: set[int], rank: int | None = None) -> None:
        super().__init__(marked)
        self.only = frozenset(marked)
        self.rank = rank
        self.ranks: list[int] = []
        self._candidates: list[int] = []
        self._aligned: tuple[OpColumns | None, ...] = ()
        self._first: Differing | None = None
        self._went = False
        """Whether the cursor was put on the first difference."""

    def panes(self) -> ComposeResult:
        yield QueueTitle()
        yield QueueTable()
        yield WordsPane()

    @property
    def followed(self) -> tuple[tuple[int, ...], int | None]:
        return tuple(self.ranks), None

    def draw(self, frame: Frame) -> None:
        if not self.ranks:
            self._candidates = to_compare(frame, self.only, self.rank)
            marked = len(self.only.intersection(self._candidates))
            self.ranks = self._candidates[: max(2, min(MOST, marked)) if marked > 1 else USUAL]
        table = self.query_one(QueueTable)
        found = [self.histories.ops.get(rank) for rank in self.ranks]
        why = self.histories.why_none
        lanes = [
            lane_of(frame, rank, ops, why.get(rank, ""))
            for rank, ops in zip(self.ranks, found, strict=True)
        ]
        fronts = tuple(tuple(lane.fronts.items()) for lane in lanes)
        state = (*found, fronts)
        if not _same(state, self._aligned):
            self._aligned = state  # type: ignore[assignment]
            newest = RECORDED if frame.recorded is not None else NEWEST
            alignment = aligned(lanes, newest)
            self._first = alignment.first_difference()
        else:
            alignment = table.alignment
        row = self._first.row if self._first is not None else None
        if not self._went and len(alignment) and None not in found:
            self._went = True
            table.cursor = row if row is not None else len(alignment) - 1
            self.call_after_refresh(lambda: table.move_to(table.cursor))
        table.show(alignment, row, [lane.ops.known_until for lane in lanes])
        self._draw_words(alignment, lanes)

    def _draw_words(self, alignment: Alignment, lanes: list[Lane]) -> None:
        table, title = self.query_one(QueueTable), self.query_one(QueueTitle)
        words = self.query_one(WordsPane)
        title.line = table.titles
        title.entitle(self._summary(alignment))
        title.redraw()
        lines: list[Line] = []
        if len(alignment):
            lines = difference_lines(alignment, min(table.cursor, len(alignment) - 1))
        for lane in lanes:
            if missing := lane.why_none or lost_text(lane):
                lines.append(plain(f"rank {lane.rank}: {missing}", "warn"))
        words.lines = lines
        words.entitle("the op under the cursor")
        words.redraw()

    def _summary(self, alignment: Alignment) -> str:
        ranks = f"queues of {counted(len(self.ranks), 'rank')}, {counted(len(alignment), 'op')}"
        if not len(alignment):
            return f"queues of {counted(len(self.ranks), 'rank')}"
        if self._first is None:
            return f"{ranks}: no difference in what is recorded"
        return f"{ranks}: the first difference is marked with !: {', '.join(self._first.fields)}"

    def on_line_view_moved(self) -> None:
        self.draw_all()

    def on_line_view_chosen(self) -> None:
        chosen = self.query_one(QueueTable).chosen
        if chosen < len(self.ranks):
            self.post_message(OpenRank(self.ranks[chosen]))

    def action_more(self, by: int) -> None:
        """Compares one more rank, or one fewer."""
        wanted = len(self.ranks) + by
        if 1 < wanted <= min(MOST, len(self._candidates)):
            self.ranks = self._candidates[:wanted]
            self.draw_all()
        else:
            text = f"Queues of 2 to {MOST} ranks stand side by side; mark others with space."
            self.app.notify(text, timeout=4)

    def action_difference(self, by: int) -> None:
        table = self.query_one(QueueTable)
        rows = len(table.alignment)
        after = range(table.cursor + by, rows if by > 0 else -1, by)
        found = (row for row in after if table.alignment.differing(row) is not None)
        row = next(found, None)
        if row is None:
            self.app.notify("No further difference in what is recorded.", timeout=4)
        else:
            table.move_to(row)

    def action_timeline(self) -> None:
        chosen = self.query_one(QueueTable).chosen
        rank = self.ranks[chosen] if chosen < len(self.ranks) else None
        self.post_message(OpenTimeline(rank))


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether these are the same objects; the last elements are compared by value."""
    if len(one) != len(other) or one[-1:] != other[-1:]:
        return False
    return all(a is b for a, b in zip(one[:-1], other[:-1], strict=True))


class QueueTitle(LineView, can_focus=False):
    """The ranks above their columns."""

    def __init__(self) -> None:
        super().__init__(id="queue-title", classes="pane")
        self.line: Line = ()

    def content(self, width: int) -> Sequence[Line]:
        return (clip(self.line, width),)


class QueueTable(LineView):
    """A row per op; the cursor stays on its op, or on the newest one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", tooltip="show the rank of the column", id="queue.open"),
        Binding("left,h", "sideways(-1)", "left", show=False, tooltip="previous rank", id="left"),
        Binding("right,l", "sideways(1)", "right", show=False, tooltip="next rank", id="right"),
    ]

    def __init__(self) -> None:
        super().__init__(has_cursor=True, id="queues")
        self.alignment = Alignment((), (), ())
        self.now_ns: Sequence[int] = ()
        self.first: int | None = None
        self.chosen = 0
        self.empty = "no ops are known yet"
        self._is_in_view = False
        """Whether the table has scrolled to the cursor; this happens once, then keys scroll."""
        self._will_be = False
        """It scrolls there only at the first draw: later it might undo the mouse's scrolling."""

    def content(self, width: int) -> Sequence[Line]:  # noqa: ARG002
        if not len(self.alignment):
            return (plain(self.empty, "dim"),)
        return LazyLines(lambda: len(self.alignment), self._row_line)

    def _row_line(self, y: int) -> Line:
        return row_line(self.alignment, y, self.room, self.now_ns, self.first)

    @property
    def key(self) -> RowKey | None:
        """The op under the cursor; None on the last row, which follows the newest one."""
        rows = len(self.alignment)
        return self.alignment.keys[self.cursor] if self.cursor < rows - 1 else None

    def show(self, alignment: Alignment, first: int | None, now_ns: Sequence[int]) -> None:
        """Shows other rows, with the cursor on the same op."""
        had, key, before = bool(len(self.alignment)), self.key, self.cursor
        self.alignment, self.first, self.now_ns = alignment, first, now_ns
        self.chosen = min(self.chosen, max(0, len(alignment.lanes) - 1))
        if had and len(alignment):
            last = len(alignment) - 1
            places = range(len(alignment)) if key is not None else ()
            self.cursor = next((n for n in places if alignment.keys[n] == key), last)
        if (self.cursor != before or not self._is_in_view) and not self._will_be:
            # Older ops appeared above it, or it was placed before the layout was known.
            self._will_be = self.call_after_refresh(self._bring_into_view)
        self.redraw()

    def _bring_into_view(self) -> None:
        self._will_be = False
        self.move_to(self.cursor)
        self._is_in_view = bool(len(self.alignment) and self.scrollable_content_region.height)

    @property
    def titles(self) -> Line:
        return title_line(self.alignment.lanes, self.room, self.chosen)

    def action_sideways(self, by: int) -> None:
        self.chosen = max(0, min(self.chosen + by, len(self.alignment.lanes) - 1))
        self.post_message(self.Moved(self))
