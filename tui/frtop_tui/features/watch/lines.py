"""Writes the watcher's lines to standard output, from a thread of its own.

So a reader that stalls, a full disk or a closed terminal holds up nothing else. Lines that were
lost are counted, and the next line that is written has their number.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from frtop_probe.proc import daemon_thread

MOST_WAITING: Final = 1_000
CLOSING_S: Final = 2.0


def _write(text: str) -> None:
    """Writes past Python's buffers: these would store what a full disk refused, for later."""
    descriptor, left = sys.stdout.fileno(), memoryview(text.encode())
    while left:
        left = left[os.write(descriptor, left) :]


class EventLines:
    """Writes JSON objects, one in each line."""

    def __init__(self, write: Callable[[str], None] = _write) -> None:
        self._write = write
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST_WAITING)
        self._lost = 0
        self._complained = False
        self._thread = daemon_thread.start(self._work, "frtop watch lines")

    def put(self, event: dict[str, Any]) -> None:
        """Adds a line to those that are to be written. Never blocks."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._lost += 1

    @property
    def idle(self) -> bool:
        """Whether nothing is left to write: each line was written or lost."""
        return self._waiting.unfinished_tasks == 0

    def close(self) -> None:
        """Waits briefly for what is still to be written."""
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(CLOSING_S)

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            if self._lost:
                event = {**event, "lines_lost": self._lost}
            try:
                # The line before may be there in part: this one needs a line of its own.
                start = "\n" if self._lost else ""
                # Of all that is no letter, json leaves only this one as it is.
                line = json.dumps(event, allow_nan=False).replace("\x7f", "\\u007f")
                self._write(f"{start}{line}\n")
            except (OSError, ValueError) as error:  # ValueError: it was closed
                self._lost += 1
                self._complain(error)
            else:
                self._lost = 0
                self._complained = False
            self._waiting.task_done()

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        with suppress(OSError, ValueError):
            text = getattr(error, "strerror", None) or str(error)
            sys.stderr.write(f"frtop: lines are lost: {text}; frtop watch goes on\n")
            sys.stderr.flush()
