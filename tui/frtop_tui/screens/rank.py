"""One rank: its op queue, its stacks, its process, and where the other ranks are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.naming import GroupKey, group_label
from frtop_tui.job.native_stacks import cost, has_native
from frtop_tui.job.units import duration, live_duration
from frtop_tui.screens.base import BACK, WAITS, OneRankScreen
from frtop_tui.screens.contributed import rank_keys
from frtop_tui.screens.messages import Do, OpenGroup
from frtop_tui.screens.native_key import AGAIN_S, NativeKey
from frtop_tui.text.rank_words import format_exit
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.other_ranks import OtherRanksPane
from frtop_tui.widgets.process_pane import ProcessPane
from frtop_tui.widgets.queue_pane import QueuePane
from frtop_tui.widgets.spans import Line, join, plain, wrap
from frtop_tui.widgets.stack_pane import StackPane


def banner_lines(frame: Frame, rank: JudgedRank | None, number: int, width: int) -> list[Line]:
    """What matters most about a rank: its exception, how it ended, that it is unreachable."""
    if rank is None:
        return wrap(f"rank {number} has never reported; nothing is known about it", width, "warn")
    rows: list[Line] = []
    if rank.exception is not None:
        exception = rank.exception
        when = duration(rank.age_s(exception.at_ns, frame.now_ns))
        scope = "ended the program" if exception.main else f"ended thread {exception.thread}"
        first = exception.text.strip().splitlines() or [""]
        rows += wrap(f"{exception.kind}: {first[0]} ({scope} {when} ago)", width, "bad")
    if rank.exit_info is not None:
        when = duration(rank.age_s(rank.exit_info.at_ns, frame.now_ns))
        clean = rank.exit_info.clean and not rank.exit_info.exit_code
        rows += wrap(f"{format_exit(rank.exit_info)}, {when} ago", width, "" if clean else "bad")
    if number not in frame.ranks:
        rows += wrap("no longer in the job; its last known state is shown", width, "warn")
    elif rank.state == "unreachable":
        when = (
            f" for {duration((frame.now_ns - rank.reported_ns) / 1e9)}" if rank.reported_ns else ""
        )
        rows += wrap(f"unreachable{when}; its last known state is shown", width, "warn")
    if frame.problem:
        rows += wrap(str(frame.problem), width, "warn")
    return rows


def relevant_group(frame: Frame, rank: JudgedRank) -> str:
    """The group in which this rank is late or blocked, for the path on the first line."""
    for group in frame.groups:
        if rank.rank in group.late:
            return group.label
    op = rank.blocked_on
    group_of = rank.groups.get(op.group) if op is not None else None
    return group_label(group_of.name, group_of.description) if group_of is not None else ""


def group_of_op(frame: Frame, rank: JudgedRank) -> GroupKey | None:
    """The group of the op that a rank is blocked in, else one it is late in, else its last one."""
    op = rank.blocked_on
    number = op.group if op is not None else 0
    if not rank.groups.get(number):
        late = [view.key for view in frame.groups if rank.rank in view.late]
        if late:
            return late[0]
        progress = rank.group_progress.values()
        number = max(progress, key=lambda one: one.issued_ns).group if progress else 0
    group = rank.groups.get(number) or next(iter(rank.groups.values()), None)
    return GroupKey(group.name, group.ranks, group.epoch) if group is not None else None


def relevant_key(frame: Frame, rank: JudgedRank) -> Identifier | None:
    """The same group, else its largest one, so that it is looked up across ranks."""
    late = [group.key for group in frame.groups if rank.rank in group.late]
    if late:
        return identifier(late[0])
    op = rank.blocked_on
    here = rank.groups.get(op.group) if op is not None else None
    groups = [here] if here is not None else list(rank.groups.values())
    return max(map(identifier, groups), key=lambda one: len(members_of(one[1])), default=None)


class Banner(LineView, can_focus=False):
    """What matters most about the rank; hidden if there is nothing."""

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
    """Panes for the rank's op queue, stacks and process, and for the other ranks."""

    AUTO_FOCUS = "#stack"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("b", "take", "stacks", tooltip="take its stacks now", id="stacks.take"),
        Binding(
            "N",
            "native",
            "native",
            tooltip="stacks with frames of C and C++; the rank stands still for them",
            id="stacks.native",
        ),
        *rank_keys(first=True),
        Binding("o", "group", "group", tooltip="the group of its op", id="group"),
        replace(WAITS, show=False),
        *rank_keys(),
        Binding("n", "neighbour(1)", "next rank", id="rank.next"),
        Binding("p", "neighbour(-1)", "previous", tooltip="previous rank", id="rank.previous"),
        Binding("F", "follow", "follow", tooltip="scroll the queue to the newest op", id="follow"),
    ]

    def __init__(self, marked: set[int], rank: int) -> None:
        super().__init__(marked, rank)
        self._native = NativeKey()

    @property
    def crumb(self) -> str:  # type: ignore[override]  # follows the rank
        return f"rank {self.rank}"

    def panes(self) -> ComposeResult:
        yield Banner(self.rank)
        with Container(id="body"):
            yield QueuePane()
            yield StackPane()
            yield ProcessPane()
            yield OtherRanksPane()

    def crumbs(self) -> Line:
        rank, frame = self.known, self.frame
        path = super().crumbs()
        if rank is None or frame is None:
            return path
        group = relevant_group(frame, rank)
        status = rank.status
        start = (*path[:-1], *plain(f"{group} > " if group else "", "dim"), path[-1])
        heartbeat = ""
        if rank.exit_info is None and (age_s := rank.heartbeat_age_s(frame.now_ns)) is not None:
            heartbeat = f"heartbeat {live_duration(age_s)} ago"
        return (
            *start,
            *plain("  "),
            *join(
                (
                    plain(rank.host),
                    plain(f"pid {rank.identity.pid}" if rank.identity.pid else ""),
                    plain(rank.state, rank.state),
                    plain(heartbeat),
                    plain(f"step {status.step}" if status is not None and status.step else ""),
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
        pane = self.query_one(StackPane)
        if self._native.arrived(self.known):
            pane.switch(native=True)
        pane.show(frame, self.known)
        self.query_one(ProcessPane).show(frame, self.known)
        self.query_one(OtherRanksPane).show(frame, self.known)

    def action_take(self) -> None:
        if self.check_available("take"):
            self.query_one(StackPane).switch(native=False)
            self.post_message(Do(wire.SnapshotRequest(), (self.rank,)))
            self.draw_all()

    def action_native(self) -> None:
        """The first press says what it costs, and shows old stacks; the second takes new ones."""
        frame, rank, pane = self.frame, self.known, self.query_one(StackPane)
        if frame is None or rank is None or not self.check_available("native"):
            return
        if frame.recorded is not None:
            pane.switch(native=not pane.native)
        elif self._native.press(rank):
            self.app.clear_notifications()
            pane.switch(native=True, waiting=True)
            self.post_message(Do(wire.NativeStacksRequest(), (self.rank,)))
        elif not self._native.waiting:
            pane.switch(native=pane.native or has_native(rank))
            self.app.clear_notifications()
            text = f"{cost(rank)} Press N again to do it."
            self.app.notify(text, timeout=AGAIN_S)
        self.draw_all()

    @property
    def group_of_interest(self) -> Identifier | None:
        frame, rank = self.frame, self.known
        return relevant_key(frame, rank) if frame is not None and rank is not None else None

    def action_group(self) -> None:
        if self.frame is None or self.known is None:
            return
        key = group_of_op(self.frame, self.known)
        if key is None:
            self.app.notify("It is in no process group.", timeout=4)
        else:
            self.post_message(OpenGroup((key,)))

    def action_follow(self) -> None:
        self.query_one(QueuePane).follow()
        self.draw_all()

    def reset(self) -> None:
        self._native.forget()
        self.query_one(StackPane).switch(native=False)
        for pane in self.query(LineView):
            pane.scroll_to(y=0, animate=False)
