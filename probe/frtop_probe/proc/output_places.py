"""Where the output of a process and its parent goes, by `/proc`. Touches no file system but that.

The agent notes it while a rank lives: once its process has ended, nobody can find it out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc import pid_stat, processes
from frtop_probe.proc.kernel_files import number, read_fields
from frtop_probe.proc.process_root import ProcessRoot

_STREAMS: Final = {1: "stdout", 2: "stderr"}
_DELETED: Final = " (deleted)"
_ACCESS: Final = os.O_ACCMODE


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """What a descriptor of a process is open on.

    Attributes:
        stream: `stdout`, or `launcher's stdout` of a parent.
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
    """Those of a process, then those of its parent if that is this user's; () if it is gone."""
    found = processes.read_stat(pid)
    if found is None:
        return ()
    parent = processes.read_stat(found.parent) if processes.is_own(found.parent) else None
    return (*_of(found, ""), *(_of(parent, "launcher's ") if parent is not None else ()))


def _of(found: pid_stat.Stat, whose: str) -> tuple[OutputPlace, ...]:
    here = not ProcessRoot.of(found.pid).view
    places = []
    for descriptor, stream in _STREAMS.items():
        try:
            link = os.readlink(f"/proc/{found.pid}/fd/{descriptor}")  # noqa: PTH115 - bytes follow
        except OSError:  # closed, or it has just ended
            continue
        about = read_fields(f"/proc/{found.pid}/fdinfo/{descriptor}")
        if not _is_output(about.get("flags", "")):
            continue
        target = os.fsencode(link).decode("utf-8", "replace")
        places.append(
            OutputPlace(
                f"{whose}{stream}", found.pid, found.start_ticks, descriptor,
                target.removesuffix(_DELETED), number(about.get("ino", "")) or 0,
                here=here and target.startswith("/") and not target.endswith(_DELETED),
            )
        )  # fmt: skip
    return tuple(places)


def _is_output(flags: str) -> bool:
    """Whether a descriptor was opened for writing; its flags are octal."""
    try:
        return int(flags, 8) & _ACCESS != os.O_RDONLY
    except ValueError:
        return False
