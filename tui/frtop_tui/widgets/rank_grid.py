"""The grid of all ranks, a letter and a colour for each, grouped by host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.text.rank_states import LETTERS, URGENCY
from frtop_tui.widgets.grid_layout import lay_out, ranks_by_host
from frtop_tui.widgets.lenses import EMPTY, EVERY_FRAME, UNKNOWN, next_lens, through
from frtop_tui.widgets.lines import LazyLines, LineView
from frtop_tui.widgets.spans import Line, Span, fit, join, plain
from frtop_tui.widgets.table import RANK_KEYS

CELL_TONES: Final[Mapping[str, str]] = {
    "moving": "heat0",
    "blocked": "waits",
    **dict.fromkeys(("late", "dead", "silent", "stopped"), "alarm"),
}
"""Of the states that fill a cell; others have a letter only."""


def legend(frame: Frame) -> Line:
    """The letters on the screen and the number of ranks of each."""
    counts = Counter([rank.state for rank in frame.ranks.values()])
    for rank in stragglers(frame):
        counts[frame.ranks[rank].state] -= 1
        counts["late"] += 1
    world = frame.job.world_size if frame.job else 0
    counts["unreachable"] += max(0, world - len(frame.ranks))
    return join(
        [
            (
                (f" {LETTERS[state]} ", CELL_TONES.get(state, state)),
                (f" {state} {counts[state]:,}", ""),
            )
            for state in sorted(counts, key=URGENCY.__getitem__)
            if counts[state]
        ],
        between="   ",
    )


def stragglers(frame: Frame) -> frozenset[int]:
    """Ranks that are late again and again: they move, and the others wait for them."""
    if frame.health != "slow":
        return frozenset()
    blamed = {rank for verdict in frame.verdicts for rank in verdict.culprits}
    there = (frame.ranks[rank] for rank in blamed if rank in frame.ranks)
    return frozenset(view.rank for view in there if view.state in ("moving", "blocked"))


@lru_cache(1024)
def _cell(text: str, tone: str, width: int) -> Span:
    """Equal letters are one object: thousands are compared in every tick."""
    return (text.center(width) if width > 2 else text.ljust(width), tone)


class RankGrid(LineView):
    """The grid, with a cursor that moves from rank to rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *RANK_KEYS,
        Binding(
            "v",
            "lens",
            "view",
            tooltip="what the letters show: state, lag, step time, own time, skew, device use",
            id="grid.lens",
        ),
        Binding("left,h", "sideways(-1)", "left", show=False, tooltip="previous rank", id="left"),
        Binding("right,l", "sideways(1)", "right", show=False, tooltip="next rank", id="right"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(id="grid", classes="pane")
        self.entitle("ranks")
        self.marked = marked
        self.ranks: Mapping[int, JudgedRank] = {}
        self.chosen: int | None = None
        self.grid_layout = lay_out({}, 1)
        self._hosts: dict[str, list[int]] = {}
        self._members: tuple[object, ...] = ()
        self._laid_out: tuple[object, ...] = ()
        self.wanted = ""
        """The lens that somebody has chosen; "": what the verdict is about."""
        self.lens = "state"
        self.lens_view = EMPTY
        self._culprits: frozenset[int] = frozenset()
        self._stragglers: frozenset[int] = frozenset()
        self._usual: Mapping[str, Span] = {}
        """The cell of a rank in each state; `_apart` are those that look different."""
        self._apart: frozenset[int | None] = frozenset()
        self._seen: tuple[object, object, Frame] | None = None

    def show(self, frame: Frame) -> None:
        self.ranks = frame.ranks
        self._culprits = frozenset(chain.from_iterable(one.culprits for one in frame.verdicts))
        self._stragglers = stragglers(frame)
        self._look(frame)
        # Comparing costs a tenth of grouping thousands of ranks by host again.
        world = frame.job.world_size if frame.job else 0
        members = (world, *frame.ranks, *[rank.host for rank in frame.ranks.values()])
        if members != self._members:
            self._members = members
            self._hosts = ranks_by_host(frame)
        self.redraw()

    def _look(self, frame: Frame) -> None:
        """Applies the lens; one that depends on statistics only when these are new."""
        news: object = frame if self.wanted in EVERY_FRAME else frame.statistics
        about = (self.wanted, frame.health, self._culprits)
        seen = self._seen
        # By identity: frames and statistics of thousands of ranks take long to compare.
        if seen is None or seen[0] != about or seen[1] is not news or news is None:
            self.lens, self.lens_view = through(self.wanted, frame)
            self.entitle("ranks" if self.lens == "state" else f"ranks by {self.lens}")
        self._seen = (about, news, frame)

    def action_lens(self) -> None:
        self.look_through(next_lens(self.lens))

    def look_through(self, lens: str) -> None:
        """Changes to another of the lenses."""
        self.wanted = lens
        if self._seen is not None:
            self._look(self._seen[2])
        self.redraw()
        self.post_message(self.Moved(self))

    def content(self, width: int) -> Sequence[Line]:
        laid_out = (self._members, width, height := self._height())
        if self._laid_out != laid_out:
            self.grid_layout = lay_out(self._hosts, width, height)
            self._laid_out = laid_out
        if not self.grid_layout.rows:
            return (plain("no ranks yet", "dim"),)
        if self.chosen not in self.grid_layout.positions:
            self.chosen = self.grid_layout.order[0]
            self.post_message(self.Moved(self))
        cell = self.grid_layout.cell
        self._usual = {
            state: _cell(letter, CELL_TONES.get(state, state), cell)
            for state, letter in LETTERS.items()
        }
        self._apart = frozenset((*self._culprits, *self._stragglers, *self.marked, self.chosen))
        return LazyLines(lambda: len(self.grid_layout.rows), self.row_line)

    def _height(self) -> int:
        """Rows that can be seen, however many there are now."""
        most = self.styles.max_height
        if self.styles.is_auto_height and most is not None and most.cells is not None:
            return most.cells - self.gutter.height
        return self.scrollable_content_region.height

    def row_line(self, y: int) -> Line:
        spans: list[Span] = []
        x = 0
        for run in self.grid_layout.rows[y]:
            width = self.grid_layout.label_width
            lead = run.x - x - width - 1
            spans.append((" " * lead + fit(run.label, width) + " ", "dim"))
            spans += self._letters(run.ranks)
            x = run.x + len(run.ranks) * self.grid_layout.cell
        return tuple(spans)

    def _letters(self, numbers: Sequence[int]) -> list[Span]:
        if self.lens != "state":
            return list(map(self._letter, numbers))
        ranks, usual, apart = self.ranks, self._usual, self._apart
        return [
            self._letter(rank) if rank in apart or rank not in ranks else usual[ranks[rank].state]
            for rank in numbers
        ]

    def _letter(self, rank: int) -> Span:
        view = self.ranks.get(rank)
        if self.lens == "state" or view is None:
            late = rank in self._stragglers
            state = "unreachable" if view is None else "late" if late else view.state
            letter, tone = LETTERS[state], CELL_TONES.get(state, state)
        else:
            letter, tone = self.lens_view.letters.get(rank, UNKNOWN)
        if rank in self._culprits:
            tone = "alarm"
        if rank in self.marked:
            tone = "mark"
        cell = self.grid_layout.cell
        if rank != self.chosen or not self.has_focus:
            return _cell(letter, tone, cell)
        if cell > 2 and tone == "alarm":  # the cursor starts there, and must not hide its colour
            return _cell(f"[{letter}]", tone, cell)
        return _cell(letter, "cursor", cell)

    def choose(self, rank: int) -> None:
        """Puts the cursor on a rank; before the first layout, the cursor will start there."""
        if rank == self.chosen:
            return
        self.chosen = rank
        self.redraw()
        self._scroll_to_chosen()
        self.post_message(self.Moved(self))

    def copied(self) -> str:
        return ""

    def click_at(self, x: int, y: int) -> bool:
        y += self.scroll_offset.y
        layout = self.grid_layout
        for run in layout.rows[y] if y < len(layout.rows) else ():
            if 0 <= (nth := (x - run.x) // layout.cell) < len(run.ranks):
                self.choose(run.ranks[nth])
                return True
        return False

    def _scroll_to_chosen(self) -> None:
        if self.chosen is not None and (at := self.grid_layout.positions.get(self.chosen)):
            self.move_to(at[0])

    def on_resize(self) -> None:
        super().on_resize()
        self._scroll_to_chosen()

    def action_sideways(self, ranks: int) -> None:
        if self.chosen is None or self.chosen not in self.grid_layout.positions:
            return
        order = self.grid_layout.order
        index = order.index(self.chosen) + ranks
        self.choose(order[max(0, min(index, len(order) - 1))])

    def _step(self, lines: int) -> None:
        positions = self.grid_layout.positions
        if self.chosen is None or self.chosen not in positions:
            return
        y, x = positions[self.chosen]
        target = max(0, min(y + lines, len(self.grid_layout.rows) - 1))
        row = [rank for run in self.grid_layout.rows[target] for rank in run.ranks]
        self.choose(min(row, key=lambda rank: abs(positions[rank][1] - x)))

    def action_first(self) -> None:
        self.action_sideways(-len(self.grid_layout.order))

    def action_last(self) -> None:
        self.action_sideways(len(self.grid_layout.order))

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.marked ^= {self.chosen}
            self.redraw()

    def on_focus(self) -> None:
        self.redraw()

    def on_blur(self) -> None:
        self.redraw()
