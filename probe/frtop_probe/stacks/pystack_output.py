"""Parses the output of `pystack remote --native-all --no-color`; pystack has no other format."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from frtop_probe import wire
from frtop_probe.stacks.cxx_names import short_name

MAX_THREADS: Final = 512
MAX_FRAMES: Final = 256
_MAX_TEXT: Final = 4096
_THREAD: Final = re.compile(
    r"Traceback for thread (?P<tid>\d{1,10})(?: \((?P<name>.*?)\))? (?:\[(?P<status>[^\]]*)\] )?"
    r"\(most recent call last\):$"
)
_PYTHON: Final = re.compile(
    r' {4}\(Python\) File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in (?P<name>.+)$'
)
_NATIVE: Final = re.compile(
    r' {4}\(C\) File "[^"]*", line \d{1,9}, in (?P<name>.+) \((?P<library>[^()]*)\)$'
)
_INLINED: Final = " (inlined)"
_HOLDS_GIL: Final = "Has the GIL"


class NotPystackError(ValueError):
    """The text is not what pystack prints."""


def parse(text: str) -> tuple[wire.ThreadStack, ...]:
    """Parses threads with their frames, innermost first; skips lines of source code.

    Thread names are the kernel's. If pystack could not merge a native stack with its Python frames,
    the thread has only the Python frames.

    Raises:
        NotPystackError: The text is not empty but has no thread.
    """
    heads: list[re.Match[str]] = []
    stacks: list[deque[wire.TraceFrame]] = []
    for line in _lines(text):
        if head := _THREAD.match(line):
            if len(heads) == MAX_THREADS:
                break
            heads.append(head)
            stacks.append(deque(maxlen=MAX_FRAMES))
        elif stacks and (frame := _frame(line)) is not None:
            stacks[-1].append(frame)
    if not heads and text.strip():
        raise NotPystackError(next(_lines(text), "")[:200])
    return tuple(map(_thread, heads, stacks))


def _lines(text: str) -> Iterator[str]:
    return (line[:_MAX_TEXT] for line in text.split("\n") if line.strip())


def _thread(head: re.Match[str], frames: Iterable[wire.TraceFrame]) -> wire.ThreadStack:
    return wire.ThreadStack(
        ident=0,
        tid=int(head["tid"]),
        name=head["name"] or "",
        active=False,
        owns_gil=_HOLDS_GIL in (head["status"] or ""),
        frames=tuple(frames)[::-1],  # it prints the outermost frame first
    )


def _frame(line: str) -> wire.TraceFrame | None:
    if found := _PYTHON.match(line):
        return wire.TraceFrame(found["name"], found["file"], int(found["line"]))
    if found := _NATIVE.match(line):
        name = short_name(found["name"].removesuffix(_INLINED))
        return wire.TraceFrame(name, found["library"], 0, native=True)
    return None
