"""Where black boxes of unprepared jobs are, for which nobody named a folder; room for boxes.

The folder belongs to the user, never to the job. It holds a bounded number and size of boxes, as
does a folder that the user named, of boxes of runs that ended well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

BOXES: Final = "FRTOP_BOXES"
"""Environment variable that names another folder; 0 turns such boxes off."""
MAX_BOXES: Final = 32
MAX_BYTES: Final = 256 << 20
"""Most bytes of all boxes; beyond that the oldest are removed. Boxes of eight ranks take 300 KB."""


def box_folder(environment: Mapping[str, str] = os.environ) -> str:
    named = environment.get(BOXES, "")
    if named:
        return "" if named == "0" else named
    return state_folder(environment)


def state_folder(environment: Mapping[str, str] = os.environ) -> str:
    """The user's folder for state; "" if there is no home."""
    state = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # noqa: PTH117 - it may be empty
        home = environment.get("HOME", "")
        if not os.path.isabs(home):  # noqa: PTH117 - as above
            return ""
        state = f"{home}/.local/state"
    return f"{state}/frtop"


def make_room(folder: Path, pattern: str, *, keep: Path) -> None:
    """Creates the folder, and removes the oldest boxes of this pattern if there are too many.

    Raises:
        OSError: it cannot be created or listed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if fnmatchcase(entry.name, pattern) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):  # removed by another agent
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
    others = sorted((one for one in found if one[2] != keep), reverse=True)
    size = 0
    for count, (_, own, path) in enumerate(others, start=1):
        size += own
        if count >= MAX_BOXES or size > MAX_BYTES:
            with suppress(OSError):
                path.unlink()
