"""The last line: the keys that do something here, from the live bindings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.binding import Binding

from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, width_of

KEY_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "plus": "+",
}


FIRST = (
    *("open", "back", "take", "tensors", "help", "quit"),
    *("capture", "filter", "mark", "next", "view"),
)
"""Last or first parts of the ids of bindings, in the order of a tired person's needs."""


Key = tuple[str, str, str]
"""Key, what it does in a word, and its action."""


def need(binding: Binding) -> int:
    """Place of a key in the line; those that nobody thought of come last."""
    parts = (binding.id or "").split(".")
    return min((FIRST.index(part) for part in parts if part in FIRST), default=len(FIRST))


def key_name(key: str) -> str:
    """What is printed on the keyboard."""
    return KEY_NAMES.get(key, key)


class KeyLine(LineView, can_focus=False):
    """As many keys as fit, the most useful first: the way in, out, to help and away."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self.keys: tuple[Key, ...] = ()
        self._why_barred: Callable[[str], str] = lambda _: ""
        self.barred: frozenset[str] = frozenset()
        """Actions that can do nothing now; they are shown as such."""

    def content(self, width: int) -> Sequence[Line]:
        spans: list[Span] = [(" ", "")]
        for key, words, action in self.keys:
            added: Line = ((key_name(key), "key"), (f" {words}  ", "dim"))
            if action in self.barred:
                # In brackets as well: not every terminal shows what is dim.
                added = ((f"({key_name(key)} {words})  ", "dim"),)
            if width_of((*spans, *added)) > width + 2:
                break
            spans.extend(added)
        return (tuple(spans),)

    def bar(self, barred: Callable[[str], str]) -> None:
        """Takes over how to tell which actions can do nothing now."""
        self._why_barred = barred
        found = frozenset(action for _, _, action in self.keys if barred(action))
        if found != self.barred:
            self.barred = found
            self.redraw()

    def on_mount(self) -> None:
        self.watch(self.screen, "focused", self.follow)
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.follow())

    def follow(self) -> None:
        """Takes the keys over from what is focused now."""
        if not self.is_mounted or not self.screen.is_active:
            return
        found: dict[str, Binding] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and binding.action not in found:
                found[binding.action] = binding
        ordered = sorted(found.values(), key=need)
        self.keys = tuple((b.key_display or b.key, b.description, b.action) for b in ordered)
        self.bar(self._why_barred)
        self.redraw()
