"""The pane of what ranks record, what changing it costs, and what samples show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from frtop_probe.features.tensor_checks.messages import NumbersOrder
from frtop_tui.features.tensor_checks.consent import (
    LONGER,
    MODULES,
    PHASE_US,
    SITE_US,
    number_costs,
)
from frtop_tui.features.tensor_checks.finding_words import figure_words, finding_words
from frtop_tui.features.tensor_checks.orders import JobNumbers
from frtop_tui.features.tensor_checks.record_words import record_words
from frtop_tui.job.stack_frames import site_line
from frtop_tui.text.lines import WordLine
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, plain, word_rows, wrap

SUBJECT = 13
_KEYS = {
    "S": "numbers",
    "f": "phases",
    "i": "call sites",
    "M": "modules",
    "K": "ring",
    "a": "note",
}
"""What each key changes."""


def cost_words(order: NumbersOrder, pressed: str = "") -> Iterator[WordLine]:
    """What each key costs each rank; all details of one that was `pressed`."""
    costs = {
        "S": list(number_costs(order)),
        "f": [f"{PHASE_US} us for each forward and backward"],
        "i": [f"up to {SITE_US} us an op; without, ops name no line"],
        "M": [MODULES],
        "K": [LONGER],
        "a": ["one line in the ring, with the current time"],
    }
    if not pressed:
        costs["S"] = [f"{costs['S'][0]}; S shows the cost"]
    for key in pressed or costs:
        for n, text in enumerate(costs[key]):
            yield WordLine("" if n else f"{key} {_KEYS[key]}", text)


def record_lines(
    asked: str,
    found: JobNumbers,
    order: NumbersOrder,
    confirm: Sequence[str],
    width: int,
    *,
    pressed: str = "",
) -> Iterator[Line]:
    """The whole pane.

    Args:
        asked: the ranks that an order goes to.
        found: what ranks record and have sampled.
        order: what `S` would ask of them.
        confirm: what a second press of a key does, and what speaks against it.
        width: of the pane.
        pressed: that key; its cost comes first, otherwise findings do.
    """
    yield from wrap(f"orders go to {asked}", width, "dim")
    for text in confirm:
        yield from wrap(text, width, "warn")
    if pressed:
        yield from _section("what it costs each rank", cost_words(order, pressed), width)
    if found.states:
        yield ()
        yield plain(f"numbers: {found.samples:,} samples", "strong")
        words = finding_words(found.found, found.names, site_line, found.places)
        yield from word_rows(words, width, SUBJECT, indent="  ", tone="strong")
        if unseen := sum(one.unseen for one in found.states.values()):
            text = f"{unseen:,} results were not read: no wait for these ops was seen"
            yield from wrap(text, width, "dim")
    yield from _section("recorded now", record_words(found), width)
    if not pressed:
        yield from _section("what it costs each rank", cost_words(order), width)
    if found.found.figures:
        yield from _section("by group", figure_words(found.found, found.names), width)


def _section(title: str, words: Iterable[WordLine], width: int) -> Iterator[Line]:
    yield ()
    yield plain(title, "strong")
    yield from word_rows(words, width, SUBJECT, indent="  ", tone="strong")


class RecordPane(LineView):
    """Scrolls; has no cursor."""

    def __init__(self) -> None:
        super().__init__(id="record", classes="pane")
        self.entitle("what ranks record")
        self._given: tuple[str, JobNumbers, NumbersOrder, Sequence[str]] | None = None
        self._pressed = ""
        self.unavailable = ""
        """Why ranks cannot be asked."""

    def show(
        self,
        asked: str,
        found: JobNumbers,
        order: NumbersOrder,
        confirm: Sequence[str],
        *,
        pressed: str = "",
    ) -> None:
        """Takes what `record_lines` needs."""
        self._given, self._pressed = (asked, found, order, confirm), pressed
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.unavailable:
            return wrap(self.unavailable, width, "warn")
        if self._given is None:
            return ()
        return list(record_lines(*self._given, width, pressed=self._pressed))
