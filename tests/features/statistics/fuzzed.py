"""Hostile filters of the rows."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from frtop_tui.features.statistics.rows import matches
from fuzz.mutations import as_text
from fuzz.target import Take, target


@target("filters of statistics", as_text, lambda _: [b"all_reduce !dp", b"train.py:12"])
def row_filters(_: Path, __: ExitStack) -> Take:
    def take(data: bytes) -> bool:
        matches("all_reduce dp train.py:12", data.decode("utf-8", "surrogateescape"))
        return True

    return take
