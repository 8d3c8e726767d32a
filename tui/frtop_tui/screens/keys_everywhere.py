"""The keys that every screen has. What they do is in the application and its bases."""

from __future__ import annotations

from typing import Final

from textual.binding import Binding, BindingType

from frtop_tui.screens.commands import COMMANDS, VIEWS
from frtop_tui.screens.contributed import common_keys

_OF: Final = {command.name: command.binding for command in COMMANDS}
KEYS: Final[list[BindingType]] = [
    _OF["help"],
    *(view.binding for view in VIEWS if view.key),
    _OF["capture"],
    _OF["copy"],
    _OF["export"],
    _OF["jobs"],
    Binding(
        "colon",
        "command",
        "command",
        tooltip="type a command; tab completes it",
        id="commands",
    ),
    Binding(
        "left_curly_bracket",
        "history(-1)",
        "before",
        show=False,
        tooltip="back to the previous screen",
        id="history.before",
    ),
    Binding(
        "right_curly_bracket",
        "history(1)",
        "after",
        show=False,
        tooltip="forward again",
        id="history.after",
    ),
    Binding(
        "left_square_bracket",
        "past(-1)",
        "earlier",
        show=False,
        tooltip="show the frame received before this one",
        id="past.earlier",
    ),
    Binding(
        "right_square_bracket",
        "past(1)",
        "later",
        show=False,
        tooltip="show the next frame; after the last one, the live one",
        id="past.later",
    ),
    _OF["pause"],
    *common_keys(),
    _OF["quit"],
    Binding("ctrl+c", "quit", "quit", show=False, id="interrupt", priority=True),
    Binding("ctrl+l", "redraw", "redraw", show=False, id="redraw"),
    Binding("ctrl+z", "suspend_process", "suspend", show=False, id="suspend"),
    Binding("ctrl+p", "command_palette", "commands", show=False, id="palette"),
]
