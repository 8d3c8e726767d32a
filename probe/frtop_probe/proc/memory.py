"""Bounded reads of another process's memory through /proc/PID/mem.

A read may block while the target holds its memory lock in a driver. So this runs in a child that
may be left behind: see `worker`.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
MAX_READS: Final = 60_000
"""Reads per look. A first look at a torch job takes about 4,000."""
MAX_BYTES: Final = 64 << 20
"""Bytes per look. A full Flight Recorder ring of 20,000 entries is 10 MiB."""
MAX_READ: Final = 16 << 20
"""Bytes in one read: a size field that asks for more was not one."""
LOWEST_ADDRESS: Final = 0x1000
HIGHEST_ADDRESS: Final = 1 << 56
"""User addresses of x86-64 and aarch64, with five-level tables, lie below."""

GONE: Final = "the process has ended"
NO_RIGHT: Final = "no right to read its memory"
REPLACED: Final = "another process has this number now"
WAITS_FOR_MEMORY: Final = "it waits in the kernel for its own memory lock"
TOO_LARGE: Final = "memory not readable: a look would take too many reads"
BAD_ADDRESS: Final = "memory not readable: an address led nowhere"


class NotReadable(Exception):
    """Something in the target could not be read or validated.

    Attributes:
        reason: A short, stable sentence for people.
        detail: What exactly failed, for logs; may hold addresses.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason} ({detail})" if detail else reason)
        self.reason = reason
        self.detail = detail


class ProcessMemory:
    """The memory of one process. `start_look` resets the budgets.

    The descriptor belongs to the address space that was there when it was opened: after an exec or
    an end every read fails, also when the pid has been given to another process.
    """

    def __init__(
        self, pid: int, *, max_reads: int = MAX_READS, max_bytes: int = MAX_BYTES, proc: Path = PROC
    ) -> None:
        """Opens the memory.

        Raises:
            NotReadable: `GONE` or `NO_RIGHT`.
        """
        self.pid = pid
        self.reads = 0
        self.bytes = 0
        self._max_reads = max_reads
        self._max_bytes = max_bytes
        try:
            self._descriptor = os.open(proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NotReadable(_reason_of(error), str(error)) from error

    def close(self) -> None:
        """Closes the descriptor; further reads fail."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def start_look(self) -> None:
        """Resets what has been spent."""
        self.reads = 0
        self.bytes = 0

    def read(self, address: int, size: int) -> bytes:
        """Returns exactly `size` bytes.

        Raises:
            NotReadable: the address is unmapped, the process is gone, or the budget is spent.
        """
        if not LOWEST_ADDRESS <= address < HIGHEST_ADDRESS:
            raise NotReadable(BAD_ADDRESS, f"{address:#x}")
        if not 0 <= size <= MAX_READ:
            raise NotReadable(TOO_LARGE, f"{size} bytes at {address:#x}")
        self._spend(size)
        try:
            data = os.pread(self._descriptor, size, address)
        except OSError as error:
            raise NotReadable(_reason_of(error), f"{address:#x}: {error}") from error
        if len(data) == size:
            return data
        if not data and size:  # what the kernel answers when the address space is gone
            raise NotReadable(GONE, f"empty read at {address:#x}")
        return data + self.read(address + len(data), size - len(data))

    def word(self, address: int) -> int:
        """Returns the unsigned 64-bit number at an address."""
        return int.from_bytes(self.read(address, 8), "little")

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """Returns `count` unsigned 64-bit numbers."""
        return to_words(self.read(address, 8 * count))

    def _spend(self, size: int) -> None:
        self.reads += 1
        self.bytes += size
        if self.reads > self._max_reads or self.bytes > self._max_bytes:
            raise NotReadable(TOO_LARGE)


def to_words(data: bytes) -> tuple[int, ...]:
    """Returns the unsigned 64-bit numbers in `data`, whose length is a multiple of eight."""
    return struct.unpack(f"<{len(data) // 8}Q", data)


def _reason_of(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return GONE
    if error.errno in (errno.EACCES, errno.EPERM):
        return NO_RIGHT
    return BAD_ADDRESS
