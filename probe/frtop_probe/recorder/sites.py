"""The line of the user's program that issued an op: innermost frame outside torch."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from frtop_probe.recorder.writer import Writer
from frtop_probe.ring.layout import Cell, Side

MAX_FILES: Final = 65_536
"""Generated code has a file name of its own each time: forget all rather than grow."""
_MACHINERY: Final = tuple(
    str(module.__file__)
    for module in (contextlib, functools, threading, warnings)
    if module.__file__
)
_DECORATORS: Final = "/typing_extensions.py"  # `deprecated`, around some of torch's functions
_FOLDERS: Final = (
    str(Path(__file__).parents[1]) + "/",
    str(Path(importlib.__file__).parent) + "/",
    "<frozen ",
)
SYNCHRONOUS: Final = frozenset({"send", "recv"})
"""Functions of torch in which the caller waits; `isend` and `irecv` return at once."""


class Sites:
    """Knows which files are not the user's, and numbers the lines that are."""

    def __init__(self, writer: Writer, torch_folder: str) -> None:
        self._writer = writer
        self._folders = (*_FOLDERS, torch_folder.rstrip("/") + "/")
        self._inside: dict[str, bool] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._count = itertools.count(1)

    def finder(self) -> Callable[[FrameType | None], int]:
        """A function from the hook's caller to the number of the site, 0 for none."""
        inside, numbers, classify, intern = self._inside, self._numbers, self._classify, self.intern

        def site(frame: FrameType | None) -> int:
            while frame is not None:
                file = frame.f_code.co_filename
                skip = inside.get(file)
                if skip is None:
                    skip = classify(file)
                if not skip:
                    found = numbers.get((file, frame.f_lineno))
                    return found if found is not None else intern(frame)
                frame = frame.f_back
            return 0

        return site

    def _classify(self, file: str) -> bool:
        if len(self._inside) > MAX_FILES:
            self._inside.clear()
        skip = file.startswith(self._folders) or file in _MACHINERY or file.endswith(_DECORATORS)
        self._inside[file] = skip
        return skip

    def intern(self, frame: FrameType) -> int:
        """The number of a frame's line; 0 when the side table has no room for another."""
        key = (frame.f_code.co_filename, frame.f_lineno)
        writer = self._writer
        number = next(self._count)
        code = frame.f_code
        name: str = getattr(code, "co_qualname", code.co_name)
        if not writer.enter(Side.SITE, number, [*key, name]):
            writer.cells[Cell.SIDE_LOST] += 1
            return 0
        # Two threads may number one line twice: a lock would cost more (see `Signatures`).
        self._numbers[key] = number
        return number


def caller_waits(frame: FrameType | None, depth: int = 3) -> bool:
    """Whether a send or receive was issued by a torch function that waits for it."""
    while frame is not None and depth:
        if frame.f_code.co_name in SYNCHRONOUS and frame.f_code.co_filename.endswith(
            "distributed_c10d.py"
        ):
            return True
        frame, depth = frame.f_back, depth - 1
    return False


def main_file(modules: dict[str, Any] | None = None) -> str:
    """The program's own file, "" if it has none."""
    main = (sys.modules if modules is None else modules).get("__main__")
    return str(getattr(main, "__file__", "") or "")
