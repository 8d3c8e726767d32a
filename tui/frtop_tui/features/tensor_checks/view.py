"""What ranks record, and changes of it while they run; sampled numbers, and what they say."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.wire.recording import NumbersOrder
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.consent import asked_words, warnings
from frtop_tui.features.tensor_checks.orders import NO_NUMBERS, NOTHING, RecordOrder
from frtop_tui.features.tensor_checks.pane import RecordPane
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import Do

READ_NS: Final = 1_000_000_000
"""How long a cost must be on the screen: a key that is held down must not ask."""
CONFIRM_NS: Final = 15_000_000_000
SAMPLED: Final = NumbersOrder(every=1, ops=200, seconds=60, steps=20)
"""What `s` asks for; `frtop numbers` has options."""


def target_ranks(frame: Frame, marked: set[int]) -> tuple[int, ...]:
    """Whom an order goes to: the marked ranks, or all."""
    return tuple(sorted(marked & frame.ranks.keys() or frame.ranks.keys()))


class RecordScreen(FrameScreen):
    """Asks ranks what they record when it opens; a second press of a key changes that."""

    AUTO_FOCUS = "#record"
    crumb = "record"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("s", "order('sample')", "sample",
                tooltip="inputs, results, gradients and parameters, and compare them",
                id="record.sample"),
        Binding("x", "order('stop')", "stop", tooltip="sample no more", id="record.stop"),
        Binding("p", "order('phases')", "phases",
                tooltip="record forwards and backwards from now on, or no more",
                id="record.phases"),
        Binding("c", "order('sites')", "call sites",
                tooltip="record the line of each op from now on, or none any more",
                id="record.sites"),
        Binding("o", "order('modules')", "modules",
                tooltip="record module and phase of each op from now on, or none any more",
                id="record.modules"),
        Binding("l", "order('longer')", "longer ring",
                tooltip="keep more ops in the ring, until the rank ends", id="record.longer"),
    ]  # fmt: skip

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self.numbers = NO_NUMBERS
        self._asked = False
        self._pressed: tuple[str, int] | None = None
        """What was pressed once, and when."""

    def panes(self) -> ComposeResult:
        yield RecordPane()

    def request(self, frame: Frame) -> None:
        """Asks once what ranks record."""
        if not self._asked and frame.ranks and not why_unavailable("order", frame, past=self.past):
            self._asked = True
            self.post_message(Do(RecordOrder(target_ranks(frame, self.marked))))

    def take_news(self) -> None:
        self.numbers = self.news["tensor_checks"]

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(RecordPane)
        pane.unavailable = self.why_unavailable("order")
        if self._pressed is not None and frame.now_ns - self._pressed[1] > CONFIRM_NS:
            self._pressed = None
        ranks, confirm, key = target_ranks(frame, self.marked), [], ""
        if self._pressed is not None:
            key, what = _CONFIRM[self._pressed[0]]
            confirm = [f"{key} again: {what}. The cost is below; another key, and nothing is done."]
            if self._pressed[0] == "sample":
                confirm += warnings(frame, self.numbers, ranks)
        pane.show(asked_words(frame, ranks), self.numbers, SAMPLED, confirm, pressed=key)

    def action_order(self, what: str) -> None:
        """Shows the cost at the first press, and asks at the second; a stop at the first."""
        frame = self.frame
        if frame is None or not self.check_available("order"):
            return
        pressed, self._pressed = self._pressed, None
        confirmed = pressed is not None and pressed[0] == what
        if what == "stop" or (
            confirmed and pressed is not None and frame.now_ns - pressed[1] >= READ_NS
        ):
            self.post_message(Do(self._order(frame, what)))
        else:
            self._pressed = pressed if confirmed else (what, frame.now_ns)
            if what == "sample" and not confirmed:  # others may have begun since this was opened
                self.post_message(Do(RecordOrder(target_ranks(frame, self.marked))))
        self.draw_all()

    def _order(self, frame: Frame, what: str) -> RecordOrder:
        ranks = target_ranks(frame, self.marked)
        known = [one.recorded for one in self.numbers.controls.values() if one.recorded]
        if what == "phases":
            return RecordOrder(ranks, phases=not all(one.phases for one in known))
        if what == "sites":
            return RecordOrder(ranks, sites=not all(one.sites for one in known))
        if what == "modules":
            return RecordOrder(ranks, modules=not all(one.modules for one in known))
        if what == "longer":
            return RecordOrder(ranks, longer=True)
        return RecordOrder(ranks, SAMPLED if what == "sample" else NOTHING)


_CONFIRM: Final = {
    "sample": ("s", "sample now, for at most 60 s"),
    "phases": ("p", "switch phases on where they are off, else off"),
    "sites": ("c", "switch call sites on where they are off, else off"),
    "modules": ("o", "switch modules on where they are off, else off"),
    "longer": ("l", "keep more ops from now on, until the rank ends"),
}
