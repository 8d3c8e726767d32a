"""One rank: its op queue, its stacks, its process, and where the other ranks are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from frtop_probe import wire
from frtop_tui.diagnosis.finding import group_key
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.naming import GroupKey
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


def relevant_group(frame: Frame, rank: JudgedRank) -> GroupKey | None:
    """The group of the op that a rank waits in, else one in which it is late."""
    op = rank.blocked_on
    waits_in = rank.groups.get(op.group) if op is not None else None
    late_in = (view.key for view in frame.groups if rank.rank in view.late)
    return group_key(waits_in) or next(late_in, None)


def group_of_last_op(rank: JudgedRank) -> GroupKey | None:
    """The group in which a rank last issued an op, else any of its groups."""
    last = max(rank.group_progress.values(), key=lambda one: one.issued_ns, default=None)
    used = rank.groups.get(last.group) if last is not None else None
    return group_key(used or next(iter(rank.groups.values()), None))


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
        Binding("m", "group", "members", tooltip="all members of its op's group", id="group"),
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
        key = relevant_group(frame, rank)
        group = next((view.label for view in frame.groups if view.key == key), "")
        status = rank.status
        heartbeat = ""
        if rank.exit_info is None and (age_s := rank.heartbeat_age_s(frame.now_ns)) is not None:
            heartbeat = f"heartbeat {live_duration(age_s)} ago"
        return (
            *path,
            *plain("  "),
            *join(
                (
                    plain(group),
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
        if frame is None or rank is None:
            return None
        key = relevant_group(frame, rank)
        # A rank in no trouble is compared with as many ranks as possible.
        groups = [key] if key is not None else rank.groups.values()
        return max(map(identifier, groups), key=lambda one: len(members_of(one[1])), default=None)

    def action_group(self) -> None:
        if self.frame is None or self.known is None:
            return
        key = relevant_group(self.frame, self.known) or group_of_last_op(self.known)
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
