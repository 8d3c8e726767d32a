"""How a process that is not our child ended: a pidfd tells the moment, then the status.

Newer kernels keep the exit status behind the pidfd, also after the parent has reaped the
process. Older ones show it in the zombie's /proc/PID/stat, if we are quick. Else unknown.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.eyes import proc

_INFO: Final = struct.Struct("=QQ11Ii")
"""First version of the kernel's `struct pidfd_info`: mask, cgroup, 11 ids, exit status."""
_GET_INFO: Final = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
"""`PIDFD_GET_INFO`, Linux 6.13; the same number on all architectures we know of but
MIPS, PowerPC and SPARC."""
_EXIT: Final = 1 << 3
"""`PIDFD_INFO_EXIT`, Linux 6.15; set in the answer once the process has been reaped."""


@dataclass(frozen=True, slots=True)
class Exit:
    """What the parent of a process learns from waitpid(2); both None: unknown."""

    code: int | None = None
    signal: int | None = None


def parse_status(status: int) -> Exit:
    """Splits a status of waitpid(2)."""
    number = status & 0x7F
    return Exit(signal=number) if number else Exit(code=(status >> 8) & 0xFF)


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends.

    None when it has ended, or when the kernel (before 5.3) or this Python has no pidfds.
    Ask `lives` afterwards: the pid may have been given to another process before.
    """
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def lives(pid: int, start_ticks: int) -> bool:
    """Whether the very process that started then is still there, and no zombie.

    Without a descriptor left to read that with (strangers may hold them all for a while),
    a process of ours of that number is taken for it: nobody is called dead unseen.
    """
    found = proc.stat(pid)
    if found is None:
        return _ours(pid)
    return found.start_ticks == start_ticks and found.state not in "ZX"


def _ours(pid: int) -> bool:
    """Whether there is such a process that we might signal; needs no descriptor."""
    if pid <= 0:  # groups of processes, to kill(2)
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def learn(pidfd: int | None, pid: int, start_ticks: int) -> Exit | None:
    """How it ended, as far as can be known at this moment; None: not yet, or never."""
    status = _from_pidfd(pidfd)
    if status is not None:
        return parse_status(status)
    if (found := of_zombie(pid, start_ticks)) is not None:
        return found
    status = _from_pidfd(pidfd)  # its parent may have come between the two
    return None if status is None else parse_status(status)


def of_zombie(pid: int, start_ticks: int) -> Exit | None:
    """How a process ended that its parent has not yet reaped; None when it has."""
    found = proc.stat(pid)
    if found is None or found.start_ticks != start_ticks or found.state not in "ZX":
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


def oom_file(pid: int, root: Path = Path("/")) -> Path | None:
    """The file in which the process's memory cgroup counts its out-of-memory kills."""
    text = proc.read(f"{root / 'proc'}/{pid}/cgroup") or ""
    for line in text.splitlines():
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


def parse_oom(text: str) -> int:
    """The counter in `memory.events` (v2) or `memory.oom_control` (v1); 0 if absent."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return 0
