"""The first screen: verdict, groups, and all ranks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.screens.asking import to_ask
from frtop_tui.screens.base import FrameScreen, OpenRank, OpenRanks, OpenStacks, OpenTensors
from frtop_tui.widgets.doing import causes, doing_at
from frtop_tui.widgets.groups import GroupPanel
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.rank_grid import RankGrid, legend
from frtop_tui.widgets.rank_table import RankTable, of_interest
from frtop_tui.widgets.spans import Line, clip, join, plain
from frtop_tui.widgets.verdict import VerdictPanel

MOST_ROWS = 64
"""Ranks in the list below the grid: the ones to look at first; `2` shows all."""


class Legend(LineView, can_focus=False):
    """The rank under the cursor in words, and what the letters mean."""

    def __init__(self) -> None:
        super().__init__(id="legend")
        self.frame: Frame | None = None
        self.rank: int | None = None

    def content(self, width: int) -> Sequence[Line]:
        frame = self.frame
        if frame is None or self.rank is None:
            return ()
        view = frame.ranks.get(self.rank)
        if view is None:
            about = join((plain(f" rank {self.rank}", "strong"), plain("never heard", "unheard")))
        else:
            about = join(
                (
                    plain(f" rank {view.rank}", "strong"),
                    plain(view.host),
                    plain(f"pid {view.identity.pid}" if view.identity.pid else "", "dim"),
                    plain(view.state, view.state),
                    plain(doing_at(view, frame.now_ns, causes(frame))),
                )
            )
        return (clip(about, width), clip((*plain(" "), *legend(frame)), width))


class Overview(FrameScreen):
    """Verdict on top, groups and ranks below; the cursor starts on the culprit."""

    AUTO_FOCUS = "#grid"
    crumb = "job"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "stacks", "stacks", tooltip="take and merge stacks", id="stacks.take"),
        Binding("t", "tensors", "tensors", tooltip="look into what is being reduced", id="tensors"),
        Binding("slash", "filter", "filter", tooltip="search ranks", id="filter"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self._led_to: tuple[object, ...] = ()

    def panes(self) -> ComposeResult:
        yield VerdictPanel()
        with Container(id="middle"):
            yield GroupPanel()
            yield RankGrid(self.marked)
        yield Legend()
        yield RankTable(self.marked, id="most", classes="pane")

    def crumbs(self) -> Line:
        return ()

    def draw(self, frame: Frame) -> None:
        self.query_one(VerdictPanel).show(frame)
        self.query_one(GroupPanel).show(frame)
        grid = self.query_one(RankGrid)
        grid.show(frame)
        culprits = frame.verdicts[0].culprits if frame.verdicts else ()
        if culprits and (frame.job, culprits) != self._led_to:
            # Once per verdict: `enter` leads to the culprit, but a moved cursor stays.
            grid.choose(culprits[0])
            self._led_to = (frame.job, culprits)
        table = self.query_one(RankTable)
        if table.display:
            table.entitle("ranks to look at first")
            table.show_ranks(frame, of_interest(frame, MOST_ROWS))
        self.draw_legend()

    def draw_legend(self) -> None:
        legend_lines = self.query_one(Legend)
        legend_lines.frame, legend_lines.rank = self.frame, self.query_one(RankGrid).chosen
        legend_lines.redraw()

    def on_line_view_moved(self) -> None:
        self.draw_legend()

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        sender = event.sender
        if isinstance(sender, RankGrid) and sender.chosen is not None:
            self.post_message(OpenRank(sender.chosen))
        elif isinstance(sender, RankTable) and sender.chosen is not None:
            self.post_message(OpenRank(sender.chosen.rank))
        elif isinstance(sender, GroupPanel) and sender.chosen is not None:
            label = sender.chosen.label.partition(":*")[0]
            members = fold(rank for group in sender.chosen.groups for rank in group.members)
            # Words of a filter are split at spaces, and so would be such a name.
            self.post_message(OpenRanks(f"rank:{members}" if " " in label else f"group:{label}"))

    def action_stacks(self) -> None:
        self.post_message(OpenStacks())

    def action_tensors(self) -> None:
        """Of the rank under the cursor, of the grid unless the list has the focus."""
        table = self.query_one(RankTable)
        row = table.chosen if table.has_focus else None
        rank = row.rank if row is not None else self.query_one(RankGrid).chosen
        if rank is not None and self.frame is not None and self.may("tensors"):
            self.post_message(OpenTensors(to_ask(self.frame, rank), rank))

    def action_filter(self) -> None:
        self.post_message(OpenRanks(editing=True))
