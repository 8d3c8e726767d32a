"""The screen `:record`: what ranks record, changed while they run; sampled values."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.features.tensor_checks.messages import NumbersOrder
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.tensor_checks.consent import asked_words, warnings
from frtop_tui.features.tensor_checks.orders import NO_NUMBERS, NOTHING, RecordOrder
from frtop_tui.features.tensor_checks.pane import RecordPane
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import Do

READ_NS: Final = 1_000_000_000
"""How long a cost must be on the screen: holding a key down must not confirm it."""
CONFIRM_NS: Final = 15_000_000_000
SAMPLED: Final = NumbersOrder(every=1, ops=200, seconds=60, steps=20)
"""What `S` asks for; `frtop numbers` has options."""


def target_ranks(frame: Frame, marked: set[int]) -> tuple[int, ...]:
    """The ranks that an order goes to: the marked ones, or all."""
    return tuple(sorted(marked & frame.ranks.keys() or frame.ranks.keys()))


class RecordScreen(FrameScreen):
    """Asks ranks what they record when it opens; a second press of a key changes that."""

    AUTO_FOCUS = "#record"
    crumb = "record"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("S", "order('sample')", "sample",
                tooltip="inputs, results, gradients and parameters, and compare them",
                id="record.sample"),
        Binding("x", "order('stop')", "stop", tooltip="stop sampling", id="record.stop"),
        Binding("f", "order('phases')", "phases",
                tooltip="switch the recording of forwards and backwards on or off",
                id="record.phases"),
        Binding("i", "order('sites')", "call sites",
                tooltip="switch the recording of each op's line on or off",
                id="record.sites"),
        Binding("M", "order('modules')", "modules",
                tooltip="switch the recording of each op's module and phase on or off",
                id="record.modules"),
        Binding("K", "order('longer')", "longer ring",
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
            key, does = self._confirmed(self._pressed[0])
            confirm = [f"{key} again: {does}; any other key: cancel. The cost is below."]
            if self._pressed[0] == "sample":
                confirm += warnings(frame, self.numbers, ranks)
        pane.show(asked_words(frame, ranks), self.numbers, SAMPLED, confirm, pressed=key)

    def action_order(self, what: str) -> None:
        """Shows the cost at the first press, asks the ranks at the second; `x` stops at once."""
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
            if what == "sample" and not confirmed:  # somebody may have started meanwhile
                self.post_message(Do(RecordOrder(target_ranks(frame, self.marked))))
        self.draw_all()

    def _order(self, frame: Frame, what: str) -> RecordOrder:
        ranks = target_ranks(frame, self.marked)
        if what in _SWITCHES:
            return RecordOrder(ranks, switches={what: self._turns_on(what)})
        if what == "longer":
            return RecordOrder(ranks, longer=True)
        return RecordOrder(ranks, SAMPLED if what == "sample" else NOTHING)

    def _confirmed(self, what: str) -> tuple[str, str]:
        """The key that confirms an order, and what it does."""
        if what in _SWITCHES:
            key, name = _SWITCHES[what]
            return key, f"switch {name} {'on' if self._turns_on(what) else 'off'}"
        if what == "longer":
            return "K", "keep more ops from now on, until the rank ends"
        return "S", "sample now, for at most 60 s"

    def _turns_on(self, what: str) -> bool:
        """Off only if it is on in all ranks."""
        known = (one.recorded for one in self.numbers.controls.values() if one.recorded)
        return not all(one.settings.get(what) for one in known)


_SWITCHES: Final = {
    "phases": ("f", "phases"),
    "sites": ("i", "call sites"),
    "modules": ("M", "modules"),
}
