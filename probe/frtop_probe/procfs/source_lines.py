"""The text of source lines, read in a daemon thread that a hung file system may block.

Training scripts often lie on the very file system that hangs. A caller waits only briefly;
lines that come later are used in the next snapshot.
"""

from __future__ import annotations

import queue
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe import daemon_thread

MAX_FILE: Final = 4 * 1024 * 1024
MAX_FILES: Final = 256
MAX_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class _File:
    stamp: tuple[int, int]
    checked: float
    lines: tuple[str, ...]


class SourceLines:
    """Reads and caches the lines of files; a cached file is checked for changes every 5 s."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._wanted: queue.Queue[str | None] = queue.Queue(MAX_FILES)
        self._requested: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def request(self, files: set[str]) -> None:
        """Starts reading the files; returns at once."""
        if self._thread is None:
            self._thread = daemon_thread.start(self._work, "frtop source lines")
        now = time.monotonic()
        with self._changed:
            for file in files:
                known = self._files.get(file)
                if file in self._requested or (known and now - known.checked < 5.0):
                    continue
                try:
                    self._wanted.put_nowait(file)
                except queue.Full:
                    return
                self._requested.add(file)

    def is_ready(self, files: set[str]) -> bool:
        """Whether every requested file of `files` has been read, or found unreadable."""
        with self._changed:
            return not files & self._requested

    def line(self, file: str, number: int) -> str:
        """The stripped text of a line; "" while it is unknown."""
        with self._changed:
            known = self._files.get(file)
        if known is None or not 0 < number <= len(known.lines):
            return ""
        return known.lines[number - 1].strip()[:MAX_LINE]

    def _work(self) -> None:
        while (file := self._wanted.get()) is not None:
            with self._changed:
                known = self._files.get(file)
            text = _read(file, known)
            with self._changed:
                self._files.pop(file, None)
                self._files[file] = text
                while len(self._files) > MAX_FILES:
                    self._files.pop(next(iter(self._files)))
                self._requested.discard(file)
                self._changed.notify_all()


def _read(path: str, known: _File | None) -> _File:
    nothing = _File((0, 0), time.monotonic(), ())
    try:
        found = Path(path).stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if known is not None and known.stamp == stamp:
            return _File(stamp, time.monotonic(), known.lines)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE:
            return nothing
        with Path(path).open(encoding="utf-8", errors="replace") as opened:
            lines = opened.read(MAX_FILE).splitlines()
    except (OSError, ValueError):
        return nothing
    return _File(stamp, time.monotonic(), tuple(lines))
