"""Lines of spans: screens draw them, terminals and files get their text.

A span is text and the name of its tone; `tones.tcss` has the style of each tone. Lines are
hashable: they are cached by content, and compared between frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

Span = tuple[str, str]
Line = tuple[Span, ...]

TONES: Final = (
    "alarm",  # white on red: seen from across the room
    "bad",
    "blocked",
    "cursor",
    "dead",
    "dim",
    "done",
    "good",
    "heat0",  # backgrounds of ranks in the grid: as the others
    "heat1",
    "heat2",
    "heat3",
    "heat4",  # by far the most
    "key",
    "late",
    "line",  # background of the cursor's line
    "mark",
    "moving",
    "silent",
    "starting",
    "stopped",
    "strong",
    "unreachable",
    "unknown",
    "waits",  # background of ranks that wait for others
    "warn",
    "yours",
)


FILLED: Final = ("alarm", "cursor", "heat0", "heat1", "heat2", "heat3", "heat4", "waits")
"""Tones with a background of their own, also on the cursor's line."""


class WordLine(NamedTuple):
    """A sentence: its subject, its text, its tone, and its ranks.

    `ranks` are folded, at the end of the line, and cut to fit it.
    """

    subject: str
    text: str
    tone: str = ""
    ranks: str = ""


def labelled(words: Iterable[WordLine], room: int, indent: str = "") -> list[str]:
    """Sentences for a terminal, each after its subject, which gets `room` columns."""
    return [f"{indent}{one.subject:<{room}}  {one.text}" for one in words]


def plain(text: str, tone: str = "") -> Line:
    """A line with one tone."""
    return ((text, tone),)


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def join(parts: Iterable[Line], between: str = " · ", tone: str = "dim") -> Line:
    """The parts in one line with a separator, without empty parts."""
    spans: list[Span] = []
    for part in parts:
        if not text_of(part):
            continue
        if spans:
            spans.append((between, tone))
        spans.extend(part)
    return tuple(spans)
