"""Returns to the system what malloc keeps: several MiB of pages, which grow for hours."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

APART_S: Final = 60.0
"""The time from one `trim` to the next that is often enough. Each takes some milliseconds."""
_TRIM: Final[Callable[[int], int] | None] = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only glibc has it."""


def trim() -> None:
    if _TRIM is not None:
        _TRIM(0)
