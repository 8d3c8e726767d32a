"""The type of what `frtop diff --json` prints."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType


class MeasuredFields(Struct, frozen=True):
    """A time in both recordings, in ns."""

    before_ns: int | None
    after_ns: int | None
    noise_ns: int | None
    change: str


class LineChangeFields(Struct, frozen=True):
    """The ops of one line, kind and size in both recordings."""

    line: str | None
    kind: str
    largest_bytes: int
    count_before: int
    count_after: int
    p50: MeasuredFields
    skew: MeasuredFields


class GaugeFields(Struct, frozen=True):
    """The mean of a gauge in both runs."""

    before: float | None
    after: float | None
    noise: float | None


class ReportedAt(Struct, frozen=True):
    """A reported number at the end of a recording."""

    step: int
    median: float | None


class ReportedChange(Struct, frozen=True):
    """A number that the job reports of itself, in both."""

    name: str
    before: ReportedAt | None
    after: ReportedAt | None


class CheckFields(Struct, frozen=True):
    """One limit of --fail-above, and what was found."""

    figure: str
    limit_share: float | None
    limit_ns: int | None
    line: str | None
    kind: str | None
    before_ns: int | None
    after_ns: int | None
    growth: tuple[float | None, float | None] | None  # the interval; null for infinity
    above_limit_ns: tuple[float | None, float | None] | None
    samples_before: int
    samples_after: int
    result: str
    why: str


class DiffDocument(Struct, frozen=True):
    """`frtop diff --json`; what is not there needs ops in both recordings, or --fail-above."""

    schema: Literal["frtop-diff-1"]
    step: MeasuredFields | None
    lines: tuple[LineChangeFields, ...]
    settings: tuple[str, ...]
    steps_by_rank: dict[str, MeasuredFields] | UnsetType = UNSET
    gauges: dict[str, GaugeFields] | UnsetType = UNSET
    reported: tuple[ReportedChange, ...] | UnsetType = UNSET
    result: str | UnsetType = UNSET
    exit_status: int | UnsetType = UNSET
    checks: tuple[CheckFields, ...] | UnsetType = UNSET


TYPES: Final = (DiffDocument,)
