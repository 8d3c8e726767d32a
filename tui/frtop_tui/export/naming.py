"""Where files go when nobody says: here, else where temporary files go; never over another."""

from __future__ import annotations

import os
import re
import tempfile
import time
from pathlib import Path
from typing import Final

from frtop_tui.job.model import Frame
from frtop_tui.job.naming import job_title

MOST_NAME: Final = 40
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
    """`path`, or with `-2`, `-3`, ... before its suffix if there is such a file already."""
    found, count = path, 1
    while found.exists():
        count += 1
        found = path.with_stem(f"{path.stem}-{count}")
    return found
