"""Names of themes, without loading Textual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

THEMES: Final = ("auto", "dark", "contrast", "ansi", "plain")
"""Names that options take:

    auto      dark; ansi if the terminal has 16 colours, plain if NO_COLOR is set
    dark      our own colours on a dark background
    contrast  the same with a contrast of at least 7 to 1
    ansi      the terminal's own sixteen colours and background
    plain     no colours: bold, dim, underlined and reversed text only
"""


def theme_for(name: str, environment: Mapping[str, str]) -> str:
    """The theme that `auto` stands for in this environment; other names stand for themselves.

    `NO_COLOR` (https://no-color.org) counts if it is not empty.
    """
    if name != "auto":
        return name
    if environment.get("NO_COLOR"):
        return "plain"
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn

    console = Console(force_terminal=True, _environ=environment)
    return "dark" if console.color_system in ("256", "truecolor") else "ansi"
