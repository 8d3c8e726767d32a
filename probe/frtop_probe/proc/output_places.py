"""Where the output of a process and its parent goes, by `/proc`. Touches no file system but that.

The agent notes it while a rank lives: once its process has ended, nobody can find it out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.proc import pid_stat, processes
from frtop_probe.proc.kernel_files import number, printable, read_fields
from frtop_probe.proc.process_root import ProcessRoot

_STREAMS: Final = {1: "stdout", 2: "stderr"}
_DELETED: Final = " (deleted)"
_PIPE: Final = "pipe:["
MAX_BESIDE: Final = 64
"""Processes beside a rank or its launcher, and descriptors of one that reads their pipe."""


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """What a descriptor of a process is open on.

    Attributes:
        stream: `stdout`, `launcher's stdout` of a parent, `stdout through tee` of what reads a
            pipe.
        pid, start_ticks, descriptor: where it is open.
        target: what the kernel calls it: a path, `pipe:[4711]`, `/dev/pts/3`.
        inode: 0 if the kernel does not say (before Linux 5.14).
        here: its path means the same file to us: no other mount namespace, not deleted.
    """

    stream: str
    pid: int
    start_ticks: int
    descriptor: int
    target: str
    inode: int = 0
    here: bool = False

    @property
    def file(self) -> tuple[str, int]:
        """Equal for descriptors of one file."""
        return self.target, self.inode

    def link(self) -> str:
        """The link in /proc through which the open file is reached; "" if the process is gone."""
        found = processes.read_stat(self.pid)
        if found is None or found.start_ticks != self.start_ticks or found.has_ended:
            return ""
        return f"/proc/{self.pid}/fd/{self.descriptor}"


def output_places(pid: int) -> tuple[OutputPlace, ...]:
    """Those of a process, then those of its parent if that is this user's; () if it is gone.

    Instead of a pipe, the files of the program that reads it and was started beside them, as in
    `torchrun ... | tee job.out`.
    """
    found = processes.read_stat(pid)
    if found is None:
        return ()
    parent = _own(found.parent)
    places = [place for n, one in _STREAMS.items() if (place := _place(found, n, one))]
    if parent is not None:
        names = {n: f"launcher's {one}" for n, one in _STREAMS.items()}
        places += [place for n, one in names.items() if (place := _place(parent, n, one))]
    readers: dict[str, tuple[OutputPlace, ...]] = {
        one.target: () for one in places if one.target.startswith(_PIPE)
    }
    if readers:
        shell = _own(parent.parent) if parent is not None else None
        for reader in (*_children(parent), *_children(shell)):
            pipe = _target(reader.pid, 0)
            if pipe in readers and not readers[pipe]:
                readers[pipe] = tuple(_files(reader))
    return tuple(
        replace(file, stream=f"{one.stream} through {file.stream}") if file is not one else one
        for one in places
        for file in readers.get(one.target) or (one,)
    )


def _own(pid: int) -> pid_stat.Stat | None:
    return processes.read_stat(pid) if pid > 1 and processes.is_own(pid) else None


def _children(of: pid_stat.Stat | None) -> Iterator[pid_stat.Stat]:
    if of is None:
        return
    _, pids = processes.read_with_children(of.pid)
    yield from (found for pid in pids[:MAX_BESIDE] if (found := _own(pid)) is not None)


def _files(reader: pid_stat.Stat) -> Iterator[OutputPlace]:
    """The files that a program writes, by its name; its own errors are no output of the job."""
    try:
        numbers = sorted(map(int, os.listdir(f"/proc/{reader.pid}/fd")))  # noqa: PTH208 - names
    except (OSError, ValueError):
        return
    for descriptor in [one for one in numbers if one != 2][:MAX_BESIDE]:
        place = _place(reader, descriptor, printable(reader.name))
        if place and place.target.startswith("/") and not place.target.startswith("/dev/"):
            yield place


def _place(found: pid_stat.Stat, descriptor: int, stream: str) -> OutputPlace | None:
    """None if the descriptor is closed, or not for writing."""
    target = _target(found.pid, descriptor)
    about = read_fields(f"/proc/{found.pid}/fdinfo/{descriptor}")
    if not target or not _is_output(about.get("flags", "")):
        return None
    is_path = target.startswith("/") and not target.endswith(_DELETED)
    return OutputPlace(
        stream, found.pid, found.start_ticks, descriptor,
        target.removesuffix(_DELETED), number(about.get("ino", "")) or 0,
        here=is_path and not ProcessRoot.of(found.pid).view,
    )  # fmt: skip


def _target(pid: int, descriptor: int) -> str:
    """What a descriptor is open on; "" if it is closed, or the process has just ended."""
    try:
        link = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - bytes follow
    except OSError:
        return ""
    return os.fsencode(link).decode("utf-8", "replace")


def _is_output(flags: str) -> bool:
    """Whether a descriptor was opened for writing; its flags are octal."""
    try:
        return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
    except ValueError:
        return False
