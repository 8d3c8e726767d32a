"""The tensors of a rank's pending ops, as the rank itself reports them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_probe.features.tensors.messages import SummarizeTensors
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.comparison import MOST_ASKED, members_to_ask
from frtop_tui.features.tensors.follow import SaveOrder
from frtop_tui.features.tensors.pane import TensorsPane
from frtop_tui.features.tensors.saving import Question, readable_bytes, save_question, tensor_path
from frtop_tui.job.units import counted
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.screens.base import BACK, OneRankScreen
from frtop_tui.screens.messages import Do
from frtop_tui.widgets.file_status import file_in_progress
from frtop_tui.widgets.spans import Line, join, plain


class TensorsScreen(OneRankScreen):
    """Asks the rank when it opens, and again on `t`; `n` and `p` ask other ranks."""

    AUTO_FOCUS = "#tensors"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("t", "inspect", "tensors again", tooltip="ask the rank again", id="tensors.ask"),
        Binding(
            "m",
            "members",
            "members",
            tooltip="ask all members of the op under the cursor, and compare: each works up to 1 s",
            id="tensors.members",
        ),
        Binding(
            "s",
            "save",
            "save",
            tooltip="write the tensors of the op under the cursor to a file",
            id="tensors.save",
        ),
        Binding(
            "n",
            "neighbour(1)",
            "next rank",
            tooltip="tensors of the next rank, to compare",
            id="rank.next",
        ),
        Binding(
            "p",
            "neighbour(-1)",
            "previous",
            tooltip="tensors of the previous rank",
            id="rank.previous",
        ),
    ]

    def __init__(self, marked: set[int], rank: int, instead_of: int | None = None) -> None:
        super().__init__(marked, rank)
        self.instead_of = instead_of
        """The rank that the user selected; it has no tensors, and `rank` waits for it."""
        self._requested = False
        self._asked_ns: int | None = None
        self._previous_answer: wire.TensorsResponse | None = None
        """The answer at the time of asking: any other one is new."""
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

    def request(self, frame: Frame) -> None:
        """Asks each rank once, with the first frame that has it."""
        self.known = frame.ranks.get(self.rank, self.known)
        if self.known is None:
            return
        if self._asked_ns is not None and self.known.tensors != self._previous_answer:
            self._asked_ns = None
        if not self._requested:
            self._requested = True
            if not why_unavailable("inspect", frame, self.host, self.known):
                self._ask(frame)

    def draw(self, frame: Frame) -> None:
        self.known = frame.ranks.get(self.rank, self.known)
        self.query_one(Question).show(frame)
        if self.known is not None:
            waiting = self._waiting_s(frame, self.known)
            pane = self.query_one(TensorsPane)
            pane.instead_of, pane.no_answer = self.instead_of, self.why_no_answer
            pane.show(frame, self.known, waiting, self._why_none(frame))

    def shows_files(self, kind: str) -> bool:
        return kind == "tensors"

    def _waiting_s(self, frame: Frame, rank: JudgedRank) -> float | None:
        if self._asked_ns is None or rank.tensors != self._previous_answer:
            return None
        return max(0.0, (frame.now_ns - self._asked_ns) / 1e9)

    def _why_none(self, frame: Frame) -> str:
        if frame.recorded is not None:
            return (
                f"The {frame.recorded.kind} holds no tensors of rank {self.rank}:"
                " the rank had not been asked, or did not answer."
            )
        return self.why_unavailable("inspect")

    def _ask(self, frame: Frame) -> None:
        self._asked_ns = frame.now_ns
        self._previous_answer = self.known.tensors if self.known is not None else None
        self.post_message(Do(SummarizeTensors(devices=True), (self.rank,)))

    def action_inspect(self) -> None:
        if self.frame is not None and self.known is not None and self.check_available("inspect"):
            self._ask(self.frame)
            self.draw_all()

    def action_members(self) -> None:
        """Asks the members of the op under the cursor; their answers are compared above it."""
        frame, rank, op = self.frame, self.known, self.query_one(TensorsPane).chosen
        if frame is None or rank is None or not self.check_available("members"):
            return
        asked = members_to_ask(frame, rank, op.sequence) if op is not None else ()
        if not asked:
            text = "No members to ask: no op of a group with exact numbers is pending here."
            self.app.notify(text)
            return
        self.post_message(Do(SummarizeTensors(devices=True), asked))
        group = "the members" if len(asked) < MOST_ASKED else f"the first {MOST_ASKED:,} members"
        self.app.notify(f"Asking {group}: {counted(len(asked), 'rank')}.")

    def action_save(self) -> None:
        frame, rank, op = self.frame, self.known, self.query_one(TensorsPane).chosen
        if frame is None or rank is None or not self.check_available("save"):
            return
        if op is None or not readable_bytes(op):
            self.app.notify("Nothing to save: no tensor of a pending op was read.")
            return
        running = file_in_progress(frame, "tensors")
        if running is not None:
            text = f"One file at a time: {running.path} is still being written."
            self.app.notify(text)
            return
        try:
            path = tensor_path(frame, rank, op.sequence, Path.cwd())
        except OSError as error:  # the current folder was deleted, or may not be read
            text = f"Cannot save in this folder ({error.strerror}); start frtop in another one."
            self.app.notify(text)
            return
        self._saving = (rank.rank, op.sequence, path)
        self.query_one(Question).ask(save_question(rank, op, path))

    def on_question_answered(self, event: Question.Answered) -> None:
        saving, self._saving = self._saving, None
        self.set_focus(self.query_one(TensorsPane))
        if event.yes and saving is not None:
            self.post_message(Do(SaveOrder(*saving)))
        self.draw_all()

    def reset(self) -> None:
        self._asked_ns = None
        # A rank that has answered before is not asked again.
        self._requested = self.known is not None and self.known.tensors is not None
        self.instead_of = None
        self.query_one(TensorsPane).move_to(0)
