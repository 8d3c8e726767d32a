"""Dumps of one job, from the files of a folder to a frame."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from frtop_tui.errors import Unreadable
from frtop_tui.export.flightrecorder.entries import Dump, dump_of
from frtop_tui.export.flightrecorder.jobstate import frame_of
from frtop_tui.export.flightrecorder.naming import HOW, Claim, named, ranks_of
from frtop_tui.export.flightrecorder.reading import values_of
from frtop_tui.job.model import Frame
from frtop_tui.job.naming import listed

KEPT: Final = 16_384
"""Entries that are looked at closely, of all dumps together."""
FEWEST: Final = 48
MOST: Final = 2048
_USUAL: Final = re.compile(r"(?:trace|dump|rank|fr)[\w.@-]*\d(?:\.json|\.pkl|\.pickle)?$")
_OTHERS: Final = (".pyspy.json",)


def is_usual(path: Path) -> bool:
    """Whether a file in a folder is called as dumps are; any file may be named by itself."""
    return _USUAL.search(path.name) is not None and not path.name.endswith(_OTHERS)


def gathered(paths: Sequence[Path], troubles: list[str]) -> Frame:
    """The job that these dumps tell of; what cannot be read is added to `troubles`.

    Raises:
        Unreadable: none of them can be read.
    """
    keep = max(FEWEST, min(MOST, KEPT // max(1, len(paths))))
    before = len(troubles)
    dumps: list[Dump] = []
    with _no_collection():
        for path in paths:
            try:
                dumps.append(dump_of(path, values_of(path, keep), keep))
            except Unreadable as error:
                troubles.append(error.text)
        if not dumps:
            raise Unreadable(listed(troubles[before:]), "look at another folder")
        claims = [Claim(dump.path, named(dump.path), dump.possible) for dump in dumps]
        ranks, notes = ranks_of(claims)
        mine = [
            (rank, claim.name.host, dump, _written(dump.path))
            for rank, claim, dump in zip(ranks, claims, dumps, strict=True)
            if rank is not None
        ]
        if not mine:
            raise Unreadable(listed([*troubles[before:], *notes]), HOW)
        folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
        return frame_of(folder, mine, notes)


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
