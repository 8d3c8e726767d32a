"""All ranks at once, one letter each, by host: who differs is seen from the door."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.widgets.grid_layout import by_host, lay_out
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, fit, join, plain
from frtop_tui.widgets.wording import LETTERS, URGENCY


def legend(frame: Frame) -> Line:
    """The letters that are on the screen, with how many there are of each."""
    counts = Counter([rank.state for rank in frame.ranks.values()])
    world = frame.job.world_size if frame.job else 0
    counts["unheard"] += max(0, world - len(frame.ranks))
    return join(
        [
            ((LETTERS[posture], posture), (f" {posture} {counts[posture]:,}", ""))
            for posture in sorted(counts, key=URGENCY.__getitem__)
            if counts[posture]
        ],
        between="   ",
    )


class _Rows(Sequence[Line]):
    """The grid's lines, drawn when they come into sight."""

    def __init__(self, grid: RankGrid) -> None:
        self._grid = grid

    def __len__(self) -> int:
        return len(self._grid.layout_of_ranks.rows)

    def __getitem__(self, y: int) -> Line:  # type: ignore[override]  # only lines, no slices
        return self._grid.row_line(y)


class RankGrid(LineView):
    """The grid, with a cursor that goes from rank to rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "choose", "look", tooltip="queue, stack, process of a rank", id="grid.open"
        ),
        Binding("space", "mark", "mark", tooltip="mark a rank for stacks", id="grid.mark"),
        Binding("left,h", "sideways(-1)", "left", show=False, tooltip="previous rank", id="left"),
        Binding("right,l", "sideways(1)", "right", show=False, tooltip="next rank", id="right"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(id="grid", classes="pane")
        self.entitle("ranks")
        self.marked = marked
        self.ranks: Mapping[int, JudgedRank] = {}
        self.chosen: int | None = None
        self.layout_of_ranks = lay_out({}, 1)
        self._hosts: dict[str, list[int]] = {}
        self._members: tuple[object, ...] = ()
        self._laid_out: tuple[tuple[object, ...], int] | None = None

    def show(self, frame: Frame) -> None:
        self.ranks = frame.ranks
        # Comparing is a tenth of the cost of sorting thousands into hosts again.
        world = frame.job.world_size if frame.job else 0
        members = (world, *frame.ranks, *[rank.host for rank in frame.ranks.values()])
        if members != self._members:
            self._members = members
            self._hosts = by_host(frame)
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self._laid_out != (self._members, width):
            self.layout_of_ranks = lay_out(self._hosts, width)
            self._laid_out = (self._members, width)
        if not self.layout_of_ranks.rows:
            return (plain("no ranks yet", "dim"),)
        if self.chosen not in self.layout_of_ranks.places:
            self.chosen = self.layout_of_ranks.order[0]
            self.post_message(self.Moved(self))
        return _Rows(self)

    def row_line(self, y: int) -> Line:
        spans: list[Span] = []
        x = 0
        for cell in self.layout_of_ranks.rows[y]:
            width = self.layout_of_ranks.label_width
            lead = cell.x - x - width - 1
            spans.append((" " * lead + fit(cell.label, width) + " ", "dim"))
            spans.extend(self._letter(rank) for rank in cell.ranks)
            x = cell.x + len(cell.ranks)
        return tuple(spans)

    def _letter(self, rank: int) -> Span:
        view = self.ranks.get(rank)
        posture = "unheard" if view is None else view.state
        letter = LETTERS[posture]
        if rank == self.chosen and self.has_focus:
            return (letter, "cursor")
        return (letter, "mark") if rank in self.marked else (letter, posture)

    def choose(self, rank: int) -> None:
        """Puts the cursor on a rank; before there is a layout, it will start there."""
        if rank == self.chosen:
            return
        self.chosen = rank
        self.redraw()
        place = self.layout_of_ranks.places.get(rank)
        if place is not None:
            self.move_to(place[0])
        self.post_message(self.Moved(self))

    def action_sideways(self, ranks: int) -> None:
        if self.chosen is None or self.chosen not in self.layout_of_ranks.places:
            return
        order = self.layout_of_ranks.order
        index = order.index(self.chosen) + ranks
        self.choose(order[max(0, min(index, len(order) - 1))])

    def _step(self, lines: int) -> None:
        if self.chosen is None or self.chosen not in self.layout_of_ranks.places:
            return
        y, x = self.layout_of_ranks.places[self.chosen]
        target = max(0, min(y + lines, len(self.layout_of_ranks.rows) - 1))
        row = [rank for cell in self.layout_of_ranks.rows[target] for rank in cell.ranks]
        places = self.layout_of_ranks.places
        self.choose(min(row, key=lambda rank: abs(places[rank][1] - x)))

    def action_first(self) -> None:
        self.action_sideways(-len(self.layout_of_ranks.order))

    def action_last(self) -> None:
        self.action_sideways(len(self.layout_of_ranks.order))

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.marked ^= {self.chosen}
            self.redraw()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()
