"""Asks before a file is written, and shows how far the file is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.widgets.file_status import file_lines
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, wrap


class Question(LineView):
    """Visible while it asks or files are written; any answer but yes means no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "answer(True)", "save", tooltip="write the file", id="answer.open"),
        Binding("escape,n", "answer(False)", "cancel", tooltip="write nothing", id="answer.back"),
    ]

    class Answered(LineView.Moved):
        """The user answered."""

        def __init__(self, sender: Question, *, yes: bool) -> None:
            super().__init__(sender)
            self.yes = yes

    def __init__(self) -> None:
        super().__init__(id="question")
        self.text = ""
        self.frame: Frame | None = None

    def ask(self, text: str) -> None:
        """Shows the question and takes the focus; the answer comes as `Answered`."""
        self.text = text
        self.display = True
        self.screen.set_focus(self)
        self.redraw()

    def show(self, frame: Frame) -> None:
        """Shows the frame's tensor files; hidden when there are none."""
        self.frame = frame
        self.display = bool(self.text or any(w.kind == "tensors" for w in frame.writings))
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.text:
            rows = wrap(self.text, width - 2, "strong")
        else:
            rows = [] if self.frame is None else file_lines(self.frame, width - 2, ("tensors",))
        return [((" ", ""), *row) for row in rows]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The answer keys work only while a question is open."""
        return bool(self.text) if action == "answer" else super().check_action(action, parameters)

    def action_answer(self, yes: bool) -> None:
        if self.text:
            self.text = ""
            self.post_message(self.Answered(self, yes=yes))

    def on_blur(self, event: events.Blur) -> None:  # type: ignore[override]
        """Losing the focus means no."""
        event.stop()
        self.action_answer(False)
