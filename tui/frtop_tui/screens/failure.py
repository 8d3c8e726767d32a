"""Ends a program that has failed at once, with a traceback that people can read and report.

Textual 8.2 prints all variables of each frame. Ours may be jobs of thousands of ranks: that took
minutes, and flooded the terminal.
"""

from __future__ import annotations

import traceback
from typing import Final

from rich.text import Text
from textual.app import App

MOST_FRAMES: Final = 30
"""Innermost frames of the traceback; a recursion has a thousand."""
NEXT_STEP: Final = (
    "frtop has failed; the job is not affected. frtop diagnose and frtop capture work without the"
    " screens.\n  next: report the lines above; of the job, they contain only file names"
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
    """Frames, the error in short, and the next step.

    Errors may have any length: the missing key of a dictionary may be a whole frame.
    """
    frames = traceback.format_tb(error.__traceback__)[-MOST_FRAMES:]
    what = "".join(traceback.format_exception_only(error)).strip()
    return f"{''.join(frames)}{what[:400]}\n{NEXT_STEP}"
