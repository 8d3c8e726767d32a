"""The folder of the watcher's captures. It is bounded: the oldest captures are removed.

Only files with a name given by the watcher are removed, and none of an episode that lasts.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch.job_file import captures_of_open_episodes
from frtop_tui.files.output_path import default_name, unused_path

DRAFT_S: Final = 600.0
"""A draft this old was left by a watcher that was killed."""
_OURS: Final = re.compile(r"frtop-.*-\d{8}-\d{6}(-\d+)?\.cap")
_DRAFT: Final = re.compile(rf"\.{_OURS.pattern}\.[0-9a-f]{{8}}")


class Removed(NamedTuple):
    """What was removed, and why removing failed, if it did."""

    paths: tuple[str, ...] = ()
    problem: str = ""


class CaptureFolder:
    """Used from the watcher's thread only; other watchers may use the same folder."""

    def __init__(self, path: Path, state: Path, *, most: int, most_bytes: int) -> None:
        """Args: state: folder of the job files, which name the captures of open episodes."""
        self._path = path
        self._state = state
        self._most = most
        self._most_bytes = most_bytes

    def new_path(self, frame: Frame) -> Path:
        """An unused path for the next capture."""
        return unused_path(self._path / default_name(frame, frame.wall_ns, day=True))

    def make_room(self, keep: Collection[str] = ()) -> Removed:
        """Removes the oldest captures if there are too many, or if they are too large together.

        `keep`: paths to keep besides those of open episodes.
        """
        removed = []
        try:
            found = self._found()
            count, size = len(found), sum(one[1] for one in found)
            if count <= self._most and size <= self._most_bytes:
                return Removed()
            needed = {*keep, *captures_of_open_episodes(self._state)}
            for _, own, path in sorted(found):
                if count <= self._most and size <= self._most_bytes:
                    break
                if path not in needed:
                    os.unlink(path)  # noqa: PTH108 - no Path needed
                    removed.append(path)
                    count, size = count - 1, size - own
        except OSError as error:
            problem = f"surplus captures remain in {self._path}: {error.strerror}"
            return Removed(tuple(removed), problem)
        return Removed(tuple(removed))

    def _found(self) -> list[tuple[int, int, str]]:
        """Time, size and path of each capture; removes old drafts."""
        found = []
        now_s = time.time()
        with os.scandir(self._path) as entries:
            for entry in entries:
                is_ours, is_draft = _OURS.fullmatch(entry.name), _DRAFT.fullmatch(entry.name)
                if not (is_ours or is_draft) or not entry.is_file(follow_symlinks=False):
                    continue
                with suppress(FileNotFoundError):  # removed by another watcher
                    status = entry.stat(follow_symlinks=False)
                    if is_ours:
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
                    elif now_s - status.st_mtime > DRAFT_S:
                        os.unlink(entry.path)  # noqa: PTH108 - no Path needed
        return found
