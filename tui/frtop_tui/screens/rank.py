"""One rank: what it has issued, where its threads are, how its process fares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.screens.base import OpenTensors, TakeStacks
from frtop_tui.screens.one_rank import OneRankScreen
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.others import OthersPane
from frtop_tui.widgets.process_pane import ProcessPane
from frtop_tui.widgets.queue import QueuePane
from frtop_tui.widgets.spans import Line, join, plain, wrap
from frtop_tui.widgets.stack_pane import StackPane
from frtop_tui.widgets.wording import age, calm, ending, group_label


def banner_lines(frame: Frame, rank: JudgedRank | None, number: int, width: int) -> list[Line]:
    """What must not be overlooked about a rank: how it ended, what it raised, its silence."""
    if rank is None:
        return wrap(
            f"rank {number} has not been heard of; nothing is known about it", width, "warn"
        )
    rows: list[Line] = []
    if rank.exception is not None:
        raised = rank.exception
        when = age(rank.age_s(raised.at_ns, frame.now_ns))
        scope = "ended the program" if raised.main else f"ended thread {raised.thread}"
        first = raised.text.strip().splitlines() or [""]
        rows += wrap(f"{raised.kind}: {first[0]} ({scope} {when} ago)", width, "bad")
    if rank.exit_info is not None:
        when = age(rank.age_s(rank.exit_info.at_ns, frame.now_ns))
        clean = rank.exit_info.clean and not rank.exit_info.exit_code
        rows += wrap(f"{ending(rank.exit_info)}, {when} ago", width, "" if clean else "bad")
    if number not in frame.ranks:
        rows += wrap("gone from the job's frame; below is its last known state", width, "warn")
    elif rank.state == "unheard":
        when = age((frame.now_ns - rank.heard_ns) / 1e9)
        rows += wrap(f"not heard since {when}; below is its last known state", width, "warn")
    if frame.problem:
        rows += wrap(str(frame.problem), width, "warn")
    return rows


def group_in_question(frame: Frame, rank: JudgedRank) -> str:
    """The group this rank is late or blocked in, for the path at the top."""
    for group in frame.groups:
        if rank.rank in group.late:
            return group_label(group.description, group.key.name)
    op = rank.blocked_on
    group_of = rank.groups.get(op.group) if op is not None else None
    return group_label(group_of.description, group_of.name) if group_of is not None else ""


class Banner(LineView, can_focus=False):
    """Lines in the way on purpose; takes no room when there is nothing to say."""

    def __init__(self, number: int) -> None:
        super().__init__(id="banner")
        self.number = number
        self.frame: Frame | None = None
        self.rank: JudgedRank | None = None

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        rows = banner_lines(self.frame, self.rank, self.number, width - 1)
        return [(*plain(" "), *row) for row in rows]


class RankScreen(OneRankScreen):
    """All of a rank: its queue, its stacks, its process, and who else is where it is."""

    AUTO_FOCUS = "#stack"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="to where one came from", id="back"),
        Binding("b", "take", "stacks", tooltip="take its stacks now", id="stacks.take"),
        Binding("t", "tensors", "tensors", tooltip="look into what is being reduced", id="tensors"),
        Binding("n", "neighbour(1)", "next rank", id="rank.next"),
        Binding("p", "neighbour(-1)", "previous", tooltip="previous rank", id="rank.previous"),
        Binding("F", "follow", "follow", tooltip="queue: back to the newest op", id="follow"),
    ]

    @property
    def crumb(self) -> str:  # type: ignore[override]  # follows the rank
        return f"rank {self.rank}"

    def panes(self) -> ComposeResult:
        yield Banner(self.rank)
        with Container(id="body"):
            yield QueuePane()
            yield StackPane()
            yield ProcessPane()
            yield OthersPane()

    def crumbs(self) -> Line:
        rank, frame = self.known, self.frame
        path = super().crumbs()
        if rank is None or frame is None:
            return path
        group = group_in_question(frame, rank)
        present = rank.status
        # The path reads on into the state: one line must say all that identifies a rank.
        start = (*path[:-1], *plain(f"{group} > " if group else "", "dim"), path[-1])
        beat = ""
        if present is not None and rank.exit_info is None:
            beat = f"beat {calm(rank.age_s(present.beat_ns, frame.now_ns))}"
        return (
            *start,
            *plain("  "),
            *join(
                (
                    plain(rank.host),
                    plain(f"pid {rank.identity.pid}" if rank.identity.pid else ""),
                    plain(rank.state, rank.state),
                    plain(beat),
                    plain(f"step {present.step}" if present is not None and present.step else ""),
                )
            ),
        )

    def draw(self, frame: Frame) -> None:
        self.known = frame.ranks.get(self.rank, self.known)
        banner = self.query_one(Banner)
        banner.number, banner.frame, banner.rank = self.rank, frame, self.known
        banner.redraw()
        if self.known is None:
            return
        self.query_one(QueuePane).show(frame, self.known)
        self.query_one(StackPane).show(frame, self.known)
        self.query_one(ProcessPane).show(frame, self.known)
        self.query_one(OthersPane).show(frame, self.known)

    def action_take(self) -> None:
        if self.may("take"):
            self.post_message(TakeStacks((self.rank,)))

    def action_tensors(self) -> None:
        if self.may("tensors"):
            self.post_message(OpenTensors(self.rank))

    def action_follow(self) -> None:
        self.query_one(QueuePane).follow()
        self.draw_all()

    def turned(self) -> None:
        for pane in self.query(LineView):
            pane.scroll_to(y=0, animate=False)
