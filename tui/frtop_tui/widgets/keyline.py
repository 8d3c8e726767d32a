"""The last line: the keys that work on this screen, from its active bindings."""

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
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "escape": "esc",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "colon": ":",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
}


FIRST = (
    *("open", "back", "take", "waits", "help", "quit"),
    *("zoom", "lanes", "live", "difference", "order", "record"),
    *("capture", "filter", "tensors", "mark", "next", "previous", "view"),
)
"""Parts of binding ids, in the order in which their keys are shown."""


Key = tuple[str, str, str]
"""Key, label and action."""


def key_priority(binding: Binding) -> int:
    """Position of a key in the line; keys not in `FIRST` are last."""
    parts = (binding.id or "").split(".")
    return min((FIRST.index(part) for part in parts if part in FIRST), default=len(FIRST))


def key_name(key: str) -> str:
    """The key as it is printed on the keyboard."""
    return KEY_NAMES.get(key, key)


class KeyLine(LineView, can_focus=False):
    """As many keys as fit, the most useful ones first."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self.keys: tuple[Key, ...] = ()
        self._why_unavailable: Callable[[str], str] = lambda _: ""
        self.unavailable: frozenset[str] = frozenset()
        """Actions that can do nothing now; their keys are in brackets."""
        self._ends: list[tuple[int, str]] = []
        """The column behind each key that is shown."""

    def content(self, width: int) -> Sequence[Line]:
        spans: list[Span] = [(" ", "")]
        self._ends = []
        for key, words, action in self.keys:
            added: Line = ((key_name(key), "key"), (f" {words}  ", "dim"))
            if action in self.unavailable:
                # Brackets as well: not every terminal shows dim text as dim.
                added = ((f"({key_name(key)} {words})  ", "dim"),)
            if width_of((*spans, *added)) > width + 2:
                break
            spans.extend(added)
            self._ends.append((width_of(tuple(spans)), key))
        return (tuple(spans),)

    def click_at(self, x: int, y: int) -> bool:  # noqa: ARG002 - it has one line
        """Presses the key that was clicked."""
        key = next((key for end, key in self._ends if x < end), None)
        if key is not None:
            self.app.simulate_key(key)
        return False

    def update_availability(self, why_unavailable: Callable[[str], str]) -> None:
        """Marks the actions that have a reason as unavailable."""
        self._why_unavailable = why_unavailable
        found = frozenset(action for _, _, action in self.keys if why_unavailable(action))
        if found != self.unavailable:
            self.unavailable = found
            self.redraw()

    def on_mount(self) -> None:
        self.watch(self.screen, "focused", self.update_keys)
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.update_keys())

    def update_keys(self) -> None:
        """Takes the keys of the focused widget and of its screen."""
        if not self.is_mounted or not self.screen.is_active:
            return
        found: dict[str, Binding] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled:
                found.setdefault(binding.action.removeprefix("app."), binding)
        ordered = sorted(found.values(), key=key_priority)
        self.keys = tuple((b.key_display or b.key, b.description, b.action) for b in ordered)
        self.update_availability(self._why_unavailable)
        self.redraw()
