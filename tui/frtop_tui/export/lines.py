"""The text of lines that stacks name, where their files lie on this machine, too.

A C call has no frame: whether `train.py:33` sleeps, reads or waits for an op, only its text
tells. A file that was changed after the stacks were taken is not read, and none is waited
for: it may lie on the file system that hangs.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from frtop_probe import wire

MAX_FILE: Final = 4 * 1024 * 1024
MAX_FILES: Final = 64
MAX_LINE: Final = 200
SECONDS: Final = 1.0
"""For all files together; what comes later is left out."""

Texts = Mapping[str, tuple[str, ...]]


def texts_of(stacks: Iterable[wire.ThreadStack], written_ns: int) -> Texts:
    """The lines of the files that the innermost frames are in, as they were at `written_ns`."""
    names = dict.fromkeys(stack.frames[0].file for stack in stacks if stack.frames)
    wanted = [name for name in names if name.startswith("/") and name.endswith(".py")]
    found: dict[str, tuple[str, ...]] = {}

    def read() -> None:
        for name in wanted[:MAX_FILES]:
            lines = _read(name, written_ns)
            if lines:
                found[name] = lines

    reader = threading.Thread(target=read, name="lines", daemon=True)
    reader.start()
    reader.join(SECONDS)
    return dict(found)


def with_text(stack: wire.ThreadStack, texts: Texts) -> wire.ThreadStack:
    """The stack with the text of its innermost line, if that is known."""
    if not stack.frames:
        return stack
    leaf = stack.frames[0]
    lines = texts.get(leaf.file, ())
    if leaf.source or not 0 < leaf.line <= len(lines):
        return stack
    text = lines[leaf.line - 1].strip()[:MAX_LINE]
    told = msgspec.structs.replace(leaf, source=text)
    return msgspec.structs.replace(stack, frames=(told, *stack.frames[1:]))


def _read(name: str, written_ns: int) -> tuple[str, ...]:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            found = os.fstat(descriptor)
            fits = stat.S_ISREG(found.st_mode) and found.st_size <= MAX_FILE
            if not fits or max(found.st_mtime_ns, 0) > written_ns:
                return ()
            return tuple(file.read(MAX_FILE).splitlines())
    except (OSError, ValueError):
        return ()
