"""The dumps of one job, from files to a frame."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.flightrecorder.dump import Dump, parse_dump
from frtop_tui.files.flightrecorder.dump_file import read_dumps
from frtop_tui.files.flightrecorder.file_names import (
    HOW_TO_NAME,
    Claim,
    FileName,
    RankPattern,
    assign_ranks,
    parse_name,
)
from frtop_tui.files.flightrecorder.jobstate import frame_of
from frtop_tui.files.flightrecorder.rank_dumps import RankDump, op_ids
from frtop_tui.files.stacks import Stacks
from frtop_tui.job.naming import listed

MAX_ENTRIES_READ: Final = 16_384
"""Entries to read closely in all files together; in each page of many dumps, for each dump."""
MIN_PER_DUMP: Final = 48
MAX_PER_DUMP: Final = 2048
_NEXT: Final = "copy the file again from where it was written, or open another one"


@dataclass(frozen=True, slots=True)
class _File:
    """One dump, what the name of its file and the page say of its rank, and the file's time."""

    dump: Dump
    name: FileName
    rank: int | None
    written_ns: int


def load_job(
    paths: Sequence[Path],
    problems: list[str],
    stacks: Stacks | None = None,
    pattern: RankPattern | None = None,
) -> Frame:
    """The job whose dumps these files hold, judged.

    Args:
        paths: dump files of one job.
        problems: gets a sentence for each file that cannot be read.
        stacks: py-spy's stacks of the same ranks.
        pattern: how the files are named for their ranks.

    Raises:
        Unreadable: no file can be read, or no rank is known.
    """
    keep = max(MIN_PER_DUMP, min(MAX_PER_DUMP, MAX_ENTRIES_READ // max(1, len(paths))))
    before = len(problems)
    found: list[_File] = []
    with _garbage_collection_off():
        for path in paths:
            try:
                found += _read(path, keep, pattern, problems)
            except Unreadable as error:
                problems.append(error.text)
        if not found:
            raise Unreadable(listed(problems[before:]), _NEXT)
        ranks, notes = assign_ranks(_claims(found))
        dumps = [
            RankDump(rank, one.name.host, one.dump, one.written_ns)
            for rank, one in zip(ranks, found, strict=True)
            if rank is not None
        ]
        if not dumps:
            raise Unreadable(listed([*problems[before:], *notes]), HOW_TO_NAME)
        folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
        return frame_of(folder, dumps, notes, stacks)


def _read(
    path: Path, keep: int, pattern: RankPattern | None, problems: list[str]
) -> Iterator[_File]:
    name, written = parse_name(path, pattern), _written_ns(path)
    for raw in read_dumps(path, keep):
        if raw.problem:
            problems.append(f"{path}: rank {raw.rank}: {raw.problem}")
            continue
        mine = name if raw.rank is None else FileName(raw.rank, raw.host)
        try:
            dump = parse_dump(path, raw.values, keep)
        except Unreadable as error:
            whose = "" if raw.rank is None else f" (rank {raw.rank})"
            problems.append(f"{error.text}{whose}")
            continue
        yield _File(dump, mine, raw.rank, written)


def _claims(found: Sequence[_File]) -> list[Claim]:
    """The claims of dumps to ranks; if names claim the same rank, with the ids of their ops."""
    numbers = Counter(one.name.number for one in found)
    claims = []
    for one in found:
        claim = Claim(one.dump.path, one.name, one.dump.possible_ranks, page_rank=one.rank)
        if numbers[one.name.number] > 1:
            claim = replace(claim, op_ids=op_ids(one.dump))
        claims.append(claim)
    return claims


def _written_ns(path: Path) -> int:
    """When the file was last changed: by the dump, or later by a copy. 0 for unknown."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Unpacked values are no garbage; searching them for some doubles the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
