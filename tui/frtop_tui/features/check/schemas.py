"""The type of what `frtop check --json` prints."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct


class ExpectationFields(Struct, frozen=True):
    """One expectation of the plan, and what was found."""

    key: str
    result: str
    value: Any  # as the plan has it; a range has its least and its most
    expected: str
    found: str
    why: str
    ranks: tuple[int, ...]


class CheckDocument(Struct, frozen=True):
    """`frtop check --json`."""

    schema: Literal["frtop-check-1"]
    result: str
    exit_status: int
    ranks: int
    ranks_with_steps: int
    expectations: tuple[ExpectationFields, ...]


TYPES: Final = (CheckDocument,)
