"""Reads source lines in a daemon thread, which a hung file system may block.

Training scripts are often on the very file system that hangs. So a caller waits only briefly, and
late lines go into the next snapshot. Paths are as the process sees them.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from frtop_probe.proc import daemon_thread
from frtop_probe.proc.process_root import ProcessRoot, SourceFile, read_source
from frtop_probe.proc.within import within

MAX_FILES: Final = 256
MAX_LINE: Final = 200
_FUNCTIONS: Final = ("def ", "async def ", "class ")
_LOOPS: Final = ("while ", "for ", "async for ")
_TAKEN: Final = re.compile(r"([A-Za-z_][\w.]*)\.acquire\((?:(?:blocking=)?True)?\)(?:\s*#.*)?$")
_TRIED: Final = re.compile(r"(?:el)?if ([A-Za-z_][\w.]*)\.acquire\(")
_RELEASED: Final = re.compile(r"([A-Za-z_][\w.]*)\.release\(")
_QUOTES: Final = re.compile("'''|\"\"\"")
CHECK_S: Final = 5.0
"""Age in seconds at which a cached file is checked for changes."""
_OURS: Final = ProcessRoot()
_Place = tuple[ProcessRoot, str]


class SourceLines:
    """Reads and caches the lines of files, in one thread at a time. Belongs to an event loop."""

    def __init__(self) -> None:
        self._files: dict[_Place, SourceFile] = {}
        self._lock = threading.Lock()
        self._reading: asyncio.Future[None] | None = None

    async def read(self, files: Iterable[str], seconds: float, root: ProcessRoot = _OURS) -> None:
        """Reads the files that are unknown or were last checked some time ago.

        Returns after `seconds` at the latest; the thread goes on reading. Reads nothing
        when the system allows no more threads.
        """
        with suppress(TimeoutError):
            await within(seconds, self._read(tuple((root, file) for file in files)))

    async def _read(self, files: tuple[_Place, ...]) -> None:
        while (wanted := self._outdated(files)) and self._reading and not self._reading.done():
            await asyncio.wait({self._reading})
        if not wanted:
            return
        with suppress(RuntimeError):  # no thread: stacks without source lines are better than none
            self._reading = daemon_thread.run(partial(self._work, wanted), "frtop source lines")
            await asyncio.wait({self._reading})

    def _outdated(self, files: tuple[_Place, ...]) -> list[_Place]:
        now = time.monotonic()
        with self._lock:
            known = {file: self._files.get(file) for file in files}
        outdated = [file for file, one in known.items() if not one or now - one.checked >= CHECK_S]
        return outdated[:MAX_FILES]

    def line(self, file: str, number: int, root: ProcessRoot = _OURS) -> str:
        """The stripped text of a line; "" while it is unknown."""
        with self._lock:
            known = self._files.get((root, file))
        if known is None or not 0 < number <= len(known.lines):
            return ""
        return known.lines[number - 1].strip()[:MAX_LINE]

    def blocks(self, file: str, number: int, root: ProcessRoot = _OURS) -> tuple[str, ...]:
        """A line, then the headers of the blocks around it up to its function, innermost first.

        They include `lock.acquire()` lines if every path to the line passes them and no path passes
        a release. This uses indentation alone; () while the line is unknown.
        """
        with self._lock:
            known = self._files.get((root, file))
        if known is None or not 0 < number <= len(known.lines):
            return ()
        found: list[str] = []
        released: set[str] = set()
        depth, quotes = 1 << 30, 0
        for place in range(number - 1, -1, -1):
            bare, indent = known.lines[place].strip(), _indent(known.lines[place])
            if not bare or bare.startswith("#"):
                continue
            if found and indent >= depth:
                quotes += len(_QUOTES.findall(bare))
                released.update(_RELEASED.findall(bare))
                taken = _TAKEN.match(bare) if indent == depth and not quotes % 2 else None
                if taken is not None and taken[1] not in released:
                    found.append(bare[:MAX_LINE])
                continue
            passed = _TRIED.match(bare)
            if passed is None or passed[1] not in released:
                found.append(bare[:MAX_LINE])
            depth = indent
            if not depth or bare.startswith(_FUNCTIONS):
                break
            if bare.startswith(_LOOPS):
                released.update(_released_in(known.lines, place))  # in the previous iteration
        return tuple(found)

    def _work(self, files: list[_Place]) -> None:
        """Runs in the thread. Stores each file as soon as it is read: the next one may hang."""
        for file in files:
            with self._lock:
                known = self._files.get(file)
            text = read_source(*file, known)
            with self._lock:
                self._files.pop(file, None)
                self._files[file] = text
                while len(self._files) > MAX_FILES:
                    self._files.pop(next(iter(self._files)))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _released_in(lines: tuple[str, ...], header: int) -> set[str]:
    """The locks that the block below a header releases."""
    found: set[str] = set()
    for text in lines[header + 1 :]:
        if text.strip() and _indent(text) <= _indent(lines[header]):
            break
        found.update(_RELEASED.findall(text))
    return found
