"""A report as one document: sections of blocks, made once from facts, drawn by every writer.

`incident` makes it, `html_page` and `markdown` write it; `aligned` writes a table for terminals.
All texts are printable, but not trusted: writers escape them for their syntax.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_tui.diagnosis.model import Trace
from frtop_tui.job.model import RankState
from frtop_tui.job.naming import printable
from frtop_tui.text.verdict import VerdictText

WORDS: Final = frozenset(
    {"line", "kinds", "op", "group", "last to arrive", "check", "limit", "result", ""}
)
"""Titles of columns of words in tables of statistics; the others are figures."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.lines)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells below their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank; `doing` is what it is in, or how it ended; "" if unknown."""

    rank: int
    state: RankState
    host: str
    pid: str
    step: str
    since: str
    doing: str
    blamed: bool


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks: by their states, and one by one."""

    by_state: tuple[tuple[RankState, str], ...]
    rows: tuple[RankRow, ...]

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True, slots=True)
class StackBranch:
    """Ranks with the same frames so far; `frames` are (text, is user code)."""

    depth: int
    ranks: str
    frames: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class StackBranches:
    """Merged stacks as a tree, each branch after its parent; `age` is that of the oldest."""

    age: str
    branches: tuple[StackBranch, ...]

    def __bool__(self) -> bool:
        return bool(self.branches)


@dataclass(frozen=True, slots=True)
class Waits:
    """Who waits for whom; `lines` explain how frtop found that."""

    trace: Trace
    lines: tuple[str, ...]


Block = Items | Table | Ranks | StackBranches | Waits


@dataclass(frozen=True, slots=True)
class Document:
    """`title` is short, `summary` one sentence, `origin` says where and when it was seen."""

    title: str
    summary: str
    origin: tuple[str, ...]
    verdicts: tuple[VerdictText, ...]
    no_verdict: str
    sections: tuple[tuple[str, tuple[Block, ...]], ...]


def items(lines: Iterable[str]) -> Items:
    """A list of these sentences, made printable."""
    return Items(tuple(map(printable, lines)))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of these cells, made printable."""
    return Table(tuple(columns), tuple(tuple(map(printable, row)) for row in rows))


def section(title: str, *blocks: Block | None) -> tuple[str, tuple[Block, ...]]:
    """A section, without its empty blocks."""
    return title, tuple(block for block in blocks if block)


def aligned(rows: Sequence[Sequence[str]], words: Collection[str] = WORDS) -> list[str]:
    """A table as lines for a terminal; its first row contains the column titles.

    Columns of `words` are aligned left, columns of figures right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = [title in words for title in rows[0]]
    return [
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(cells, widths, left, strict=True)
        ).rstrip()
        for cells in rows
    ]
