"""What each rank did when: a lane per rank, group, or member of one op, on one clock."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.timeline.base import HistoriesScreen
from frtop_tui.features.timeline.cells import NOTHING
from frtop_tui.features.timeline.choice import late_in, ranks_in_lanes
from frtop_tui.features.timeline.lane import Lane, clock_error_ns
from frtop_tui.features.timeline.lane_rows import LaneRows, cursor_op, step_columns
from frtop_tui.features.timeline.letters import legend
from frtop_tui.features.timeline.meetings import Meeting, last_late_op
from frtop_tui.features.timeline.op_lines import (
    error_text,
    gap_text,
    lost_text,
    mark_line,
    op_lines,
)
from frtop_tui.features.timeline.pane import LanePane, Ruler, WordsPane
from frtop_tui.features.timeline.window import (
    TimeWindow,
    first_window,
    newest_known_ns,
    next_op,
    next_step,
    op_window,
)
from frtop_tui.job.arrivals import LateIn
from frtop_tui.job.groups import Identifier, members_of
from frtop_tui.job.naming import group_label
from frtop_tui.job.units import timing
from frtop_tui.job.unprepared import is_least_since
from frtop_tui.screens.base import WAITS
from frtop_tui.screens.messages import OpenRank
from frtop_tui.widgets.spans import Line, join, plain

MOST_FOLLOWED: Final = 64
"""Ops are fetched for the ranks in view, then for others in the list, up to this many."""
MARGIN: Final = 8
"""Columns that stay in view beside the op to which the cursor jumps."""
By = Literal["ranks", "groups", "op"]


class TimelineScreen(HistoriesScreen):
    """Opens on the marked ranks, a group's ranks, or all ranks with culprits first."""

    AUTO_FOCUS = "#lanes"
    crumb = "timeline"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "back", tooltip="all lanes, then the screen before", id="back"),
        Binding("plus,equals_sign", "zoom(1)", "zoom", tooltip="narrower columns", id="zoom.in"),
        Binding(
            "minus", "zoom(-1)", "zoom out", show=False, tooltip="wider columns", id="zoom.out"
        ),
        Binding("n", "op(1)", "next op", tooltip="next op of the same group", id="op.next"),
        Binding(
            "p", "op(-1)", "previous op", show=False, tooltip="the one before", id="op.previous"
        ),
        Binding(
            "right_parenthesis",
            "step(1)",
            "next step",
            tooltip="to where a step ends",
            id="step.next",
        ),
        Binding(
            "left_parenthesis",
            "step(-1)",
            "previous step",
            show=False,
            tooltip="one back",
            id="step.previous",
        ),
        Binding(
            "o", "one_op", "one op", tooltip="who arrived when at this op, sorted", id="lanes.op"
        ),
        Binding("v", "lanes", "view", tooltip="lanes are ranks, or groups of one", id="lanes.by"),
        Binding("F", "follow", "follow", tooltip="keep to the newest, or stand still", id="live"),
        Binding("space", "mark", "mark", tooltip="mark the rank", id="lane.mark"),
        replace(WAITS, show=False),
    ]

    def __init__(
        self,
        marked: set[int],
        rank: int | None = None,
        group: Identifier | None = None,
        late: LateIn | None = None,
    ) -> None:
        super().__init__(marked)
        self.only = frozenset(marked)
        self.rank, self.group, self.late = rank, group, late
        self.by: By = "ranks"
        self.window: TimeWindow | None = None
        self.follow = True
        self.column = -1
        self.op_key: tuple[Identifier, int] | None = None
        self.selected: tuple[int, int, int] | None = None
        """Rank, sequence and issue time of the op to which the cursor jumped."""
        self.rows = LaneRows()
        self._op_ns = 0
        self._seeks_late_op = True
        """Whether the cursor goes to an op at which its rank was late, once one is known."""
        self._words = ""
        self._followed: tuple[tuple[int, ...], int | None] = ((), None)
        self._before: tuple[TimeWindow | None, bool] = (None, True)

    def panes(self) -> ComposeResult:
        yield Ruler()
        yield LanePane(self._draw_lane)
        yield WordsPane()

    @property
    def subject(self) -> int | None:
        return self.rows[self.query_one(LanePane).cursor].rank if len(self.rows) else None

    @property
    def _lanes_in_view(self) -> list[Lane]:
        return [self.rows.lane(y) for y in self.query_one(LanePane).in_view]

    @property
    def followed(self) -> tuple[tuple[int, ...], int | None]:
        return self._followed

    def _to_follow(self) -> tuple[tuple[int, ...], int | None]:
        here = [self.rows[y].rank for y in self.query_one(LanePane).in_view]
        wanted = tuple(dict.fromkeys((*here, *self.rows.ranks[:MOST_FOLLOWED])))
        wanted = wanted[: max(len(here), MOST_FOLLOWED)]
        if self.window is None:
            return wanted, None
        span = self.window.step_ns * self.window.columns
        return wanted, (self.window.begin_ns // span - 1) * span

    def crumbs(self) -> Line:
        if self.window is None or self.frame is None or self.frame.recorded is not None:
            return super().crumbs()
        mode = "follows" if self.follow else "stands still"
        return (*super().crumbs(), *plain(f" · {mode}", "" if self.follow else "warn"))

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(LanePane)
        self._choose_lanes(frame)
        pane.count = len(self.rows)
        self._followed = self._to_follow()
        self.rows.take(frame, self.histories, self._followed[0])
        if self.rank is not None and pane.count and self.by != "groups":
            pane.cursor = self.rows.line_of(self.rank)
            self.call_after_refresh(pane.move_to, pane.cursor)
            self.rank = None
        self._place_window(pane.room)
        self._seek_late_op(frame)
        pane.redraw()
        self._draw_head(frame)
        self._draw_words(frame)

    def _choose_lanes(self, frame: Frame) -> None:
        if self.by == "groups":
            return
        if self.by == "op" and self.op_key is not None:
            here = [one for one in members_of(self.op_key[0][1]) if one in frame.ranks]
            self.rows.show_op(here, self.op_key, self._op_ns)
            return
        ranks, self._words = ranks_in_lanes(frame, self.only, self.group)
        self.rows.show_ranks(ranks)

    def _place_window(self, width: int) -> None:
        columns = width - self.rows.label_width
        if columns < 1:
            return  # not laid out yet
        if self.window is None:
            self.window = first_window(self._lanes_in_view, columns)
            if self.window is None:
                return
        elif self.window.columns != columns:
            self.window = self.window.wide(columns)
        if self.follow:
            until = newest_known_ns(self._lanes_in_view)
            if until and until > self.window.end_ns:
                self.window = self.window.ending(until)
        if self.column < 0:
            self.column = columns - columns // 4
        self.column = min(self.column, columns - 1)
        self.rows.window = self.window

    def _seek_late_op(self, frame: Frame) -> None:
        """For a straggler, puts the cursor once on the op that the verdict is about.

        The ops of its group come from other agents, some ticks later.
        """
        if not self._seeks_late_op or self.window is None or not len(self.rows):
            return
        lane = self.rows.lane(self.query_one(LanePane).cursor)
        late = self.late
        if late is None and (group := late_in(frame, lane.rank)) is not None:
            late = LateIn(group)
        if late is None or self.by != "ranks":
            return
        position = last_late_op(lane, self.rows.meetings, late, MOST_FOLLOWED)
        if position is not None:
            self._look_at(lane.ops.issued[position] + lane.clock_ns)
            self._select(lane, position)
            self.rows.window = self.window

    def _draw_lane(self, y: int) -> Line:
        pane = self.query_one(LanePane)
        at_cursor = y == pane.cursor
        return self.rows.line(y, self.column if at_cursor else None, self.marked)

    def _draw_head(self, frame: Frame) -> None:
        ruler, pane = self.query_one(Ruler), self.query_one(LanePane)
        window = self.window
        if window is None:
            ruler.entitle(f"timeline of {self._words}: no op is known yet")
        else:
            about = {
                "ranks": self._words,
                "groups": f"the groups of rank {self.rows.ranks[0]}" if self.rows.ranks else "",
                "op": "one op, by order of arrival",
            }[self.by]
            ruler.entitle_before(
                ("timeline of ", about),
                f" · {timing(window.step_ns * window.columns)} · a column is"
                f" {timing(window.step_ns)} · {error_text(clock_error_ns(self._lanes_in_view))}",
            )
        ruler.window, ruler.wall_ns = window, frame.wall_ns - frame.now_ns
        ruler.label_width, ruler.cursor_column = self.rows.label_width, self.column
        lane = self.rows.lane(pane.cursor) if len(self.rows) else None
        ruler.steps = step_columns(lane, window) if lane and window else ()
        known = frame.verdicts and not is_least_since(frame, frame.since_ns)
        ruler.trouble, ruler.trouble_ns = frame.health if known else "", frame.since_ns
        ruler.redraw()

    def _draw_words(self, frame: Frame) -> None:
        pane, words = self.query_one(LanePane), self.query_one(WordsPane)
        lines: list[Line] = [(), (), ()]
        if len(self.rows) and self.window is not None:
            y = pane.cursor
            lane, wall_ns = self.rows.lane(y), frame.wall_ns - frame.now_ns
            position, begun = self._op_at(y)
            at_ns = self.window.time(self.column)
            marks = mark_line(lane, at_ns, self.window.step_ns, wall_ns)
            lost = lost_text(lane)
            if position != NOTHING:
                meeting = self.rows.meetings.of(lane, position)
                lines[:2] = op_lines(lane, position, begun, meeting, wall_ns)
            else:
                lines[0] = plain(f"rank {lane.rank}: {gap_text(lane, at_ns)}", "dim")
            notes = lane.ops.note if not lane.why_none else ""
            lines[2] = join((marks, plain(lost, "warn"), plain(notes, "dim")))
            shown = {one for n in pane.in_view for one in self.rows.drawn_letters(n)}
            lines.append(join([plain(f"{a} {b}", "dim") for a, b in legend(shown)], between="  "))
        words.lines = lines
        words.redraw()
        words.entitle(self._subject(frame))

    def _subject(self, frame: Frame) -> str:
        if (rank := self.subject) is None:
            return "no ranks"
        view = frame.ranks.get(rank)
        if view is None:
            return f"rank {rank}"
        return (
            f"rank {rank} ({view.host}) {view.state}" if view.host else f"rank {rank} {view.state}"
        )

    def _op_at(self, y: int) -> tuple[int, int]:
        """The op under the cursor, or to which it jumped, and how many ops began in the column."""
        row = self.rows[y]
        if self.selected is not None and self.selected[0] == row.rank:
            position = self.rows.lane(y).same_op(*self.selected[1:])
            if position is not None:
                return position, 1
        return cursor_op(self.rows.drawn(y), self.column)

    def _select(self, lane: Lane, position: int) -> None:
        self.selected = (lane.rank, lane.ops.sequence[position], lane.ops.issued[position])

    def _meeting(self) -> Meeting | None:
        if not len(self.rows):
            return None
        y = self.query_one(LanePane).cursor
        position, _ = self._op_at(y)
        return None if position == NOTHING else self.rows.meetings.of(self.rows.lane(y), position)

    def on_line_view_moved(self) -> None:
        self._take_over()
        self.draw_all()

    def on_lane_pane_sideways(self, event: LanePane.Sideways) -> None:
        event.stop()
        self._take_over()
        if self.window is None:
            return
        columns = event.columns * (self.window.columns // 2 if event.screen else 1)
        if event.screen:
            self._move_window(self.window.moved(columns))
        else:
            at = self.column + columns
            self.column = max(0, min(at, self.window.columns - 1))
            if at != self.column:
                self._move_window(self.window.moved(columns))
        self.draw_all()

    def _take_over(self) -> None:
        """Drops the op that was jumped to: a key moved the cursor."""
        self.selected, self._seeks_late_op = None, False

    def _move_window(self, window: TimeWindow) -> None:
        """Shows a fixed time: the window no longer follows."""
        self.window, self.follow = window, False

    def on_line_view_chosen(self) -> None:
        if (rank := self.subject) is not None:
            self.post_message(OpenRank(rank))

    def action_zoom(self, by: int) -> None:
        if self.window is not None:
            window = self.window.zoomed(by, self.column)
            self.window = window
            if by > 0:
                self.follow = False
            self.draw_all()

    def action_follow(self) -> None:
        if not self.check_available("follow"):
            return
        self.follow = not self.follow
        self._take_over()
        if self.follow and self.window is not None:
            until = newest_known_ns(self._lanes_in_view)
            self.window = self.window.ending(until) if until else self.window
        self.draw_all()

    def action_op(self, by: int) -> None:
        """Jumps along the ops of the group under the cursor, or of any group from a gap."""
        if not len(self.rows) or self.window is None:
            return
        y = self.query_one(LanePane).cursor
        lane = self.rows.lane(y)
        position, _ = self._op_at(y)
        if position != NOTHING:
            found = next_op(lane, position, by, lane.ops.group[position])
        else:
            before = lane.last_by(self.window.time(self.column))
            found = next_op(lane, before + (by < 0), by, None)
        if found is None:
            self.app.notify("No further op of it is known on this rank.", timeout=4)
            return
        at_ns = lane.ops.issued[found] + lane.clock_ns
        self._look_at(at_ns)
        self._select(lane, found)
        self.draw_all()

    def action_step(self, by: int) -> None:
        if not len(self.rows) or self.window is None:
            return
        lane = self.rows.lane(self.query_one(LanePane).cursor)
        at_ns = next_step(lane, self.window.time(self.column) + (by > 0) * self.window.step_ns, by)
        if at_ns is None:
            words = "No further step is recorded" if lane.steps else "No step is recorded"
            self.app.notify(f"{words} of rank {lane.rank}.", timeout=4)
            return
        self._look_at(at_ns)
        self.selected = None
        self.draw_all()

    def _look_at(self, at_ns: int) -> None:
        self._seeks_late_op = False
        if self.window is not None:
            self._move_window(self.window.showing(at_ns, MARGIN))
            self.column = self.window.column(at_ns)

    def action_one_op(self) -> None:
        """Shows one op on all ranks; a second press goes back."""
        if self.by == "op":
            self._leave_op()
            return
        meeting = self._meeting()
        if meeting is None or not meeting.issued_ns or self.window is None:
            self.app.notify("There is no op here that other ranks issue as well.", timeout=4)
            return
        y = self.query_one(LanePane).cursor
        self.rank = self.rows[y].rank
        self._before = (self.window, self.follow)
        self.by, self.op_key, self._op_ns = "op", meeting.key, meeting.first_ns
        until = meeting.ended_ns or max(meeting.last_ns, self.rows.lane(y).known_until_ns)
        self._move_window(op_window(meeting.first_ns, until, self.window.columns))
        self.column = max(0, self.window.column(meeting.issued_ns.get(self.rank, 0)))
        self.selected = None
        self.draw_all()

    def _leave_op(self) -> None:
        self.window, self.follow = self._before
        self.rank = self.subject
        self.by, self.op_key = "ranks", None
        self.draw_all()

    def action_lanes(self) -> None:
        """Switches from ranks to the groups of the rank under the cursor, and back."""
        if (rank := self.subject) is None or self.frame is None:
            return
        if self.by == "groups":
            self.by, self.rank = "ranks", rank
        else:
            view = self.frame.ranks.get(rank)
            named = view.groups if view is not None else {}
            names = {key: group_label(g.name, g.description) for key, g in named.items()}
            members = {one for g in named.values() for one in members_of(g.ranks)}
            self.rows.show_groups(rank, names, sorted((members & self.frame.ranks.keys()) - {rank}))
            self.by, self.op_key = "groups", None
        self.selected = None
        self.draw_all()

    async def action_back(self) -> None:
        if self.by == "op":
            self._leave_op()
        elif self.by == "groups":
            self.action_lanes()
        else:
            await self.run_action("app.back")

    def action_mark(self) -> None:
        if (rank := self.subject) is not None:
            self.marked ^= {rank}
            self.draw_all()

    def why_unavailable(self, action: str) -> str:
        if action == "follow" and self.frame is not None and self.frame.recorded is not None:
            return "Nothing new will come: this was recorded."
        return super().why_unavailable(action)
