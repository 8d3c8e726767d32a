"""One moment on both clocks of this host."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """In ns; `monotonic_ns` orders what happens here, `wall_ns` is for people."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic_ns(), time.time_ns())
