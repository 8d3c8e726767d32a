"""Visited screens, to go back and forward as in a browser. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
MOST: Final = 16
"""Remembered paths; a screen stays in memory while it is in one of them."""


class Visits(Generic[Item]):
    """Paths of open screens, and the one on the terminal."""

    def __init__(self) -> None:
        self._paths: list[tuple[Item, ...]] = []
        self._index = -1

    def visit(self, path: Sequence[Item]) -> list[Item]:
        """Remembers a path, drops those ahead of it, and returns screens without a path."""
        new = tuple(path)
        if self._index >= 0 and self._paths[self._index] == new:
            return []
        before = self._paths
        self._paths = [*before[: self._index + 1], new][-MOST:]
        self._index = len(self._paths) - 1
        here = {id(item) for one in self._paths for item in one}
        gone = {id(item): item for one in before for item in one if id(item) not in here}
        return list(gone.values())

    def step(self, by: int) -> tuple[Item, ...] | None:
        """Goes `by` paths forward, or back; None if there is none."""
        index = self._index + by
        if not 0 <= index < len(self._paths):
            return None
        self._index = index
        return self._paths[index]

    def forget(self) -> list[Item]:
        """Forgets all paths; returns their screens."""
        found = {id(item): item for one in self._paths for item in one}
        self._paths, self._index = [], -1
        return list(found.values())
