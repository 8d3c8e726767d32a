"""Paths for files that the user names in a line, or does not name; never replaces a file."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from msgspec import structs

from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.redaction import redacted
from frtop_tui.job.naming import job_title

MAX_NAME: Final = 40
MAX_TRIES: Final = 100
Result = TypeVar("Result")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def expanded(text: str) -> Path:
    """The path that a user wrote; one of an unknown user, `~nobody/x`, stays as it is.

    No path has a NUL.
    """
    return Path(os.path.expanduser(text.replace("\0", "")))  # noqa: PTH111 - Path's raises


def default_path(
    frame: Frame,
    wall_ns: int,
    suffix: str = ".cap",
    *,
    redact: bool = False,
    folder: Path | None = None,
) -> Path:
    """An unused path `frtop-<job>-<HHMM><suffix>` in the folder, or in the current one.

    If that is not writable, it is in the folder for temporary files. With `redact`, it contains the
    job's name only if redaction keeps it.
    """
    if redact:
        frame = redacted(structs.replace(frame, ranks={}, groups=(), verdicts=(), trace=None))
    folder = Path.cwd() if folder is None else folder
    if not os.access(folder, os.W_OK | os.X_OK):
        folder = Path(tempfile.gettempdir())
    return unused_path(folder / default_name(frame, wall_ns, suffix))


def default_name(frame: Frame, wall_ns: int, suffix: str = ".cap", *, day: bool = False) -> str:
    """`frtop-<job>-<HHMM><suffix>`; with `day`, it contains the date, and the time is exact."""
    form = "%Y%m%d-%H%M%S" if day else "%H%M"
    clock = time.strftime(form, time.localtime(wall_ns / 1e9))
    return f"frtop-{name_of_job(frame)}-{clock}{suffix}"


def name_of_job(frame: Frame) -> str:
    """The job's name as part of a path: it comes from another machine, and chooses no folder."""
    title = job_title(frame.job).rpartition("/")[2] if frame.job is not None else ""
    return _STRANGE.sub("-", title).strip("-.")[:MAX_NAME] or "job"


def unused_path(path: Path) -> Path:
    """`path`, or if it exists the first unused one with `-2`, `-3`, ... before its suffix.

    A dangling link counts as existing: others may put one into a folder for temporary files.
    """
    found, count = path, 1
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    while os.path.lexists(found):
        count += 1
        found = path.with_name(f"{path.name.removesuffix(suffix)}-{count}{suffix}")
    return found


def write_unused(path: Path, write: Callable[[Path], Result]) -> tuple[Path, Result]:
    """Calls `write` with `path`, or with other paths as long as it finds an existing file.

    Two screens in one folder may capture the same hang in the same minute.

    Returns:
        The written path, and what `write` returned.

    Raises:
        OSError: as `write` raises it.
    """
    for _ in range(MAX_TRIES):
        try:
            return path, write(path)
        except FileExistsError:
            path = unused_path(path)
    return path, write(path)
