"""Dumps of one job, from the files of a folder to a frame."""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.export.flightrecorder.entries import Dump, dump_of
from frtop_tui.export.flightrecorder.jobstate import frame_of
from frtop_tui.export.flightrecorder.moments import Told, signs_of
from frtop_tui.export.flightrecorder.naming import HOW, Claim, Named, RankPattern, named, ranks_of
from frtop_tui.export.flightrecorder.reading import parts_in
from frtop_tui.export.stacks import Stacks
from frtop_tui.job.naming import listed

KEPT: Final = 16_384
"""Entries that are looked at closely, in all files together; of one with many dumps, in each."""
_NEXT: Final = "copy the file again from where it was written, or look at another one"
FEWEST: Final = 48
MOST: Final = 2048
_USUAL: Final = re.compile(
    r"(?:(?:trace|dump|rank|fr)[\w.@:-]*\d(?:\.json|\.pkl|\.pickle)?|fr_trace[\w.@-]*\.(?:html|json))$"
)


@dataclass(frozen=True, slots=True)
class _Read:
    """One dump, what the file's name and the page say of whose it is, and when it was written."""

    dump: Dump
    name: Named
    rank: int | None
    written_ns: int


def is_usual(path: Path) -> bool:
    """Whether a file in a folder is called as dumps are; any file may be named by itself."""
    return _USUAL.search(path.name) is not None


def gathered(
    paths: Sequence[Path],
    troubles: list[str],
    stacks: Stacks | None = None,
    pattern: RankPattern | None = None,
) -> Frame:
    """The job that these dumps tell of; what cannot be read is added to `troubles`.

    Raises:
        Unreadable: none of them can be read.
    """
    keep = max(FEWEST, min(MOST, KEPT // max(1, len(paths))))
    before = len(troubles)
    found: list[_Read] = []
    with _no_collection():
        for path in paths:
            try:
                found += _read(path, keep, pattern, troubles)
            except Unreadable as error:
                troubles.append(error.text)
        if not found:
            raise Unreadable(listed(troubles[before:]), _NEXT)
        ranks, notes = ranks_of(_claims(found))
        dumps = [
            Told(rank, one.name.host, one.dump, one.written_ns)
            for rank, one in zip(ranks, found, strict=True)
            if rank is not None
        ]
        if not dumps:
            raise Unreadable(listed([*troubles[before:], *notes]), HOW)
        folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
        return frame_of(folder, dumps, notes, stacks)


def _read(
    path: Path, keep: int, pattern: RankPattern | None, troubles: list[str]
) -> Iterator[_Read]:
    name, written = named(path, pattern), _written(path)
    for part in parts_in(path, keep):
        if part.problem:
            troubles.append(f"{path}: rank {part.rank}: {part.problem}")
            continue
        mine = name if part.rank is None else Named(part.rank, part.host)
        try:
            dump = dump_of(path, part.values, keep)
        except Unreadable as error:
            whose = "" if part.rank is None else f" (rank {part.rank})"
            troubles.append(f"{error.text}{whose}")
            continue
        yield _Read(dump, mine, part.rank, written)


def _claims(found: Sequence[_Read]) -> list[Claim]:
    """Looks into dumps whose names claim the same rank: is it the same process?"""
    numbers = Counter(one.name.number for one in found)
    claims = []
    for one in found:
        claim = Claim(one.dump.path, one.name, one.dump.possible, told=one.rank)
        if numbers[one.name.number] > 1:
            claim = replace(claim, signs=signs_of(one.dump))
        claims.append(claim)
    return claims


def _written(path: Path) -> int:
    """When the file was last changed: no earlier than the dump, but perhaps by a copy."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of what is unpacked is garbage, and searching it for some doubles the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
