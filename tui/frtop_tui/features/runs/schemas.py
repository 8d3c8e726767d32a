"""The type of what `frtop runs --json` prints."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct


class FailedRank(Struct, frozen=True):
    """A rank that ended badly."""

    rank: int
    how: str


class RunFields(Struct, frozen=True):
    """One run; 0 s: not known."""

    job: str
    name: str  # what `--job` takes
    attempt: int
    ended: str
    took_s: float
    step: int
    ranks: int
    hosts: int
    well: bool
    cpu: float | None  # share in use
    gpu: float | None
    end: str
    failed: tuple[FailedRank, ...]


class RunsDocument(Struct, frozen=True):
    """`frtop runs --json`, the newest first."""

    schema: Literal["frtop-runs-1"]
    runs: tuple[RunFields, ...]
    problems: tuple[str, ...]


TYPES: Final = (RunsDocument,)
