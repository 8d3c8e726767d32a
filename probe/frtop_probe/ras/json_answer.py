"""Parses what RAS answers as JSON (NCCL 2.28.7 and later). Pure; nothing of it is trusted."""

from __future__ import annotations

import math
import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from frtop_probe import wire

MAX_COMMUNICATORS: Final = 4096
MAX_RANKS: Final = 65_536
"""In all communicators together; what exceeds it is left out, and said."""
MAX_KINDS: Final = 32
MAX_NOTES: Final = 16
_HASH: Final = re.compile(r"0x[0-9a-f]{1,16}")
_SECONDARY: Final = re.compile(r"0x[0-9a-f]{1,16}:0x[0-9a-f]{1,16}")
_VERSION: Final = re.compile(r"\d{1,2}(\.\d{1,3}){1,3}")

_TRUNCATED: Final = "truncated"
"""In msgspec's message for data that ends too early."""

_Text = Annotated[str, Meta(max_length=128)]
_Small = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AnswerError(Exception):
    """This is no answer of RAS, or its end is missing (`cut`); the text says what is wrong."""

    def __init__(self, text: str, *, cut: bool = False) -> None:
        super().__init__(text)
        self.cut = cut


class _Status(Struct, frozen=True):
    init_state: _Small = 0
    async_error: _Small = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False


class _MissingStatus(Struct, frozen=True):
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(Struct, frozen=True):
    rank: _Small
    host: _Text
    pid: _Small
    cuda_dev: _Small = -1
    nvml_dev: _Small = -1
    status: _Status = _Status()
    collective_counts: dict[_Text, _Count] = {}


class _Missing(Struct, frozen=True):
    rank: _Small
    host: _Text = ""
    pid: _Small = 0
    cuda_dev: _Small = -1
    nvml_dev: _Small = -1
    status: _MissingStatus = _MissingStatus()


class _Communicator(Struct, frozen=True):
    hash: _Text
    size: _Small
    secondary_hash: _Text = ""
    ranks_count: _Small | None = None
    missing_ranks_count: _Small | None = None
    ranks: list[_Rank] = []
    missing_ranks: list[_Missing] = []


class _Ras(Struct, frozen=True):
    collection_time_sec: float | None = None
    timeouts_count: _Small = 0


class _Answer(Struct, frozen=True):
    communicators: list[_Communicator]
    nccl_version: _Text = ""
    communicators_count: _Small | None = None
    ras: _Ras = _Ras()


_answers = msgspec.json.Decoder(_Answer)


def parse_json(data: bytes) -> wire.RasReport:
    """Parses an answer. A communicator that contradicts itself is left out, with a note.

    Raises:
        AnswerError: this is no such answer, or not all of it.
    """
    try:
        answer = _answers.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = data.strip()
        begun = text.startswith(b"{")
        cut = begun and (_TRUNCATED in str(error) or not text.endswith(b"}"))
        raise AnswerError(str(error)[:200], cut=cut) from error
    notes: list[str] = []
    found: list[wire.RasCommunicator] = []
    listed = 0
    for one in answer.communicators:
        if (reason := _contradiction(one)) != "":
            notes.append(f"communicator {printable(one.hash)} is left out: {reason}")
            continue
        listed += len(one.ranks) + len(one.missing_ranks)
        if len(found) >= MAX_COMMUNICATORS or listed > MAX_RANKS:
            notes.append(
                f"{len(answer.communicators) - len(found):,} of {len(answer.communicators):,}"
                " communicators are left out: the answer is too large"
            )
            break
        found.append(_communicator(one))
    expected = answer.communicators_count
    if expected is not None and expected != len(answer.communicators):
        notes.append(f"RAS counts {expected} communicators, and lists {len(answer.communicators)}")
    seconds = answer.ras.collection_time_sec
    if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds < 86_400):
        seconds = None
    version = _VERSION.match(answer.nccl_version)
    return wire.RasReport(
        "json",
        nccl_version=version[0] if version else "",
        collection_s=seconds,
        timeouts=max(0, answer.ras.timeouts_count),
        communicators=tuple(found),
        notes=_shortened(notes),
    )


def _contradiction(one: _Communicator) -> str:
    """What cannot be in an entry, "" for nothing."""
    ranks = [rank.rank for rank in one.ranks] + [rank.rank for rank in one.missing_ranks]
    listed, missing = len(one.ranks), len(one.missing_ranks)
    checks = (
        (_HASH.fullmatch(one.hash) is None, "its hash is none"),
        (
            bool(one.secondary_hash) and _SECONDARY.fullmatch(one.secondary_hash) is None,
            "its second hash is none",
        ),
        (not 0 < one.size <= MAX_RANKS, f"its size is {one.size}"),
        (
            any(not 0 <= rank < one.size for rank in ranks),
            f"it has a rank outside of its {one.size}",
        ),
        (len(set(ranks)) != len(ranks), "it has a rank twice"),
        (
            one.ranks_count not in (None, listed),
            f"it counts {one.ranks_count} ranks, and lists {listed}",
        ),
        (
            one.missing_ranks_count not in (None, missing),
            f"it counts {one.missing_ranks_count} missing ranks, and lists {missing}",
        ),
        (
            any(len(rank.collective_counts) > MAX_KINDS for rank in one.ranks),
            "it has more kinds of ops than there are",
        ),
    )
    return next((reason for wrong, reason in checks if wrong), "")


def _communicator(one: _Communicator) -> wire.RasCommunicator:
    ranks = (
        wire.RasRank(
            rank.rank,
            _host(rank.host),
            max(0, rank.pid),
            rank.cuda_dev,
            rank.nvml_dev,
            rank.status.init_state,
            rank.status.async_error,
            rank.status.finalize_called,
            rank.status.destroy_flag,
            rank.status.abort_flag,
            tuple((printable(kind), count) for kind, count in rank.collective_counts.items()),
        )
        for rank in sorted(one.ranks, key=lambda rank: rank.rank)
    )
    missing = (
        wire.RasMissingRank(
            rank.rank,
            _host(rank.host),
            max(0, rank.pid),
            rank.cuda_dev,
            rank.nvml_dev,
            rank.status.unresponsive,
            rank.status.considered_dead,
        )
        for rank in sorted(one.missing_ranks, key=lambda rank: rank.rank)
    )
    return wire.RasCommunicator(
        one.hash, one.secondary_hash, one.size, tuple(ranks), tuple(missing)
    )


def _host(text: str) -> str:
    return "" if text == "unknown" else printable(text)


def printable(text: str) -> str:
    """Text of an answer without anything that controls terminals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _shortened(notes: list[str]) -> tuple[str, ...]:
    more = len(notes) - MAX_NOTES
    return tuple(notes) if more <= 0 else (*notes[:MAX_NOTES], f"and {more} more like these")
