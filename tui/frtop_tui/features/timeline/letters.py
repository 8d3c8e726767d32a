"""One letter for each kind of op and phase: lanes are read without colours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_KINDS: Final = (
    ("all_reduce", "A"),
    ("allreduce", "A"),
    ("all_gather", "G"),
    ("allgather", "G"),
    ("reduce_scatter", "S"),
    ("all_to_all", "T"),
    ("alltoall", "T"),
    ("broadcast", "B"),
    ("reduce", "R"),
    ("gather", "C"),
    ("scatter", "D"),
    ("barrier", "Y"),
    ("monitored_barrier", "Y"),
    ("isend", ">"),
    ("send", ">"),
    ("irecv", "<"),
    ("recv", "<"),
    ("new_group", "N"),
)
"""A kind gets the letter of the first name that it contains: `all_gather_into_tensor` is a G."""
NAMES: Final = {
    "A": "all_reduce",
    "G": "all_gather",
    "S": "reduce_scatter",
    "T": "all_to_all",
    "B": "broadcast",
    "R": "reduce",
    "C": "gather",
    "D": "scatter",
    "Y": "barrier",
    ">": "send",
    "<": "recv",
    "N": "new_group",
    "X": "other op",
    "?": "unknown op",
    "d": "data",
    "f": "forward",
    "b": "backward",
    "o": "optimizer",
    "▒": "waits for others",
    "~": "ended in here",
    "·": "not recorded",
    "!": "in no op, and others wait for it",
    "†": "its process ended",
    "│": "step",
    "*": "note",
}
"""What each letter means, in the order of the legend."""
WAITS: Final = "▒"
ENDED_WITHIN: Final = "~"
UNKNOWN: Final = "·"
STALLED: Final = "!"
ENDED: Final = "†"
STEP: Final = "│"
NOTE: Final = "*"
PHASES: Final = {"fetch": "d", "forward": "f", "backward": "b", "optimizer": "o"}


@lru_cache(maxsize=512)
def letter_of(kind: str) -> str:
    if not kind:
        return "?"
    return next((letter for word, letter in _KINDS if word in kind), "X")


def legend(letters: Iterable[str]) -> list[tuple[str, str]]:
    """Letter and name of those on the screen, in a fixed order."""
    shown = set(letters)
    return [(letter, name) for letter, name in NAMES.items() if letter in shown]
