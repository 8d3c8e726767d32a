"""Where files go when nobody says: here, else where temporary files go; never over another."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import job_title

MOST_NAME: Final = 40
TRIES: Final = 100
Result = TypeVar("Result")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def default_path(frame: Frame, wall_ns: int) -> Path:
    """`frtop-<job>-<HHMM>.cap` in the current folder, or `-2` and so on if it is taken.

    A folder that cannot be written is passed over for that of temporary files.
    """
    folder = Path.cwd() if os.access(".", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    title = job_title(frame.job).rpartition("/")[2] if frame.job is not None else "job"
    name = _STRANGE.sub("-", title).strip("-.")[:MOST_NAME] or "job"
    clock = time.strftime("%H%M", time.localtime(wall_ns / 1e9))
    return unused(folder / f"frtop-{name}-{clock}.cap")


def unused(path: Path) -> Path:
    """`path`, or with `-2`, `-3`, ... before its suffix if there is such a file already.

    A link to nowhere is one, too: others may leave it in a folder for temporary files.
    """
    found, count = path, 1
    while os.path.lexists(found):
        count += 1
        found = path.with_stem(f"{path.stem}-{count}")
    return found


def placed(path: Path, put: Callable[[Path], Result]) -> tuple[Path, Result]:
    """What `put` gives for `path`, and where: beside it if somebody was there first.

    Two screens in one folder find the same hang in the same minute, and the same name.

    Raises:
        OSError: what `put` raises.
    """
    for _ in range(TRIES):
        try:
            return path, put(path)
        except FileExistsError:
            path = unused(path)
    return path, put(path)
