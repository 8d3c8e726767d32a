"""The colours of the themes in `appearance`.

No information is in colours alone, so `plain` says the same as the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from textual.app import App
from textual.filter import Monochrome, NoColor
from textual.theme import BUILTIN_THEMES, Theme

_DARK: Final = {
    "tone-dim": "#a0a0a0",
    "tone-line": "#00356b",
    "tone-alarm": "#ffffff",
    "tone-alarm-back": "#a8324f",
    "edge": "#4a4a4a",
    "edge-focus": "#0178d4",
    "edge-title": "#a6a6a6",
    "text-error": "#e8909f",
    "text-secondary": "#7db0d6",
    # A sequence of rising lightness, so that its order is seen without telling hues apart.
    "heat-0": "#1d3b33",
    "heat-1": "#4a4a1c",
    "heat-2": "#7a5c0c",
    "heat-3": "#c98a1b",
    "heat-4": "#ffc44d",
    "heat-waits": "#2e3440",
    "heat-text": "#e0e0e0",
    "heat-dark": "#101010",
}
_CONTRAST: Final = {
    "tone-dim": "#cfcfcf",
    "tone-line": "#00295c",
    "tone-alarm": "#ffffff",
    "tone-alarm-back": "#8f0000",
    "edge": "#b0b0b0",
    "edge-focus": "#ffff00",
    "edge-title": "#ffffff",
    "text-muted": "#cfcfcf",
    "text-error": "#ffa3a3",
    "text-warning": "#ffd75f",
    "text-success": "#87ff87",
    "text-accent": "#ffff5f",
    "text-primary": "#87d7ff",
    "text-secondary": "#afd7ff",
    "heat-0": "#12332a",
    "heat-1": "#3a3a10",
    "heat-2": "#5a4300",
    "heat-3": "#e0a83a",
    "heat-4": "#ffd75f",
    "heat-waits": "#262b36",
    "heat-text": "#ffffff",
    "heat-dark": "#000000",
}
_ANSI: Final = {
    "tone-dim": "ansi_default",
    "tone-line": "ansi_default",
    "tone-alarm": "ansi_red",
    "tone-alarm-back": "ansi_default",
    "edge": "ansi_default",
    "edge-focus": "ansi_blue",
    "edge-title": "ansi_default",
}
_TEXTUALS: Final = BUILTIN_THEMES["ansi-dark"]
_DEFINED: Final = {
    "dark": Theme(
        name="dark",
        primary="#0178d4",
        secondary="#004578",
        accent="#ffa62b",
        warning="#ffa62b",
        error="#ba3c5b",
        success="#4ebf71",
        foreground="#e0e0e0",
        variables=_DARK,
    ),
    "contrast": Theme(
        name="contrast",
        primary="#87d7ff",
        secondary="#afd7ff",
        accent="#ffff5f",
        warning="#ffd75f",
        error="#ff8787",
        success="#87ff87",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#000000",
        variables=_CONTRAST,
    ),
    # Textual's own rules for terminals' colours need variables that only its themes define.
    "ansi": replace(
        _TEXTUALS,
        name="ansi",
        accent="ansi_magenta",
        boost="ansi_default",
        variables={**_TEXTUALS.variables, **_ANSI},
    ),
}


class ThemedApp(App[None], inherit_bindings=False):
    """An application in one of the themes."""

    def __init__(self) -> None:
        super().__init__()
        for defined in _DEFINED.values():
            self.register_theme(defined)

    def use_theme(self, name: str) -> None:
        """Draws in one of the themes; `plain` is `ansi` without its colours."""
        self.theme = "ansi" if name == "plain" else name
        # Textual shows greys if NO_COLOR is set, and checks nothing else.
        self.no_color = name == "plain"
        filters = [f for f in self._filters if not isinstance(f, Monochrome | NoColor)]
        self._filters = [*filters, *([NoColor()] if self.no_color else [])]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables, for the themes that do not define them."""
        return dict(_DARK)
