"""The exit status of processes that are not our children.

A pidfd becomes readable when the process ends. Newer kernels still give the exit status
through the pidfd after the parent has reaped the process; older ones show it only in the zombie's
/proc/PID/stat. If neither works, the status is unknown.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc import processes
from frtop_probe.proc.kernel_files import read_text

_INFO: Final = struct.Struct("=QQ11Ii")
"""First version of the kernel's `struct pidfd_info`: mask, cgroup, 11 ids, exit status."""
_GET_INFO: Final = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
"""`PIDFD_GET_INFO`, Linux 6.13; the same number on all architectures except MIPS, PowerPC
and SPARC."""
_EXIT: Final = 1 << 3
"""`PIDFD_INFO_EXIT`, Linux 6.15; the kernel sets it once the process has been reaped."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """The exit status as waitpid(2) has it. Both are None if unknown."""

    code: int | None = None
    signal: int | None = None


def parse_status(status: int) -> ExitStatus:
    """Parses a status of waitpid(2)."""
    number = status & 0x7F
    return ExitStatus(signal=number) if number else ExitStatus(code=(status >> 8) & 0xFF)


def open_pidfd(pid: int) -> int | None:
    """Opens a descriptor that becomes readable when the process ends.

    None when it has ended, or when the kernel (before 5.3) or this Python has no pidfds.
    Call `is_alive` afterwards: the pid may already belong to another process.
    """
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def is_alive(pid: int, start_ticks: int) -> bool:
    """Whether the process that started at `start_ticks` still runs and is not a zombie.

    If we have no file descriptor left to read /proc, any process of ours with this pid counts as
    alive: a rank is never reported dead without evidence.
    """
    found = processes.read_stat(pid)
    if found is None:
        return _can_signal(pid)
    return found.start_ticks == start_ticks and not found.has_ended


def _can_signal(pid: int) -> bool:
    """Whether a process with this pid exists that we may signal; needs no descriptor."""
    if pid <= 0:  # kill(2) takes these as process groups
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def read_exit_status(pidfd: int | None, pid: int, start_ticks: int) -> ExitStatus | None:
    """How a process ended; None when it has not ended, or the kernel no longer says."""
    status = _from_pidfd(pidfd)
    if status is not None:
        return parse_status(status)
    if (found := read_zombie(pid, start_ticks)) is not None:
        return found
    status = _from_pidfd(pidfd)  # the parent may have reaped it between the two reads
    return None if status is None else parse_status(status)


def read_zombie(pid: int, start_ticks: int) -> ExitStatus | None:
    """The exit status of a zombie; None when the process runs, or has been reaped."""
    found = processes.read_stat(pid)
    if found is None or found.start_ticks != start_ticks or not found.has_ended:
        return None
    return parse_status(found.exit_status)


def _from_pidfd(pidfd: int | None) -> int | None:
    if pidfd is None:
        return None
    buffer = bytearray(_INFO.pack(_EXIT, *([0] * 13)))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError:
        return None
    fields = _INFO.unpack(buffer)
    return fields[-1] if fields[0] & _EXIT else None


def oom_counter_file(pid: int, root: Path = Path("/")) -> Path | None:
    """The file in which a process's memory cgroup counts its out-of-memory kills."""
    for line in read_text(root / "proc" / str(pid) / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            candidate = root / "sys/fs/cgroup" / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            candidate = root / "sys/fs/cgroup/memory" / group.lstrip("/") / "memory.oom_control"
        else:
            continue
        if os.access(candidate, os.R_OK):
            return candidate
    return None
