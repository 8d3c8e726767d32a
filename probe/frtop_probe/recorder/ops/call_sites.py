"""The line of the user's program that issued an op: the innermost frame outside torch."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from frtop_probe.recorder.guard import PACKAGE_FOLDER
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring.layout import Side, StatusCell

MAX_FILES: Final = 65_536
"""Generated code has a new file name each time: the table is cleared at this size."""
MAX_PLACES: Final = 1024
"""Instructions whose line is remembered; each keeps its code object alive. Cleared at this size."""
_SKIPPED_FILES: Final = tuple(
    str(module.__file__)
    for module in (contextlib, functools, threading, warnings)
    if module.__file__
)
_DECORATORS: Final = ("/typing_extensions.py", "/_py_warnings.py")
"""Files of `deprecated`, around some of torch's functions; the latter is Python 3.14's."""
_SKIPPED_FOLDERS: Final = (
    PACKAGE_FOLDER,
    str(Path(importlib.__file__).parent) + "/",
    "<frozen ",
)
C10D_FILE: Final = "distributed_c10d.py"
SYNCHRONOUS: Final = frozenset({"send", "recv"})
"""Torch functions in which the caller waits; `isend` and `irecv` return at once."""


class CallSites:
    """Finds the user's line for an op, and numbers these lines."""

    def __init__(self, ring: OwnRing, torch_folder: str) -> None:
        self._ring = ring
        self._folders = (*_SKIPPED_FOLDERS, torch_folder.rstrip("/") + "/")
        self._skipped: dict[str, bool] = {}
        self._places: dict[tuple[int, int], tuple[CodeType, int]] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._count = itertools.count(1)
        self.state = [True]
        """Its item: whether ops get a site."""

    @property
    def on(self) -> bool:
        """Whether ops get a site."""
        return self.state[0]

    def switch(self, *, on: bool) -> None:
        """Sets whether ops get a site from now on."""
        self.state[0] = on

    def finder(self) -> Callable[[FrameType | None], int]:
        """Returns a function from the hook's caller to the site's number; 0 if there is none."""
        skipped, places, on = self._skipped, self._places, self.state
        classify, number, identity = self._classify, self._number, id

        def site(frame: FrameType | None) -> int:
            if not on[0]:
                return 0
            while frame is not None:
                code = frame.f_code
                file = code.co_filename
                skip = skipped.get(file)
                if skip is None:
                    skip = classify(file)
                if not skip:
                    # Not by its line: finding it takes longer in a longer function.
                    found = places.get((identity(code), frame.f_lasti))
                    return found[1] if found is not None and found[0] is code else number(frame)
                frame = frame.f_back
            return 0

        return site

    def file_of(self, site: int) -> str:
        """Returns the file of a site; "" if there is no such site."""
        return next((file for (file, _), number in self._numbers.items() if number == site), "")

    def _number(self, frame: FrameType) -> int:
        """Returns the number of a frame's line, and remembers it for this instruction."""
        code = frame.f_code
        found = self._numbers.get((code.co_filename, frame.f_lineno)) or self.intern(frame)
        if found:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            self._places[id(code), frame.f_lasti] = code, found
        return found

    def _classify(self, file: str) -> bool:
        if len(self._skipped) > MAX_FILES:
            self._skipped.clear()
        skip = (
            file.startswith(self._folders) or file in _SKIPPED_FILES or file.endswith(_DECORATORS)
        )
        self._skipped[file] = skip
        return skip

    def kind_of(self, code: CodeType) -> int:
        """Returns what a code object is, as in frames.h."""
        file = code.co_filename
        skip = self._skipped.get(file)
        if not (self._classify(file) if skip is None else skip):
            return 1
        return 3 if code.co_name in SYNCHRONOUS and file.endswith(C10D_FILE) else 2

    def number_at(self, code: CodeType, instruction: int) -> int:
        """Returns the number of the line that an instruction is in, as `frame.f_lasti` has it."""
        lines = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
        line = next(lines, None) or code.co_firstlineno
        return self._numbers.get((code.co_filename, line)) or self._enter(code, line)

    def intern(self, frame: FrameType) -> int:
        """Returns the number of a frame's line; 0 if the side table is full."""
        return self._enter(frame.f_code, frame.f_lineno)

    def _enter(self, code: CodeType, line: int) -> int:
        key = (code.co_filename, line)
        ring = self._ring
        number = next(self._count)
        name: str = getattr(code, "co_qualname", code.co_name)
        if not ring.write_entry(Side.SITE, number, [*key, name]):
            ring.cells[StatusCell.SIDE_LOST] += 1
            return 0
        # Two threads may number one line twice; a lock would cost more (see `SignatureTable`).
        self._numbers[key] = number
        return number


def caller_waits(frame: FrameType | None, depth: int = 3) -> bool:
    """Returns whether a waiting torch function issued this send or receive."""
    while frame is not None and depth:
        if frame.f_code.co_name in SYNCHRONOUS and frame.f_code.co_filename.endswith(C10D_FILE):
            return True
        frame, depth = frame.f_back, depth - 1
    return False
