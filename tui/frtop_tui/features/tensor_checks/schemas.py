"""The types of what `frtop numbers --json` and `frtop recorder --json` print."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from frtop_tui.features.tensor_checks.events import SampleRow


class NumbersDocument(Struct, frozen=True):
    """`frtop numbers --json`. What is in `findings` may change."""

    schema: Literal["frtop-numbers-1"]
    samples: int
    until: str  # why it ended early
    lost: int
    states: dict[str, Any]
    problems: dict[str, str]
    places: dict[str, str]
    findings: dict[str, Any]
    rows: tuple[SampleRow, ...] | UnsetType = UNSET  # with --rows, as the next one
    more_rows: int | UnsetType = UNSET


class NumbersStoppedDocument(Struct, frozen=True):
    """`frtop numbers --stop --json`."""

    schema: Literal["frtop-numbers-stopped-1"]
    stopped: dict[str, Any]
    problems: dict[str, str]


class RankRecording(Struct, frozen=True):
    """What a rank records."""

    recorded: dict[str, Any] | None
    problem: str
    due: bool


class RecorderDocument(Struct, frozen=True):
    """`frtop recorder --json`."""

    schema: Literal["frtop-recorder-1"]
    ranks: dict[str, RankRecording]


TYPES: Final = (NumbersDocument, NumbersStoppedDocument, RecorderDocument)
