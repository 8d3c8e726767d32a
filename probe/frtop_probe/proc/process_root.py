"""Opens files as a process sees them: in a container, the same path names another file.

This module follows links itself: the kernel, through /proc/PID/root, would resolve absolute links
from our root and open a file of the host.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_FILE: Final = 4 * 1024 * 1024
"""Most bytes of a source file; longer files are not read."""
_MAX_LINKS: Final = 40
_MAX_PARTS: Final = 512
_STEP: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ProcessRoot:
    """The files that a process sees.

    Attributes:
        view: equal for processes that see the same files; "" for what we see ourselves.
        path: its root folder, reached through a process that has it.
    """

    view: str = ""
    path: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessRoot) and self.view == other.view

    def __hash__(self) -> int:
        return hash(self.view)

    @staticmethod
    def of(pid: int) -> ProcessRoot:
        """A process's root; ours if it has ended or is not readable. Touches none of its files."""
        try:
            view, ours = _view(str(pid)), _view("self")
        except OSError:
            return ProcessRoot()
        return ProcessRoot() if view == ours else ProcessRoot(view, f"/proc/{pid}/root")

    def open(self, file: str) -> int:
        """Opens a file for reading, but only a regular one: a pipe or a device could block.

        Raises:
            OSError: it is not a regular file, or not readable.
            ValueError: `file` is not a path.
        """
        if self.view:
            found = open_below(self.path, file)
        else:
            found = os.open(file, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(found)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The lines of a file; none if it is not readable. `checked` is monotonic time."""

    changed_ns: int
    size: int
    checked: float
    lines: tuple[str, ...]


def read_source(root: ProcessRoot, file: str, known: SourceFile | None = None) -> SourceFile:
    """Reads a file, or returns the lines of `known` if it has not changed since."""
    nothing = SourceFile(0, 0, time.monotonic(), ())
    try:
        descriptor = root.open(file)
        with open(descriptor, encoding="utf-8", errors="replace") as opened:  # noqa: PTH123
            found = os.fstat(descriptor)
            # Files of /proc have no size: reading /proc/kmsg, say, waits, and takes from others.
            if not 0 < found.st_size <= MAX_FILE:
                return nothing
            if known is not None and (known.changed_ns, known.size) == (
                found.st_mtime_ns, found.st_size,
            ):  # fmt: skip
                lines = known.lines
            else:
                # As Python counts them: a form feed ends no line.
                lines = tuple(opened.read(MAX_FILE).split("\n"))
    except (OSError, ValueError):
        return nothing
    return SourceFile(found.st_mtime_ns, found.st_size, time.monotonic(), lines)


def _view(process: str) -> str:
    folder = Path("/proc", process)
    return f"{(folder / 'ns/mnt').readlink()} {(folder / 'root').readlink()}"


def open_below(root: str, file: str) -> int:
    """Finds a file as a process with this root does; returns a descriptor that names it (O_PATH).

    Raises:
        OSError: there is none, or the path has too many links.
        ValueError: `file` is not a path.
    """
    folders = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    left = file.split("/")[::-1]
    links = 0
    try:
        while left:
            part = left.pop()
            if part == "..":
                _shorten(folders, max(1, len(folders) - 1))
            if part in ("", ".", ".."):
                continue
            folders.append(os.open(part, _STEP, dir_fd=folders[-1]))
            if not stat.S_ISLNK(os.fstat(folders[-1]).st_mode):
                continue
            target = os.readlink("", dir_fd=folders[-1])
            _shorten(folders, 1 if target.startswith("/") else len(folders) - 1)
            left += target.split("/")[::-1]
            links += 1
            if links > _MAX_LINKS or len(left) > _MAX_PARTS:
                raise OSError(errno.ELOOP, "too many links")
        return folders.pop()
    finally:
        _shorten(folders, 0)


def _shorten(folders: list[int], count: int) -> None:
    while len(folders) > count:
        os.close(folders.pop())
