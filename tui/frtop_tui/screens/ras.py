"""NCCL's RAS: the risk of asking it, and after a second `R` its answer."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.availability import RAS, why_unavailable
from frtop_tui.screens.base import OneRankScreen
from frtop_tui.screens.messages import AskRas
from frtop_tui.widgets.formats import format_age_coarse
from frtop_tui.widgets.ras_pane import RasPane

READ_NS: Final = 1_000_000_000
"""How long the risk must be on the screen: a key that is held down must not ask."""


class RasScreen(OneRankScreen):
    """Looks at the rank when it opens, and asks nothing; `R` asks, if nothing is in the way.

    Each answer needs a look of its own, so that the risk is shown before each.
    """

    AUTO_FOCUS = "#ras"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="previous screen, nothing asked", id="back"),
        Binding(
            "R",
            "ask_ras",
            "ask NCCL's RAS",
            tooltip="asks once, after the risk was shown; it has ended jobs",
            id="ras.ask",
        ),
    ]

    def __init__(self, marked: set[int], rank: int) -> None:
        super().__init__(marked, rank)
        self._looked = False
        self._waits: dict[bool, tuple[int, wire.RasResponse | None]] = {}
        """Since when a look (True) or an answer (False) is waited for, and the one before it."""
        self._shown: tuple[wire.RasResponse, int] | None = None
        """The look that may be followed by asking, and since when it is on the screen."""

    @property
    def crumb(self) -> str:  # type: ignore[override]  # follows the rank
        return f"RAS at rank {self.rank}"

    @property
    def watched_ranks(self) -> tuple[int, ...]:
        return ()

    def panes(self) -> ComposeResult:
        yield RasPane()

    def request(self, frame: Frame) -> None:
        """Looks at the rank once, with the first frame that has it."""
        self.known = frame.ranks.get(self.rank, self.known)
        if self.known is None:
            return
        for look, (_, before) in list(self._waits.items()):
            response = self._response(look)
            if response is not None and response is not before:
                del self._waits[look]
                self._shown = (response, frame.now_ns) if look else None
        if not self._looked:
            self._looked = True
            if not why_unavailable(RAS, frame, self.host, self.known):
                self._send(frame, look=True)

    def draw(self, frame: Frame) -> None:
        self.known = frame.ranks.get(self.rank, self.known)
        if self.known is not None:
            look = self._shown[0] if self._shown is not None else None
            unavailable = self.why_unavailable(RAS)
            self.query_one(RasPane).show(frame, self.known, look, self._doing(frame), unavailable)

    def _response(self, look: bool) -> wire.RasResponse | None:
        assert self.known is not None
        return self.known.ras_look if look else self.known.ras

    def _doing(self, frame: Frame) -> str:
        for look in (False, True):
            if look in self._waits and self._response(look) is self._waits[look][1]:
                if self.why_no_answer:
                    return self.why_no_answer
                age = format_age_coarse((frame.now_ns - self._waits[look][0]) / 1e9)
                if look:
                    return f"looking for reasons not to ask, since {age}"
                return f"asked {age} ago; RAS may take some 10 seconds"
        return ""

    def _send(self, frame: Frame, *, look: bool) -> None:
        self._waits[look] = frame.now_ns, self._response(look)
        self.post_message(AskRas(self.rank, look=look))

    def action_ask_ras(self) -> None:
        """Asks, once the risk is on the screen and nothing is in the way."""
        frame = self.frame
        if frame is None or self.known is None or not self.check_available(RAS) or self._waits:
            return
        if self._shown is None or self._shown[0].error:
            self._send(frame, look=True)  # what was in the way may be over
        elif frame.now_ns - self._shown[1] >= READ_NS:
            self._send(frame, look=False)
        self.draw_all()
