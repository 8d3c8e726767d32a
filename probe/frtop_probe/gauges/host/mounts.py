"""The mounts that a process sees, from /proc/PID/mountinfo, which accesses no file system."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MOST: Final = 4096
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo.

    Attributes:
        device: major and minor number, such as `8:1`.
        root: the mounted part of the file system.
        folder: where it is mounted.
        kind: type of the file system, such as `nfs4`.
        source: where the file system comes from, such as `filer:/data`.
        options: options of the file system itself, separated by commas.
    """

    device: str
    root: str
    folder: str
    kind: str
    source: str
    options: str = ""


def parse_mounts(text: str) -> list[Mount]:
    """Returns all complete lines; see proc(5): optional fields end with a hyphen."""
    found = []
    for line in text.splitlines()[:MOST]:
        before, hyphen, after = line.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if hyphen and len(first) >= 6 and len(last) >= 2:
            options = last[2] if len(last) > 2 else ""
            found.append(
                Mount(first[2], _unescaped(first[3]), _unescaped(first[4]), last[0],
                      _unescaped(last[1]), options)
            )  # fmt: skip
    return found


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Returns a path's mount; of several at one place the last one, which hides the others."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.folder or path.startswith(mount.folder.rstrip("/") + "/")
        if inside and (best is None or len(mount.folder) >= len(best.folder)):
            best = mount
    return best


def _unescaped(text: str) -> str:
    """Decodes blanks, tabs, newlines and backslashes, which appear as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8) & 0xFF), text)
