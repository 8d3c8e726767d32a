"""The types of what `frtop tensors --json` prints."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct


class OpTensorsFields(Struct, frozen=True):
    """The tensors of one op. What is in `tensors` may change."""

    sequence: int
    kind: str
    number: int | None
    error: str
    tensors: tuple[dict[str, Any], ...]


class TensorsDocument(Struct, frozen=True):
    """`frtop tensors --json`."""

    schema: Literal["frtop-tensors-1"]
    rank: int
    host: str
    pid: int
    ops: tuple[OpTensorsFields, ...]


class MembersDocument(Struct, frozen=True):
    """`frtop tensors --compare --json`. What is in `tensors` may change."""

    schema: Literal["frtop-members-1"]
    kind: str
    number: int
    group: str
    members: int
    answered: tuple[int, ...]
    not_asked: tuple[int, ...]
    not_pending: tuple[int, ...]
    no_answer: tuple[int, ...]
    tensors: tuple[dict[str, Any], ...]


TYPES: Final = (TensorsDocument, MembersDocument)
