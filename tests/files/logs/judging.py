"""Logs of faults that were made on purpose, and whether a verdict on one is right."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.loader import open_paths

INDEX: Final = "made.json"
"""What is known of the logs, beside their folders."""
Judged = Literal["right", "undecided", "wrong"]


@dataclass(frozen=True)
class Made:
    """What is known of a job whose log lies in a folder called `name`.

    `guilty` had the fault. The ranks `also` may be named too: an op differs from that of another.
    """

    name: str
    fault: str
    way: str
    world: int
    guilty: Sequence[int]
    also: Sequence[int]


def frame_of(folder: Path) -> Frame | None:
    """The frame of all files in a folder; None if they say nothing."""
    try:
        return open_paths(sorted(path for path in folder.rglob("*") if path.is_file()))
    except Unreadable:
        return None


def named(frame: Frame | None) -> set[int]:
    """The ranks that its verdicts blame."""
    return {rank for one in frame.verdicts for rank in one.culprits} if frame is not None else set()


def judged(made: Made, frame: Frame | None) -> Judged:
    """Right is a verdict that names the rank, or that sets it apart from the others."""
    ranks, guilty = named(frame), {*made.guilty}
    if ranks - guilty - {*made.also}:
        return "wrong"
    parties = [{*party} for one in frame.verdicts for party in one.parties] if frame else []
    apart = bool(made.also) and guilty in parties
    return "right" if not guilty or ranks & guilty or apart else "undecided"


def pack(folder: Path, all_made: Sequence[Made], into: Path) -> None:
    """Writes logs and their index into one archive, the same for the same files."""
    (folder / INDEX).write_text(json.dumps([asdict(one) for one in all_made], indent=1) + "\n")
    names = [INDEX, *sorted(made.name for made in all_made)]
    with tarfile.open(into, "w:xz", preset=9) as archive:
        for name in names:
            archive.add(folder / name, name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(member.mtime)
    return member


def unpack(archive: Path, folder: Path) -> list[Made]:
    """Returns what is known of the logs, which then lie in `folder`."""
    with tarfile.open(archive) as packed:
        for member in packed:
            if (file := packed.extractfile(member)) is not None:
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read())
                os.utime(path, (member.mtime, member.mtime))  # years of times come from there
    return [Made(**one) for one in json.loads((folder / INDEX).read_text())]
