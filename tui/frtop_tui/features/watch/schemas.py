"""The type of what `frtop history --json` prints."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct


class OffenderFields(Struct, frozen=True):
    """A host that was a culprit; `times` counts runs."""

    host: str
    gpu: str  # "" unless it was always the same
    times: int
    last_s: float
    jobs: tuple[str, ...]
    causes: dict[str, int]
    links: tuple[str, ...]
    layers: tuple[str, ...]
    advice: str


class HistoryDocument(Struct, frozen=True):
    """`frtop history --json`, the worst host first."""

    schema: Literal["frtop-history-1"]
    days: float
    hosts: tuple[OffenderFields, ...]


TYPES: Final = (HistoryDocument,)
