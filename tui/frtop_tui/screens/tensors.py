"""What is in the tensors of a rank's pending ops: the rank itself is asked."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.job.naming import printable
from frtop_tui.screens.base import InspectRank, SaveTensors
from frtop_tui.screens.one_rank import OneRankScreen
from frtop_tui.screens.saving import free_path, question, size_of
from frtop_tui.widgets.question import Question
from frtop_tui.widgets.spans import Line, join, plain
from frtop_tui.widgets.tensors import TensorsPane
from frtop_tui.widgets.writings import under_way


class TensorsScreen(OneRankScreen):
    """Asks when it opens, and on `t`; goes to neighbours, whose checksums it compares."""

    AUTO_FOCUS = "#tensors"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="to where one came from", id="back"),
        Binding("t,plus", "inspect", "ask again", tooltip="ask the rank anew", id="tensors.ask"),
        Binding("T", "save", "save", tooltip="data of the op under the cursor", id="tensors.save"),
        Binding(
            "n", "neighbour(1)", "next rank", tooltip="its tensors, to compare", id="rank.next"
        ),
        Binding(
            "p", "neighbour(-1)", "previous", tooltip="previous rank's tensors", id="rank.previous"
        ),
    ]

    def __init__(self, marked: set[int], rank: int, instead: int | None = None) -> None:
        super().__init__(marked, rank)
        self.instead = instead
        """The rank it waits for, which has nothing to look into."""
        self._opened = False
        self._asked_ns: int | None = None
        self._before: wire.TensorsResponse | None = None
        """The answer there was when the rank was asked: the next one is ours."""
        self._saving: tuple[int, int, Path] | None = None

    @property
    def crumb(self) -> str:  # type: ignore[override]  # follows the rank
        return f"tensors of rank {self.rank}"

    def panes(self) -> ComposeResult:
        yield TensorsPane()
        yield Question()

    def crumbs(self) -> Line:
        rank = self.known
        if rank is None:
            return super().crumbs()
        state = join((plain(rank.host), plain(rank.state, rank.state)))
        return (*super().crumbs(), *plain("  "), *state)

    def draw(self, frame: Frame) -> None:
        self.known = frame.ranks.get(self.rank, self.known)
        if not self._opened and self.known is not None:
            self._opened = True
            if not self.barred("inspect"):
                self._ask(frame)
        self.query_one(Question).show(frame)
        if self.known is not None:
            waiting = self._waiting_s(frame, self.known)
            pane = self.query_one(TensorsPane)
            pane.instead = self.instead
            pane.show(frame, self.known, waiting, self._absent(frame))

    def _waiting_s(self, frame: Frame, rank: JudgedRank) -> float | None:
        if self._asked_ns is None:
            return None
        if rank.tensors != self._before:
            self._asked_ns = None
            return None
        return max(0.0, (frame.now_ns - self._asked_ns) / 1e9)

    def _absent(self, frame: Frame) -> str:
        if frame.recorded is not None:
            return (
                f"The {frame.recorded.kind} holds no tensors of rank {self.rank}:"
                " it was not asked before that was written, or did not answer."
            )
        return self.barred("inspect")

    def _ask(self, frame: Frame) -> None:
        self._asked_ns = frame.now_ns
        self._before = self.known.tensors if self.known is not None else None
        self.post_message(InspectRank(self.rank))

    def action_inspect(self) -> None:
        if self.frame is not None and self.known is not None and self.may("inspect"):
            self._ask(self.frame)
            self.draw_all()

    def action_save(self) -> None:
        frame, rank, op = self.frame, self.known, self.query_one(TensorsPane).chosen
        if frame is None or rank is None or not self.may("save"):
            return
        if op is None or not size_of(op):
            self.app.notify("There is no data to save: no tensor of a pending op was read.")
            return
        running = under_way(frame, "tensors")
        if running is not None:
            text = f"One file at a time: {printable(running.path)} is still being written."
            self.app.notify(text, markup=False)
            return
        try:
            path = free_path(frame, rank, op.sequence, Path.cwd())
        except OSError as error:  # the folder was taken away, or may not be read
            self.app.notify(f"Nothing can be saved here ({error.strerror}); start frtop elsewhere.")
            return
        self._saving = (rank.rank, op.sequence, path)
        self.query_one(Question).ask(question(rank, op, path))

    def on_question_answered(self, event: Question.Answered) -> None:
        wanted, self._saving = self._saving, None
        self.set_focus(self.query_one(TensorsPane))
        if event.yes and wanted is not None:
            self.post_message(SaveTensors(*wanted))
        self.draw_all()

    def turned(self) -> None:
        """It is asked unless it has been before."""
        self._asked_ns = None
        self._opened = self.known is not None and self.known.tensors is not None
        self.instead = None
        self.query_one(TensorsPane).move_to(0)
