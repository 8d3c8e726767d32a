"""Keeps the recorder's failures out of the program, and writes its messages to stderr.

The program's own exceptions pass: Python runs signal handlers anywhere, so an exception that
a handler raises may surface inside the recorder and must reach the program. The kernels, which each
op passes, give the same guarantee themselves: `ops/kernel.py` and `native/kernel.cpp`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

PACKAGE_FOLDER: Final = str(Path(__file__).parents[1]) + "/"
"""The folder of `frtop_probe`: stack frames in its files are ours, not the program's."""
Value = TypeVar("Value")


def guarded(
    function: Callable[..., Value],
    active: Callable[[], bool],
    failed: Callable[[BaseException], None],
) -> Callable[..., Value | None]:
    """Wraps `function` for use inside training code: it is skipped when off and never raises.

    Args:
        function: its result is None if it was not called, or failed.
        active: whether it may run; false in forked children and after `stop()`.
        failed: called with the recorder's own exceptions.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Value | None:
        try:
            if active():
                return function(*args, **kwargs)
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
            failed(error)
        return None

    return wrapper


def leave_out(error: BaseException) -> None:
    """Removes the frame that caught one of the program's exceptions from its traceback.

    A wrapper calls this before a bare `raise`, which does not add the frame again (before Python
    3.11 it does).
    """
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next


def raised_by_signal_handler(error: BaseException) -> bool:
    """Returns whether a signal handler raised it: its arguments include the interrupted frame."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        below = frame.f_back
        foreign = below is not None and not frame.f_code.co_filename.startswith(PACKAGE_FOLDER)
        for value in frame.f_locals.values() if foreign else ():
            if value is below or (type(value) is tuple and any(one is below for one in value)):
                return True
        trace = trace.tb_next
    return False


def log_line(text: str) -> None:
    """Writes a line to stderr, without control characters; the recorder prints nothing else."""
    try:
        clean = "".join(one if one.isprintable() or one == "\n" else "?" for one in text)
        sys.stderr.write(f"frtop: {clean}\n")
    except Exception:  # noqa: BLE001 - the program may have replaced stderr with anything
        return
