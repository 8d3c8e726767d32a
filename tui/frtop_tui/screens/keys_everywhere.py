"""The keys that every screen has. What they do is in the application and its bases."""

from __future__ import annotations

from typing import Final

from textual.binding import Binding, BindingType

from frtop_tui.screens.commands import VIEWS
from frtop_tui.screens.contributed import common_keys

KEYS: Final[list[BindingType]] = [
    Binding("question_mark", "help", "help", tooltip="all keys and a glossary", id="help"),
    *(view.binding for view in VIEWS if view.key),
    Binding("J", "jobs", "jobs", tooltip="list all jobs", id="jobs"),
    Binding("e", "capture", "capture", tooltip="write everything known to a file", id="capture"),
    Binding("E", "export", "export", tooltip="write a report, a trace, stacks, ...", id="export"),
    *common_keys(),
    Binding("Z", "pause", "pause", tooltip="freeze the screen, or resume", id="pause"),
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
        tooltip="back to the screen before",
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
        tooltip="the frame before the shown one, of those that were received",
        id="past.earlier",
    ),
    Binding(
        "right_square_bracket",
        "past(1)",
        "later",
        show=False,
        tooltip="the frame after it; after the last one the live one",
        id="past.later",
    ),
    Binding("y", "copy", "copy", tooltip="copy the verdict", id="copy"),
    Binding("q", "quit", "quit", id="quit"),
    Binding("ctrl+c", "quit", "quit", show=False, id="interrupt", priority=True),
    Binding("ctrl+l", "redraw", "redraw", show=False, id="redraw"),
    Binding("ctrl+z", "suspend_process", "suspend", show=False, id="suspend"),
    Binding("ctrl+p", "command_palette", "commands", show=False, id="palette"),
]
