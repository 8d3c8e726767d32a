"""The command line: Tab completes, up and down go through earlier commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from frtop_tui.screens.completion import Completion
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, plain


class CommandHints(LineView, can_focus=False):
    """What the line means, or why it is not a command, and how it may continue."""

    def __init__(self) -> None:
        super().__init__(id="command-hints")
        self.completion = Completion("")
        self.error = ""

    def show(self, completion: Completion, error: str) -> None:
        self.completion, self.error = completion, error
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.error:
            return (clip(plain(f" {self.error}", "warn"), width),)
        names = "  ".join(self.completion.candidates[:60])
        hint = self.completion.hint
        if len(self.completion.candidates) == 1 and hint:
            names = ""
        words = (*plain(f" {hint}  " if hint else " ", "strong"), *plain(names, "dim"))
        return (clip(words, width),)


class CommandInput(Input):
    """The field; its own keys have priority over those of the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "complete", tooltip="complete the word, or the next candidate",
                id="command.complete"),
        Binding("up", "former(-1)", "former", show=False, tooltip="the command before",
                id="command.former"),
        Binding("down", "former(1)", "later", show=False, tooltip="the command after",
                id="command.later"),
        Binding("escape", "leave", "back", tooltip="run nothing", id="command.back"),
    ]  # fmt: skip

    def __init__(self, former: Sequence[str], begin: str = "") -> None:
        super().__init__(
            begin, placeholder="command", id="command", compact=True, select_on_focus=False
        )
        self._former = [*former, ""]
        self._at = len(self._former) - 1
        self._cycle: tuple[str, tuple[str, ...], int] | None = None
        """The line before its last word was completed, the candidates, and which one it has."""

    def action_complete(self) -> None:
        """As far as all candidates agree; then one after the other."""
        line = self.parent
        assert isinstance(line, CommandLine)
        if self._cycle is not None:
            head, candidates, index = self._cycle
            index = (index + 1) % len(candidates)
        else:
            completion = line.completer(self.value)
            if completion.text != self.value and completion.text.startswith(self.value.lstrip()):
                self._put(completion.text)
                return
            candidates, index = completion.candidates, 0
            head = completion.head
            if not candidates:
                return
        self._put(head + candidates[index])
        self._cycle = (head, candidates, index)

    def _put(self, text: str) -> None:
        self.value = text
        self.cursor_position = len(text)

    def watch_value(self) -> None:
        self._cycle = None

    def action_former(self, by: int) -> None:
        self._former[self._at] = self.value
        self._at = max(0, min(self._at + by, len(self._former) - 1))
        self._put(self._former[self._at])

    def action_leave(self) -> None:
        self.post_message(CommandLine.Left())


class CommandLine(Vertical):
    """Mounted above the keys while a command is typed."""

    class Entered(Message):
        """`enter` was pressed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """Asks to close the line."""

    def __init__(
        self, completer: Callable[[str], Completion], former: Sequence[str], begin: str = ""
    ) -> None:
        super().__init__(id="command-line")
        self.begin = begin
        self.completer = completer
        self.former = former

    def compose(self) -> ComposeResult:
        yield CommandHints()
        yield CommandInput(self.former, self.begin)

    def on_mount(self) -> None:
        self._show_hints()

    def _show_hints(self, error: str = "") -> None:
        field = self.query_one(CommandInput)
        self.query_one(CommandHints).show(self.completer(field.value), error)

    def refuse(self, error: str) -> None:
        """Says why the line is not a command; it stays, to be corrected."""
        self._show_hints(error)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show_hints()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Entered(event.value))
