"""What lies in the folders that a person names: files by kind, told by their content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe import archive
from frtop_tui.export import blackbox, capture, pyspy
from frtop_tui.export.flightrecorder import gathering, reading
from frtop_tui.export.flightrecorder.naming import RankPattern

SUFFIXES: Final = (".cap", blackbox.SUFFIX)
MOST_FILES: Final = 16_384


@dataclass(slots=True)
class Files:
    """Paths by kind; `troubles` are sentences about those that are none, or cannot be read."""

    captures: list[Path] = field(default_factory=list)
    boxes: list[Path] = field(default_factory=list)
    dumps: list[Path] = field(default_factory=list)
    stacks: list[Path] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def files_in(paths: Sequence[Path], pattern: RankPattern | None = None) -> Files:
    """The files themselves, and of folders those that are called as ours, also one deeper.

    With a `pattern` dumps are those that are called as it says.
    """
    files = Files()
    found = _found(paths, pattern)
    if len(found) > MOST_FILES:
        files.troubles.append(f"{len(found) - MOST_FILES} more files are left out")
    for path in found[:MOST_FILES]:
        try:
            _put(files, path)
        except OSError as error:
            files.troubles.append(f"{path} cannot be read: {error.strerror}")
    return files


def is_folder(path: Path) -> bool:
    """As `Path.is_dir()`, which raises where a folder is shut or a name is too long."""
    return os.path.isdir(path)  # noqa: PTH112


def _found(paths: Iterable[Path], pattern: RankPattern | None) -> list[Path]:
    """Each once, also what is reached by a link as well; not all of it can be read."""
    found: dict[str, Path] = {}
    for path in paths:
        ours = [path]
        if is_folder(path):
            inside = (p for wild in ("*", "*/*") for p in path.glob(wild))
            files = [p for p in inside if _is_ours(p, pattern) and not is_folder(p)]
            ours = sorted(files, key=lambda p: (len(p.parts), p))
        for one in ours:
            found.setdefault(os.path.realpath(one), one)
    return list(found.values())


def _is_ours(path: Path, pattern: RankPattern | None) -> bool:
    if path.name.endswith((*SUFFIXES, pyspy.SUFFIX)):
        return True
    return gathering.is_usual(path) if pattern is None else pattern.number(path) is not None


def _put(files: Files, path: Path) -> None:
    """Puts a file where it belongs. Raises OSError when it cannot be read."""
    kind = archive.kind_of(path)
    if kind == capture.KIND:
        files.captures.append(path)
    elif kind == blackbox.KIND:
        files.boxes.append(path)
    elif not kind and path.suffix not in SUFFIXES and pyspy.is_pyspy(path):
        files.stacks.append(path)
    elif not kind and path.suffix not in SUFFIXES and reading.looks_like(path):
        files.dumps.append(path)
    else:
        files.troubles.append(
            f"{path} is neither a capture nor a black box, nor a dump that is known"
        )
