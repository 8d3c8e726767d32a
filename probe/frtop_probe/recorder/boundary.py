"""The line between the recorder and the program it is a guest of: nothing crosses it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


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
        except Exception as error:  # noqa: BLE001 - the boundary itself
            failed(error)

    return shielded
