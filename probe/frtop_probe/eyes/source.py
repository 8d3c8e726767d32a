"""The text of source lines, read without ever waiting for a file system that hangs.

Training scripts often lie on the very file system whose death is being looked into. So
one daemon thread reads, and whoever asks waits for it a moment and no longer; what came
too late is there at the next look.
"""

from __future__ import annotations

import queue
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_FILE: Final = 4 * 1024 * 1024
MAX_FILES: Final = 256
MAX_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class _Text:
    stamp: tuple[int, int]
    checked: float
    lines: tuple[str, ...]


class SourceReader:
    """Cached lines of files, by modification time."""

    def __init__(self) -> None:
        self._texts: dict[str, _Text] = {}
        self._wanted: queue.Queue[str | None] = queue.Queue(MAX_FILES)
        self._asked: set[str] = set()
        self._arrived = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(self, files: set[str]) -> None:
        """Starts reading; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="source", daemon=True)
            self._thread.start()
        now = time.monotonic()
        with self._arrived:
            for file in files:
                known = self._texts.get(file)
                if file in self._asked or (known and now - known.checked < 5.0):
                    continue
                try:
                    self._wanted.put_nowait(file)
                except queue.Full:
                    return
                self._asked.add(file)

    def ready(self, files: set[str]) -> bool:
        """Whether all that was asked for these files has been read, or found unreadable."""
        with self._arrived:
            return not files & self._asked

    def line(self, file: str, number: int) -> str:
        """Text of a line, stripped; "" when not (yet) known."""
        with self._arrived:
            known = self._texts.get(file)
        if known is None or not 0 < number <= len(known.lines):
            return ""
        return known.lines[number - 1].strip()[:MAX_LINE]

    def _work(self) -> None:
        while (file := self._wanted.get()) is not None:
            with self._arrived:
                known = self._texts.get(file)
            text = _read(file, known)
            with self._arrived:
                self._texts.pop(file, None)
                self._texts[file] = text
                while len(self._texts) > MAX_FILES:
                    self._texts.pop(next(iter(self._texts)))
                self._asked.discard(file)
                self._arrived.notify_all()


def _read(file: str, known: _Text | None) -> _Text:
    nothing = _Text((0, 0), time.monotonic(), ())
    try:
        found = Path(file).stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if known is not None and known.stamp == stamp:
            return _Text(stamp, time.monotonic(), known.lines)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE:
            return nothing
        with Path(file).open(encoding="utf-8", errors="replace") as opened:
            lines = opened.read(MAX_FILE).splitlines()
    except (OSError, ValueError):
        return nothing
    return _Text(stamp, time.monotonic(), tuple(lines))
