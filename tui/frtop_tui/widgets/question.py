"""A question before something is done, and below it what became of it: two lines at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, wrap
from frtop_tui.widgets.writings import writing_lines


class Question(LineView):
    """Asks when it has text and the focus; anything but a plain yes means no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "answer(True)", "save", tooltip="write the file", id="answer.open"),
        Binding("escape,n", "answer(False)", "not", tooltip="write nothing", id="answer.back"),
    ]

    class Answered(LineView.Moved):
        """Yes or no."""

        def __init__(self, sender: Question, *, yes: bool) -> None:
            super().__init__(sender)
            self.yes = yes

    def __init__(self) -> None:
        super().__init__(id="question")
        self.text = ""
        self.frame: Frame | None = None

    def ask(self, text: str) -> None:
        """Puts the question; the answer comes as a message."""
        self.text = text
        self.display = True
        self.screen.set_focus(self)
        self.redraw()

    def show(self, frame: Frame) -> None:
        """The files of this frame; takes no room when there is nothing to say."""
        self.frame = frame
        self.display = bool(self.text or any(w.kind == "tensors" for w in frame.writings))
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.text:
            rows = wrap(self.text, width - 2, "strong")
        else:
            rows = [] if self.frame is None else writing_lines(self.frame, width - 2, ("tensors",))
        return [((" ", ""), *row) for row in rows]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a question there is nothing to answer."""
        return bool(self.text) if action == "answer" else super().check_action(action, parameters)

    def action_answer(self, yes: bool) -> None:
        if self.text:
            self.text = ""
            self.post_message(self.Answered(self, yes=yes))

    def on_blur(self, event: events.Blur) -> None:  # type: ignore[override]
        """Who goes elsewhere has not said yes."""
        event.stop()
        self.action_answer(False)
