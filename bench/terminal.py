"""`frtop` on a terminal of its own, as a person at the keys has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from typing import Final

PATIENCE_S: Final = 120.0
SILENCE_S: Final = 0.05
SILENCE_AT_MOST_S: Final = 2.0


class Terminal:
    """Runs `frtop` with these arguments; ends it on leaving."""

    def __init__(self, *arguments: str, rows: int = 50, columns: int = 160) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.environ |= {"LINES": str(rows), "COLUMNS": str(columns)}
            os.execv(sys.executable, [sys.executable, "-m", "frtop_tui", *arguments])
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def __enter__(self) -> Terminal:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGTERM)
        with contextlib.suppress(OSError):
            while os.read(self._terminal, 65536):
                pass
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def press(self, key: str, words: str) -> float:
        """Returns the seconds from a key until words that it shows have been written."""
        until = time.monotonic() + SILENCE_AT_MOST_S  # what was shown before has been written
        while select.select([self._terminal], [], [], SILENCE_S)[0] and time.monotonic() < until:
            os.read(self._terminal, 65536)
        begin = time.monotonic()
        os.write(self._terminal, key.encode())
        self.wait_for(words)
        return time.monotonic() - begin

    def wait_for(self, words: str, at_least_s: float = 0.0) -> None:
        """Reads until words were written, and for some time besides."""
        begin, seen = time.monotonic(), b""
        while words.encode() not in seen or time.monotonic() - begin < at_least_s:
            assert time.monotonic() - begin < PATIENCE_S, seen[-2000:]
            if select.select([self._terminal], [], [], 0.05)[0]:
                seen += os.read(self._terminal, 65536)
