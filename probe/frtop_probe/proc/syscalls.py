"""System call names by architecture: of calls that can block or that name a file.

Other calls appear by number.
"""

from __future__ import annotations

import platform
from typing import Final

_X86_64: Final[dict[int, str]] = {
    0: "read", 1: "write", 2: "open", 3: "close", 7: "poll", 8: "lseek", 9: "mmap",
    11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev",
    23: "select", 24: "sched_yield", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile",
    42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
    56: "clone", 59: "execve", 61: "wait4", 62: "kill", 72: "fcntl", 73: "flock", 74: "fsync",
    75: "fdatasync", 76: "truncate", 77: "ftruncate", 128: "rt_sigtimedwait",
    130: "rt_sigsuspend", 162: "sync", 202: "futex", 203: "sched_setaffinity", 217: "getdents64",
    219: "restart_syscall", 220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait",
    247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6", 271: "ppoll",
    277: "sync_file_range", 281: "epoll_pwait", 285: "fallocate", 288: "accept4",
    295: "preadv", 296: "pwritev", 306: "syncfs", 326: "copy_file_range", 327: "preadv2",
    328: "pwritev2", 332: "statx", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

_AARCH64: Final[dict[int, str]] = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 45: "truncate", 46: "ftruncate",
    47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 62: "lseek", 63: "read",
    64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 69: "preadv",
    70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 81: "sync",
    82: "fsync", 83: "fdatasync", 84: "sync_file_range", 95: "waitid", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 122: "sched_setaffinity", 124: "sched_yield",
    128: "restart_syscall", 129: "kill", 133: "rt_sigsuspend", 137: "rt_sigtimedwait",
    192: "semtimedop", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 215: "munmap", 220: "clone", 221: "execve", 222: "mmap",
    233: "madvise", 242: "accept4", 260: "wait4", 267: "syncfs", 285: "copy_file_range",
    286: "preadv2", 287: "pwritev2", 291: "statx", 426: "io_uring_enter", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip

_TABLES: Final = {"x86_64": _X86_64, "aarch64": _AARCH64}

_ON_DESCRIPTOR: Final = frozenset({
    "read", "write", "close", "lseek", "ioctl", "pread64", "pwrite64", "readv", "writev",
    "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "fcntl", "flock",
    "fsync", "fdatasync", "ftruncate", "getdents64", "sync_file_range", "fallocate", "preadv",
    "pwritev", "preadv2", "pwritev2", "syncfs", "copy_file_range",
})  # fmt: skip
"""Calls whose first argument is a file descriptor."""

_SECOND: Final = frozenset({"sendfile"})
"""Calls that read from the file descriptor in their second argument."""


def name(number: int, machine: str = platform.machine()) -> str:
    """The name of a call, such as `read` for 0 on x86_64; `#NUMBER` if no table has it."""
    return _TABLES.get(machine, {}).get(number, f"#{number}")


def descriptor(call: str, arguments: tuple[int, ...]) -> int | None:
    """The file descriptor that a call works on; None if it has none."""
    if call in _ON_DESCRIPTOR and arguments:
        return arguments[0]
    if call in _SECOND and len(arguments) > 1:
        return arguments[1]
    return None
