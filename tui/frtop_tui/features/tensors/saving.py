"""Asks before the tensors of an op are written to a file, and shows how far the file is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensors.comparison import find_op
from frtop_tui.files.output_path import name_of_job, unused_path
from frtop_tui.job.units import byte_size
from frtop_tui.text.rank_words import op_kind, op_number
from frtop_tui.widgets.file_status import file_lines
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, wrap


def readable_bytes(op: wire.OpTensors) -> int:
    """Bytes of the tensors that can be read."""
    return sum(tensor.size for tensor in op.tensors if not tensor.error)


def tensor_path(frame: Frame, rank: JudgedRank, sequence: int, folder: Path) -> Path:
    """`frtop-JOB-rankN-opNUMBER.safetensors`, with `-2` and so on where the file exists."""
    op = find_op(rank, sequence)
    number = op.number if op is not None and op.number else sequence
    return unused_path(
        folder / f"frtop-{name_of_job(frame)}-rank{rank.rank}-op{number}.safetensors"
    )


def save_question(rank: JudgedRank, op: wire.OpTensors, path: Path) -> str:
    """The question whether to write the op's tensors: what, how much and where."""
    known = find_op(rank, op.sequence)
    name = "the op"
    if known is not None:
        name = " ".join(filter(None, (op_kind(known), op_number(known))))
    size = readable_bytes(op)
    exact = f" ({size:,} bytes)" if size >= 1000 else ""
    return (
        f"Save the tensors of {name} of rank {rank.rank}, {byte_size(size)}{exact},"
        f" to {path.name} in this folder? enter or y saves, esc cancels"
    )


class Question(LineView):
    """Visible while it asks, or while files are written; any answer but yes means no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "answer(True)", "save", tooltip="write the file", id="answer.open"),
        Binding("escape,n,q", "answer(False)", "back", tooltip="write nothing", id="answer.back"),
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
