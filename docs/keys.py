"""Writes the tables of keys and commands into dist/docs/, from the program's bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from textual.dom import DOMNode

from frtop_tui.app import FrtopApp
from frtop_tui.screens.all_keys import own_keys, owners
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.commands import COMMANDS
from frtop_tui.widgets.lines import LineView

OUT: Final = Path(__file__).parents[1] / "dist" / "docs"
EVERYWHERE: Final[tuple[type[DOMNode], ...]] = (FrtopApp, FrameScreen, LineView)


def table() -> str:
    """The table in Markdown, one row per binding."""
    rows = ["| screen | key | action |", "|---|---|---|"]
    everywhere = [("everywhere", one) for one in EVERYWHERE]
    for screen, owner in [*everywhere, *(one for one in owners() if one[1] not in EVERYWHERE)]:
        for keys, does in own_keys(owner):
            rows.append(f"| {screen} | {' '.join(f'`{key}`' for key in keys)} | {does} |")
    rows += ["", "| command | key | |", "|---|---|---|"]
    for command in COMMANDS:
        key = f"`{command.key}`" if command.key else ""
        usage = command.usage.replace("|", "\\|")
        rows.append(f"| `:{usage}` | {key} | {command.summary} |")
    return "\n".join(rows)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "keys.md").write_text(f"# Keys and commands\n\n{table()}\n")
