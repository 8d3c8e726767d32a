"""What a rank and its launcher wrote last, read from their files while the screen is open."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.features.output.messages import ReadOutput
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.output.pane import OutputPane
from frtop_tui.screens.base import BACK, OneRankScreen
from frtop_tui.screens.messages import Do

AGAIN_NS: Final = 5_000_000_000


class OutputScreen(OneRankScreen):
    """Reads when it opens, and every 5 s; `n` and `p` go to other ranks."""

    AUTO_FOCUS = "#output"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("n", "neighbour(1)", "next rank", tooltip="output of the next rank",
                id="rank.next"),
        Binding("p", "neighbour(-1)", "previous", tooltip="output of the previous rank",
                id="rank.previous"),
    ]  # fmt: skip

    def __init__(self, marked: set[int], rank: int) -> None:
        super().__init__(marked, rank)
        self._due_ns = 0

    @property
    def crumb(self) -> str:  # type: ignore[override]  # follows the rank
        return f"output of rank {self.rank}"

    def panes(self) -> ComposeResult:
        yield OutputPane()

    def request(self, frame: Frame) -> None:
        """Asks again after a while: a log grows."""
        self.known = frame.ranks.get(self.rank, self.known)
        live = frame.recorded is None and not self.why_no_answer
        if self.known is not None and live and frame.now_ns >= self._due_ns:
            self._due_ns = frame.now_ns + AGAIN_NS
            self.post_message(Do(ReadOutput(), (self.rank,)))

    def draw(self, frame: Frame) -> None:
        self.known = frame.ranks.get(self.rank, self.known)
        pane = self.query_one(OutputPane)
        pane.entitle(f"output of rank {self.rank}")
        if self.known is not None:
            pane.show(frame, self.known, self._why_none(frame))

    def _why_none(self, frame: Frame) -> str:
        if frame.recorded is not None:
            return (
                f"The {frame.recorded.kind} holds no output of rank {self.rank}: it has only that"
                " of ranks that a verdict names, or that somebody looked at."
            )
        return self.why_no_answer or "reading"

    def reset(self) -> None:
        self._due_ns = 0
