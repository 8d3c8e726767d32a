"""Ends a program that has failed at once, with a traceback that can be read and reported.

Textual 8.2 writes the values of all variables of each frame instead. A variable of ours may be a
job of thousands of ranks: the program stood still for minutes, and the text filled the terminal.
"""

from __future__ import annotations

import traceback
from typing import Final

from rich.text import Text
from textual.app import App

MOST_FRAMES: Final = 30
"""Of the traceback, the innermost ones; a recursion has a thousand."""
NEXT_STEP: Final = (
    "frtop has failed; the job is not touched. frtop diagnose and frtop capture work without the"
    " screens.\n  next: report the lines above, they hold no data of the job but names of files"
)


class ShortFailures(App[None], inherit_bindings=False):
    """An application that ends with a short traceback when it fails."""

    def _fatal_error(self) -> None:
        error = self._exception
        self.bell()
        if error is not None and not self._exit_renderables:
            self._exit_renderables.append(Text(failure_text(error), no_wrap=True))
        self._close_messages_no_wait()


def failure_text(error: Exception) -> str:
    """What is written when the program fails: frames, the error in short, the next step.

    The text of the error may be of any length: a key that is missing may be a whole frame.
    """
    frames = traceback.format_tb(error.__traceback__)[-MOST_FRAMES:]
    what = "".join(traceback.format_exception_only(error)).strip()
    return f"{''.join(frames)}{what[:400]}\n{NEXT_STEP}"
