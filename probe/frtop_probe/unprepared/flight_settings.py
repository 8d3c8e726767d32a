"""Finds the size of torch's Flight Recorder from variables, or its default.

Sources: FlightRecorder.hpp of the 2.13 and 2.14 wheels (both names, 2,000), jobs with 2.8 (the
older name, off); ProcessGroupNCCL.cpp for the dump after an op times out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OFF: Final = "the Flight Recorder is off"
SIZE_NAMES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Entries of the ring, 0 for none. torch since 2.9 reads both, and the first one wins; torch before
2.9 reads only the second. Without either, the ring is off before 2.11, and has 2,000 entries since
then."""
DEFAULT_SIZE: Final = 2000
SWITCH_ON: Final = (
    f"next time, start with {SIZE_NAMES[0]}=2000 (torch before 2.9: {SIZE_NAMES[1]}=2000)"
)
OLDEST_READ: Final = (2, 8)
NEWEST_READ: Final = (2, 15)
"""Releases of torch that frtop has read from outside."""
_NEW_NAME_SINCE: Final = (2, 9)
_ON_SINCE: Final = (2, 11)
_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")


def release(version: str) -> tuple[int, int] | None:
    """Returns `2.13.0+cpu` as (2, 13); None if it is not a version."""
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else None


def size_names(version: str) -> tuple[str, ...]:
    """The variables that a release reads, the decisive one first; both for an unknown release."""
    known = release(version)
    return SIZE_NAMES[1:] if known is not None and known < _NEW_NAME_SINCE else SIZE_NAMES


def default_size(version: str) -> int | None:
    """Entries of the ring if no variable is set; None for an unknown release."""
    known = release(version)
    return None if known is None else DEFAULT_SIZE if known >= _ON_SINCE else 0


def flight_ring_size(version: str, settings: Mapping[str, str]) -> tuple[int | None, str]:
    """Entries of the ring (None if unknown), and the variable that says so ("" if none)."""
    for name in size_names(version):
        if name in settings:
            text = settings[name].strip()
            return (int(text) if text.isascii() and text.isdecimal() else None), name
    return default_size(version), ""
