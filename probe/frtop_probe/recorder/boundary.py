"""The line between the recorder and the program it is a guest of: nothing crosses it.

But for what is the program's own: a signal handler runs wherever Python happens to be, so
what it raises may come up inside of us, and must go on to whom it is meant for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_OURS: Final = str(Path(__file__).parents[1]) + "/"


def shield(
    function: Callable[..., object],
    active: Callable[[], bool],
    failed: Callable[[BaseException], None],
) -> Callable[..., None]:
    """`function` for use inside training code: skipped when off, and never raising.

    Args:
        function: what to call; its result is dropped.
        active: whether it may run; false in forked children and after `stop()`.
        failed: told about an exception.
    """

    @functools.wraps(function)
    def shielded(*args: Any, **kwargs: Any) -> None:
        try:
            if active():
                function(*args, **kwargs)
        except Exception as error:
            if of_handler(error):
                raise
            failed(error)

    return shielded


def of_handler(error: BaseException) -> bool:
    """Whether a signal handler raised it: a function that was given the frame below its own."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        below = frame.f_back
        foreign = below is not None and not frame.f_code.co_filename.startswith(_OURS)
        for value in frame.f_locals.values() if foreign else ():
            if value is below or (type(value) is tuple and any(one is below for one in value)):
                return True
        trace = trace.tb_next
    return False
