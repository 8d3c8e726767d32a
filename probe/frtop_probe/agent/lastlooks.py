"""The last looks at a job, kept for its black box: few, and bounded in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, cast

import msgspec

from frtop_probe import wire

Occasion = Literal["standstill", "asked", "death"]
KEPT: Final[dict[Occasion, int]] = {"standstill": 4, "asked": 4, "death": 2}
"""Two pairs of our own, two of those that operators asked for, and those after deaths."""
MAX_BYTES: Final = 8 * 1024 * 1024
"""Of one job. A look at eight ranks is about 60 KB; beyond the bound the oldest go."""


@dataclass(frozen=True, slots=True)
class _Kept:
    occasion: Occasion
    at_ns: int
    data: bytes


class LastLooks:
    """Looks at one job's ranks on this host."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._kept: list[_Kept] = []

    def add(self, occasion: Occasion, looks: Iterable[wire.Snapshot], now_ns: int) -> None:
        """Keeps looks that were taken together; others of the same occasion make room."""
        found = tuple(looks)
        if not found:
            return
        data = wire.encode(wire.SnapshotResponse(0, self._host, found, now_ns))
        self._kept.append(_Kept(occasion, now_ns, data))
        alike = [kept for kept in self._kept if kept.occasion == occasion]
        for old in alike[: -KEPT[occasion]]:
            self._kept.remove(old)
        while sum(len(kept.data) for kept in self._kept) > MAX_BYTES:
            self._kept.pop(0)

    def forget(self, before_ns: int) -> None:
        """Drops those that tell of another time."""
        self._kept = [kept for kept in self._kept if kept.at_ns >= before_ns]

    def told(self) -> tuple[wire.SnapshotResponse, ...]:
        """All of them, oldest first; encoded already, fit only for being written."""
        return tuple(cast("wire.SnapshotResponse", msgspec.Raw(kept.data)) for kept in self._kept)
