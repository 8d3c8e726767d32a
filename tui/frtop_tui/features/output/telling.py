"""What the output of a verdict's ranks says of it, in lines for people. Pure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice
from pathlib import PurePath
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.logs.facts import LogFacts, RankLines
from frtop_tui.files.logs.patterns import WORDS
from frtop_tui.files.logs.reader import Reader
from frtop_tui.files.logs.scan import WATCHER, searched
from frtop_tui.job.naming import printable
from frtop_tui.job.units import duration

MOST_RANKS: Final = 4
"""Ranks whose output is read for a verdict: mostly all ranks of a host write to one file."""
MOST_LINES: Final = 6
_OF_ONE_KIND: Final = 2
_LONGEST: Final = 200
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_Line = tuple[int, str]
"""Number and text."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that some of the ranks write to, as it was last read."""

    name: str
    file: wire.OutputFile


def ranks_to_read(frame: Frame) -> tuple[int, ...]:
    """The ranks that verdicts name, the culprits first; none for a job that is only slow."""
    verdicts = [one for one in frame.verdicts if one.kind != "slow"]
    culprits = [rank for one in verdicts for rank in one.first_ranks]
    victims = [min(one.victims) for one in verdicts if one.victims]
    # Of the ranks that wait, one says why the job ended if they have a file of their own.
    known = [rank for rank in dict.fromkeys((*culprits, *victims)) if rank in frame.ranks]
    return (*known[: MOST_RANKS - 1], *known[-1:]) if len(known) > MOST_RANKS else tuple(known)


def telling_lines(frame: Frame) -> list[str]:
    """Lines that say how a rank waits or ended, then the last line of each file."""
    ranks = ranks_to_read(frame)
    files = list(_files(frame, ranks))
    year = datetime.fromtimestamp(frame.wall_ns / 1e9).astimezone().year
    found = chain.from_iterable(
        _of_facts(one.name, facts_in(one.file.text, year), ranks) for one in files
    )
    said = list(islice(dict.fromkeys(found), MOST_LINES))
    return [*said, *(line for one in files if (line := _last_line(one, said)))]


def lines_of(text: str) -> list[str]:
    """The lines of a file as a terminal would leave them: a progress bar as it was last drawn."""
    lines = _COLOURS.sub("", text).split("\n")
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in lines]


@lru_cache(maxsize=32)
def facts_in(text: str, year: int) -> LogFacts:
    """What the reader of logs finds in the end of a file."""
    reader = Reader(year)
    reader.begin("", None)
    said = io.BytesIO(text.encode("utf-8", "replace"))
    for line in searched(said, WORDS, reader.wants_all):
        reader.take(line)
    return reader.finish()


def telling_numbers(text: str, year: int) -> frozenset[int]:
    """Which lines of a text those are, from 1."""
    return frozenset(number for number, _ in _all_lines(facts_in(text, year)))


def _files(frame: Frame, ranks: tuple[int, ...]) -> Iterator[ReadFile]:
    """The files with text, each once, those of culprits first; hosts may share a file system."""
    seen: set[tuple[str, str]] = set()
    for view in (frame.ranks[rank] for rank in ranks):
        for file in view.output.files if view.output is not None else ():
            names = {(view.host, file.path), (file.text, file.path)}
            if file.text and not names & seen:
                seen |= names
                yield ReadFile(printable(PurePath(file.path).name), file)


def _of_facts(name: str, facts: LogFacts, ranks: tuple[int, ...]) -> Iterator[str]:
    """What named ranks said first; then what concerns all, and what others said."""
    named = [facts.ranks[rank] for rank in ranks if rank in facts.ranks]
    others = [said for rank, said in sorted(facts.ranks.items()) if rank not in ranks]
    lines = chain(
        chain.from_iterable(islice(_of_rank(said), 2 * _OF_ONE_KIND) for said in named),
        islice(_of_all(facts), 2 * _OF_ONE_KIND),
        islice(chain.from_iterable(map(_of_rank, others)), _OF_ONE_KIND),
    )
    for _, text in lines:
        yield f"{name}: {printable(text.strip())[:_LONGEST]}"


def _of_rank(said: RankLines) -> Iterator[_Line]:
    if said.thrown is not None:
        yield said.thrown.line[1:]
    yield from (one.line[1:] for one in said.given_up.values())


def _of_all(facts: LogFacts) -> Iterator[_Line]:
    """What is of no known rank, the newest of each kind."""
    yield from (one.line[1:] for one in facts.disagreements)
    yield from (one.line[1:] for one in facts.barriers)
    yield from (one.line[1:] for one in facts.unknown[-_OF_ONE_KIND:])
    yield from (line[1:] for line in facts.remarks[-_OF_ONE_KIND:])


def _all_lines(facts: LogFacts) -> Iterator[_Line]:
    for said in facts.ranks.values():
        yield from _of_rank(said)
    yield from _of_all(facts)


def _last_line(one: ReadFile, said: list[str]) -> str:
    """How long nobody had written to a file, and the last line there."""
    lines = lines_of(WATCHER.sub("", one.file.text))
    line = next((line for line in reversed(lines) if line.strip()), "")
    when = f"{one.name}: quiet for {duration(one.file.quiet_s)} when read"
    text = printable(line.strip())[:_LONGEST]
    return when if not text or f"{one.name}: {text}" in said else f"{when}: {text}"
