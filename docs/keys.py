"""Writes the tables of keys and commands into dist/docs/, from the program's bindings."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from textual.binding import Binding
from textual.dom import DOMNode

from frtop_tui.app import FrtopApp
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.commands import COMMANDS
from frtop_tui.screens.contributed import of_features
from frtop_tui.widgets.keyline import key_name
from frtop_tui.widgets.lines import LineView

OUT: Final = Path(__file__).parents[1] / "dist" / "docs"
EVERYWHERE: Final[tuple[type[DOMNode], ...]] = (FrtopApp, FrameScreen, LineView)


def owners() -> Iterator[tuple[str, type[DOMNode]]]:
    """What has keys of its own, by the screen that it is, or is a part of."""
    for one in EVERYWHERE:
        yield "everywhere", one
    of_features()  # imports what they draw
    found = {one for one in _below(DOMNode) if "BINDINGS" in one.__dict__} - {*EVERYWHERE}
    ours = sorted(
        (one for one in found if one.__module__.startswith("frtop_tui.")),
        key=lambda one: (
            _in_words(_screen_of(one, found)),
            one is not _screen_of(one, found),
            one.__name__,
        ),
    )
    for one in ours:
        yield _in_words(_screen_of(one, found)), one


def _below(kind: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _screen_of(part: type[DOMNode], found: Iterable[type[DOMNode]]) -> type[DOMNode]:
    """The one screen whose module has this part; itself where it is a screen, or in several."""
    screens = [one for one in found if issubclass(one, FrameScreen)]
    having = [one for one in screens if part in vars(sys.modules[one.__module__]).values()]
    return having[0] if part not in screens and len(having) == 1 else part


def _in_words(kind: type[DOMNode]) -> str:
    name = kind.__name__.removesuffix("Screen")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def table() -> str:
    """The table in Markdown, one row per binding."""
    rows = ["| screen | key | action |", "|---|---|---|"]
    for screen, owner in owners():
        for binding in owner.__dict__["BINDINGS"]:
            assert isinstance(binding, Binding)
            keys = " ".join(f"`{key_name(k)}`" for k in binding.key.split(","))
            does = binding.description
            if binding.tooltip and binding.tooltip != does:
                does += f": {binding.tooltip}"
            rows.append(f"| {screen} | {keys} | {does} |")
    rows += ["", "| command | key | |", "|---|---|---|"]
    for command in COMMANDS:
        key = f"`{command.key}`" if command.key else ""
        usage = command.usage.replace("|", "\\|")
        rows.append(f"| `:{usage}` | {key} | {command.summary} |")
    return "\n".join(rows)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "keys.md").write_text(f"# Keys and commands\n\n{table()}\n")
