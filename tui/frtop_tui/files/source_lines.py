"""Adds source lines to stacks whose program also lies on this machine.

A C call has no frame: only the source line tells whether `train.py:33` sleeps, reads or waits
for an op. A file that changed after the stacks were taken is not used. Reading gives up soon:
the files may lie on the file system that hangs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.proc import daemon_thread

MAX_FILE: Final = 4 * 1024 * 1024
MAX_FILES: Final = 64
MAX_LINE: Final = 200
SECONDS: Final = 1.0
"""For all files together; files that answer later are ignored."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The lines of a file, and when it was last changed."""

    changed_ns: int
    lines: tuple[str, ...]


def texts_of(stacks: Iterable[wire.ThreadStack]) -> Mapping[str, SourceFile]:
    """The files of the innermost frames by path, as far as they can be read here."""
    names = dict.fromkeys(stack.frames[0].file for stack in stacks if stack.frames)
    wanted = [name for name in names if name.startswith("/") and name.endswith(".py")]
    found: dict[str, SourceFile] = {}

    def read() -> None:
        for name in wanted[:MAX_FILES]:
            text = _read(name)
            if text is not None:
                found[name] = text

    daemon_thread.start(read, "frtop source lines").join(SECONDS)
    return dict(found)


def with_text(
    stack: wire.ThreadStack, texts: Mapping[str, SourceFile], taken_ns: int
) -> wire.ThreadStack:
    """The stack with the source of its innermost line, if the file is older than the stack."""
    if not stack.frames:
        return stack
    leaf = stack.frames[0]
    text = texts.get(leaf.file)
    if text is None or text.changed_ns > taken_ns or not 0 < leaf.line <= len(text.lines):
        return stack
    source = text.lines[leaf.line - 1].strip()[:MAX_LINE]
    leaf = msgspec.structs.replace(leaf, source=source)
    return msgspec.structs.replace(stack, frames=(leaf, *stack.frames[1:]))


def _read(name: str) -> SourceFile | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE:
                return None
            return SourceFile(found.st_mtime_ns, tuple(file.read(MAX_FILE).split("\n")))
    except (OSError, ValueError):
        return None
