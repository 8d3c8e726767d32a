"""The audit trail: which operator asked what of which rank, in the agent's log and the host's.

The first request of a kind by an operator about a rank is written at once. What repeats it in the
next ten minutes is counted and written as one line, so that no client can fill a disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe.proc.kernel_files import printable

WINDOW_S: Final = 600.0
MAX_WINDOWS: Final = 1024
"""Operators times kinds of requests; with more, the oldest window ends early."""
MAX_LOG: Final = 256 * 1024
"""Bytes of the agent's log; of a longer one, the newest half is kept."""
SYSTEM_LOG: Final = "/dev/log"
_PRIORITY: Final = 10 << 3 | 5  # authpriv.notice
_FLUSH_S: Final = 10.0
_MAX_TEXT: Final = 900
"""Characters of a line: system logs cut what is longer than 1,024 bytes."""
_PIDS_PER_LINE: Final = 64
ALL: Final = 0
"""Instead of a pid: all ranks of the host."""


@dataclass(slots=True)
class _Window:
    """Requests of one kind by one operator."""

    began: float
    clock: str
    repeats: Counter[int] = field(default_factory=Counter)
    """By process; 0 where it was asked once."""


class Audit:
    """Writes lines with `write` if there is one, and to the system log."""

    def __init__(self, write: Callable[[str], None] | None) -> None:
        self._write = write
        self._windows: dict[tuple[str, str], _Window] = {}

    def note(self, kind: str, pids: Iterable[int], by: str) -> None:
        """Notes a request about ranks with these pids; `by` is "asked by ANN", "refused to BEN"."""
        now = time.monotonic()
        self._flush(now)
        window = self._windows.get((kind, by))
        if window is None:
            if len(self._windows) >= MAX_WINDOWS:
                self._end(next(iter(self._windows)))
            window = self._windows[kind, by] = _Window(now, time.strftime("%T"))
        new = []
        for pid in dict.fromkeys(pids):
            if pid in window.repeats:
                window.repeats[pid] += 1
            else:
                window.repeats[pid] = 0
                new.append(pid)
        for some in _per_line(new):
            self._say(f"{kind} of {_named(some)}, {by}")

    async def run(self) -> None:
        """Writes in time what has repeated, until cancelled."""
        try:
            while True:
                await asyncio.sleep(_FLUSH_S)
                self._flush(time.monotonic())
        finally:
            while self._windows:
                self._end(next(iter(self._windows)))

    def _flush(self, now: float) -> None:
        for key, window in list(self._windows.items()):
            if now - window.began < WINDOW_S:
                break  # the others began later
            self._end(key)

    def _end(self, key: tuple[str, str]) -> None:
        window, (kind, by) = self._windows.pop(key), key
        for some in _per_line([pid for pid, count in window.repeats.items() if count]):
            count = sum(window.repeats[pid] for pid in some)
            more = f"{count:,} more since {window.clock}"
            self._say(f"{kind} of {_named(some)}, {more}, {by}")

    def _say(self, text: str) -> None:
        text = printable(text, _MAX_TEXT)
        if self._write is not None:
            self._write(f"{time.strftime('%F %T')} {text}")
        _write_system_log(text)


def _per_line(pids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(pids), _PIDS_PER_LINE):
        yield pids[start : start + _PIDS_PER_LINE]


def _named(pids: Sequence[int]) -> str:
    if ALL in pids:
        return "all processes"
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def _write_system_log(text: str) -> None:
    """Sends a line to the host's log daemon, if there is one and it is not behind."""
    line = f"<{_PRIORITY}>{time.strftime('%b %e %T')} frtop[{os.getpid()}]: {text}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.sendto(line.encode("ascii", "backslashreplace"), SYSTEM_LOG)


def bound_log(path: Path, most: int = MAX_LOG) -> None:
    """Drops the oldest half of the agent's log at `path` if it is too long.

    Only if standard error is this file: another file is not ours to cut.

    Raises:
        OSError: it is not there, or not readable.
    """
    size = os.fstat(2).st_size
    if size <= most:
        return
    # Standard error is open for writing only.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.fstat(2)):
            newest = os.pread(descriptor, most // 2, size - most // 2)
            os.ftruncate(2, 0)
            os.write(2, newest[newest.find(b"\n") + 1 :])
    finally:
        os.close(descriptor)
