"""Finds the files that a user names, also in folders, and recognises their kind by content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe import archive
from frtop_tui.errors import Unreadable
from frtop_tui.files import blackbox, capture, nccl_ras, pyspy
from frtop_tui.files.flightrecorder.dump_file import may_be_dump
from frtop_tui.files.flightrecorder.file_names import RankPattern, is_dump_name
from frtop_tui.files.logs.job import LOG_SUFFIXES, PIPE
from frtop_tui.files.logs.scan import is_text
from frtop_tui.job.units import counted

_INSIDE: Final = ("*", "*/*", "attempt_*/*/*", "*/attempt_*/*/*")
"""Where files in a folder are looked for; the last two: under torchrun's --log-dir."""
SUFFIXES: Final = (".cap", blackbox.SUFFIX)
MAX_FILES: Final = 16_384


@dataclass(slots=True)
class Files:
    """Paths by kind. `problems` are sentences about unreadable and unrecognised files."""

    captures: list[Path] = field(default_factory=list)
    boxes: list[Path] = field(default_factory=list)
    dumps: list[Path] = field(default_factory=list)
    stacks: list[Path] = field(default_factory=list)
    answers: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)

    def refuse(self, error: Unreadable) -> None:
        """Notes a file that cannot be read, and what to do about it."""
        self.problems.append(error.text)
        self.next_steps.append(error.next_step)


def files_in(paths: Sequence[Path], pattern: RankPattern | None = None) -> Files:
    """Sorts files by kind; in folders, those with a usual name, one subfolder deep.

    Those of torchrun's --log-dir lie deeper, and are found as well.

    With a `pattern`, only matching names in folders are dumps.
    """
    files = Files()
    found = _find(paths, pattern)
    if len(found) > MAX_FILES:
        files.problems.append(f"{counted(len(found) - MAX_FILES, 'more file')} left out")
    for path in found[:MAX_FILES]:
        try:
            _add(files, path)
        except OSError as error:
            files.problems.append(f"{path} cannot be read: {error.strerror}")
    return files


def is_folder(path: Path) -> bool:
    """Like `Path.is_dir()`, which raises if a folder is inaccessible or a name is too long."""
    return os.path.isdir(path)  # noqa: PTH112


def _find(paths: Iterable[Path], pattern: RankPattern | None) -> list[Path]:
    """All candidates, each once even if links also lead to it."""
    found: dict[str, Path] = {}
    for path in paths:
        candidates = [path]
        if is_folder(path):
            inside = (p for wild in _INSIDE for p in path.glob(wild))
            files = [p for p in inside if _has_usual_name(p, pattern) and not is_folder(p)]
            candidates = sorted(files, key=lambda p: (len(p.parts), p))
        for one in candidates:
            found.setdefault("-" if one == PIPE else os.path.realpath(one), one)
    return list(found.values())


def _has_usual_name(path: Path, pattern: RankPattern | None) -> bool:
    if path.name.endswith((*SUFFIXES, *LOG_SUFFIXES, pyspy.SUFFIX)):
        return True
    if nccl_ras.has_usual_name(path):
        return True
    return is_dump_name(path) if pattern is None else pattern.number(path) is not None


def _add(files: Files, path: Path) -> None:
    """Adds a file under its kind. Raises OSError if it cannot be read."""
    if path == PIPE:
        files.logs.append(path)
        return
    kind = archive.kind_of(path)
    if kind == capture.KIND:
        files.captures.append(path)
    elif kind == blackbox.KIND:
        files.boxes.append(path)
    elif not kind and path.suffix not in SUFFIXES and pyspy.is_pyspy(path):
        files.stacks.append(path)
    elif not kind and path.suffix not in SUFFIXES and nccl_ras.is_answer(path):
        files.answers.append(path)
    elif not kind and path.name.endswith(LOG_SUFFIXES) and is_text(path):
        files.logs.append(path)
    elif not kind and path.suffix not in SUFFIXES and may_be_dump(path):
        files.dumps.append(path)
    elif not kind and path.suffix not in SUFFIXES and is_text(path):
        files.logs.append(path)
    else:
        files.problems.append(
            f"{path} is neither a capture nor a black box, Flight Recorder dump, py-spy stack"
            " dump, answer of NCCL's RAS or log"
        )
