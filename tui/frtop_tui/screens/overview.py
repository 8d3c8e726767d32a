"""The first screen: verdict, groups and the grid of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import STACKS, WAITS, FrameScreen
from frtop_tui.screens.contributed import of_features, rank_keys
from frtop_tui.screens.messages import OpenGroup, OpenRank, OpenRanks
from frtop_tui.text.activity import blame_reasons, describe_activity_and_line
from frtop_tui.text.lines import WordLine
from frtop_tui.widgets.groups import GroupPanel
from frtop_tui.widgets.lenses import LensView
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.rank_grid import RankGrid, legend
from frtop_tui.widgets.rank_table import RankTable, most_relevant
from frtop_tui.widgets.spans import Line, clip, join, plain
from frtop_tui.widgets.stack_pane import StackPane
from frtop_tui.widgets.verdict import VerdictPanel

MOST_ROWS = 32
"""Ranks in the list below the grid; `2` shows all ranks."""


class Legend(LineView, can_focus=False):
    """Describes the rank under the cursor, and counts the ranks of each state."""

    def __init__(self) -> None:
        super().__init__(id="legend")
        self.frame: Frame | None = None
        self.rank: int | None = None
        self.lens: LensView | None = None
        """What the letters show; None: states."""

    def content(self, width: int) -> Sequence[Line]:
        frame = self.frame
        if frame is None or self.rank is None:
            return ()
        view = frame.ranks.get(self.rank)
        if view is None:
            about = join(
                (plain(f" rank {self.rank}", "strong"), plain("never reported", "unreachable"))
            )
        else:
            about = join(
                (
                    plain(f" rank {view.rank}", "strong"),
                    plain(view.host),
                    plain(f"pid {view.identity.pid}" if view.identity.pid else "", "dim"),
                    plain(view.state, view.state),
                    plain(self.lens.values.get(view.rank, "") if self.lens else "", "strong"),
                    plain(describe_activity_and_line(view, frame.now_ns, blame_reasons(frame))),
                )
            )
        letters = self.lens.legend() if self.lens is not None else legend(frame)
        return (clip(about, width), clip((*plain(" "), *letters), width))


class Overview(FrameScreen):
    """The cursor of the grid starts on the culprit."""

    AUTO_FOCUS = "#grid"
    crumb = "job"
    BINDINGS: ClassVar[list[BindingType]] = [
        STACKS,
        *rank_keys(first=True),
        WAITS,
        Binding(
            "V",
            "open_view('settings')",
            "settings",
            show=False,
            tooltip="versions and settings, and which of them differ",
            id="settings",
        ),
        *rank_keys(),
        Binding(
            "q",
            "app.quit",
            "quit",
            tooltip="no screen is left to go back to",
            id="quit",
        ),
        Binding("slash", "filter", "filter", tooltip="list matching ranks", id="filter"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self._last_culprits: tuple[object, ...] = ()
        """Job and culprits that the cursor last moved to."""

    def panes(self) -> ComposeResult:
        yield VerdictPanel()
        with Container(id="middle"):
            yield GroupPanel()
            yield RankGrid(self.marked)
        yield Legend()
        yield RankTable(self.marked, id="most", classes="pane")
        yield StackPane(names_rank=True)

    def crumbs(self) -> Line:
        return ()

    def draw(self, frame: Frame) -> None:
        self.query_one(VerdictPanel).show(frame, self._remarks())
        self.query_one(GroupPanel).show(frame)
        grid = self.query_one(RankGrid)
        grid.show(frame)
        culprits = frame.verdicts[0].first_ranks if frame.verdicts else ()
        if culprits and (frame.job, culprits) != self._last_culprits:
            # Once per verdict: `enter` opens the culprit, but a moved cursor stays.
            grid.choose(culprits[0])
            self._last_culprits = (frame.job, culprits)
        table = self.query_one(RankTable)
        if table.display:
            table.entitle("most relevant ranks, some of those that are alike")
            seen = grid.lens_view
            table.show_ranks(frame, most_relevant(frame, MOST_ROWS, seen.amounts), seen.values)
        self.draw_legend()

    def _remarks(self) -> tuple[WordLine, ...]:
        """What features say below the verdict of the newest frame."""
        if self.past or not self.news:
            return ()
        found = (one.remark(self.news) for one in of_features() if one.remark is not None)
        return tuple(filter(None, found))

    def shows_files(self, kind: str) -> bool:  # noqa: ARG002
        return True

    def draw_legend(self) -> None:
        legend_lines = self.query_one(Legend)
        grid = self.query_one(RankGrid)
        legend_lines.frame, legend_lines.rank = self.frame, grid.chosen
        legend_lines.lens = None if grid.lens == "state" else grid.lens_view
        legend_lines.redraw()
        stack, rank = self.query_one(StackPane), self.chosen
        view = None if self.frame is None or rank is None else self.frame.ranks.get(rank)
        if stack.display and self.frame is not None and view is not None:
            stack.show(self.frame, view)

    def on_line_view_moved(self) -> None:
        self.draw_legend()

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        sender = event.sender
        if isinstance(sender, RankGrid) and sender.chosen is not None:
            self.post_message(OpenRank(sender.chosen))
        elif isinstance(sender, RankTable) and sender.chosen is not None:
            self.post_message(OpenRank(sender.chosen.rank))
        elif isinstance(sender, GroupPanel) and sender.chosen is not None:
            groups = sorted(sender.chosen.groups, key=lambda group: group.members)
            self.post_message(OpenGroup(tuple(group.key for group in groups)))

    @property
    def chosen(self) -> int | None:
        """The rank under the cursor of the focused list, or of the grid."""
        table = self.query_one(RankTable)
        row = table.chosen if table.has_focus else None
        return row.rank if row is not None else self.query_one(RankGrid).chosen

    def action_filter(self) -> None:
        self.post_message(OpenRanks(editing=True))
