"""The type of what `frtop statistics --by memory --json` prints."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct


class AllocationRow(Struct, frozen=True):
    """A rank and device, in bytes; null: not known of the CPU."""

    rank: int
    device: str
    start: int | None
    end: int
    peak: int
    reserved: int | None
    out_of_memory: int


class AllocationsDocument(Struct, frozen=True):
    """`frtop statistics --by memory --json`."""

    schema: Literal["frtop-allocations-1"]
    rows: tuple[AllocationRow, ...]


TYPES: Final = (AllocationsDocument,)
