"""The last line: the keys that do something here, from the live bindings."""

from __future__ import annotations

from collections.abc import Sequence

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
}


def key_name(key: str) -> str:
    """What is printed on the keyboard."""
    return KEY_NAMES.get(key, key)


class KeyLine(LineView, can_focus=False):
    """As many keys as fit, the most useful first; `?` always."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self.keys: tuple[tuple[str, str], ...] = ()

    def content(self, width: int) -> Sequence[Line]:
        spans: list[Span] = [(" ", "")]
        for key, words in self.keys:
            added: Line = ((key_name(key), "key"), (f" {words}  ", "dim"))
            if width_of((*spans, *added)) > width + 2:
                break
            spans.extend(added)
        return (tuple(spans),)

    def on_mount(self) -> None:
        self.watch(self.screen, "focused", self.follow)
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.follow())

    def follow(self) -> None:
        """Takes the keys over from what is focused now."""
        if not self.is_mounted or not self.screen.is_active:
            return
        found: dict[str, tuple[str, str]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and binding.action not in found:
                found[binding.action] = (binding.key_display or binding.key, binding.description)
        # Help first: it is the one key that leads to all others when the line is full.
        ordered = sorted(found.items(), key=lambda item: item[0] not in ("help", "app.help"))
        self.keys = tuple(pair for _, pair in ordered)
        self.redraw()
