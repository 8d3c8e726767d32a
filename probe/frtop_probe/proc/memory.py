"""Reads another process: its identity, its mappings, its memory.

A read may block while the target holds its memory lock in a driver. So only a
child that its parent can leave behind may read: see `unprepared.worker`.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc import pid_stat

MAX_READS: Final = 60_000
"""Reads per look. A first look at a torch job takes about 4,000."""
MAX_BYTES: Final = 64 << 20
"""Bytes per look. A full Flight Recorder ring of 20,000 entries is 10 MiB."""
MAX_READ: Final = 16 << 20
"""Most bytes of one read: a larger size is garbage."""
LOWEST_ADDRESS: Final = 0x1000
HIGHEST_ADDRESS: Final = 1 << 56
"""User addresses of x86-64 and aarch64 are below this, even with five-level page tables."""

GONE: Final = "the process has ended"
NO_RIGHT: Final = "no right to read its memory"
REPLACED: Final = "its pid now belongs to another process"
WAITS_FOR_MEMORY: Final = "it waits in the kernel for its own memory lock"
TOO_LARGE: Final = "memory not readable: a look would take too many reads"
BAD_ADDRESS: Final = "memory not readable: an address led nowhere"

_MAX_MAPS: Final = 32 << 20
"""Bytes of /proc/PID/maps. A CUDA job with many threads has 2 MiB."""
_MAX_PARTS: Final = 32
"""Mappings that are known of a file. A library has some ten, a device may have thousands."""
_CHUNK: Final = 1 << 20
_PROC: Final = Path("/proc")
_MEMORY_LOCK_WAITS: Final = ("rwsem_down", "down_read", "down_write", "mmap_read", "mmap_write")
"""How wchan begins while a thread waits for an address space's lock (kernel/locking/rwsem.c)."""

AT: Final = "at "
"""During a search, a reader's process name is this word and the pid that it reads."""


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

    The descriptor belongs to the address space that it was opened on. After an exec or the end of
    the process every read fails, even if another process now has the pid.
    """

    def __init__(self, pid: int) -> None:
        """Opens the memory.

        Raises:
            NotReadable: `GONE` or `NO_RIGHT`.
        """
        self.pid = pid
        self.reads = 0
        self.bytes = 0
        try:
            self._descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NotReadable(_reason_of(error), str(error)) from error

    def close(self) -> None:
        """Closes the descriptor; further reads fail."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def start_look(self) -> None:
        """Resets the budgets."""
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
        if not data and size:  # the kernel's answer when the address space is gone
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
        if self.reads > MAX_READS or self.bytes > MAX_BYTES:
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


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, as the kernel shows it without blocking.

    Attributes:
        start_ticks: Start time in clock ticks since boot; with the pid it identifies the process.
        state: Letter of the main thread's state, as in proc(5).
        wchan: Kernel function in which the main thread waits; "" if it runs or wchan is hidden.
        cpu_ticks: CPU time of all threads in clock ticks.
    """

    pid: int
    start_ticks: int
    state: str
    wchan: str
    cpu_ticks: int = 0


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped file: the address of its first byte, and the end of its last mapping.

    `parts` has address, end and place in the file of its first mappings, if they are known.
    """

    path: str
    start: int
    end: int
    parts: tuple[tuple[int, int, int], ...] = ()

    def address_of(self, offset: int, size: int) -> int | None:
        """Returns where these bytes of the file are mapped; None if they are not."""
        for start, end, place in self.parts or ((self.start, self.end, 0),):
            if place <= offset and offset + size <= place + end - start:
                return start + offset - place
        return None


def identify(pid: int) -> ProcessIdentity:
    """Reads stat and wchan, which never block.

    Raises:
        NotReadable: the process has ended, or is a zombie.
    """
    folder = _PROC / str(pid)
    found = pid_stat.read(folder)
    if found is None or found.has_ended:
        raise NotReadable(GONE, "no line in stat" if found is None else f"state {found.state}")
    try:
        wchan = (folder / "wchan").read_bytes().decode("ascii", "replace").strip()
    except OSError:  # hidden on some kernels
        wchan = ""
    wchan = "" if wchan == "0" else wchan
    return ProcessIdentity(pid, found.start_ticks, found.state, wchan, found.cpu_ticks)


def refuse_if_locked(identity: ProcessIdentity) -> None:
    """Raises when reading this process's memory would block as well.

    Raises:
        NotReadable: its main thread waits for the lock of its address space.
    """
    if identity.state == "D" and identity.wchan.startswith(_MEMORY_LOCK_WAITS):
        raise NotReadable(WAITS_FOR_MEMORY, identity.wchan)


def mapped_files(pid: int) -> dict[str, Mapping]:
    """Reads /proc/PID/maps. May block: see `memory`.

    Returns:
        Files whose first byte is mapped, by their path as the process sees it.

    Raises:
        NotReadable: the process is gone, or we may not read its maps.
    """
    parts = []
    size = 0
    try:
        with (_PROC / str(pid) / "maps").open("rb", buffering=0) as file:
            while (part := file.read(_CHUNK)) and size < _MAX_MAPS:
                parts.append(part)
                size += len(part)
    except PermissionError as error:
        raise NotReadable(NO_RIGHT, str(error)) from error
    except OSError as error:
        raise NotReadable(GONE, str(error)) from error
    return parse_maps(b"".join(parts).decode("utf-8", "replace"), _root(pid))


def parse_maps(text: str, root: str = "") -> dict[str, Mapping]:
    """Parses the text of /proc/PID/maps; skips malformed lines and mappings without a file.

    `root` is the process's root folder if it differs from ours.
    """
    found: dict[str, Mapping] = {}
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        start, _, end = fields[0].partition("-")
        try:
            first, last, offset = int(start, 16), int(end, 16), int(fields[2], 16)
        except ValueError:
            continue
        path = _inside(fields[5].removesuffix(" (deleted)"), root)
        known = found.get(path)
        if known is not None:
            parts = (*known.parts, (first, last, offset))[:_MAX_PARTS]
            found[path] = Mapping(path, known.start, max(known.end, last), parts)
        elif offset == 0:
            found[path] = Mapping(path, first, last, ((first, last, 0),))
    return found


def executable(pid: int) -> str:
    """Returns the program's path as the process sees it; "" when it is hidden."""
    try:
        path = str((_PROC / str(pid) / "exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""
    return _inside(path, _root(pid))


def _inside(path: str, root: str) -> str:
    return path[len(root) :] if path.startswith(f"{root}/") else path


def _root(pid: int) -> str:
    """Returns the root folder of a process in a chroot; "" for ours, and for containers.

    The kernel gives paths as the reader sees them, except in a container: there, as the container
    sees them.
    """
    try:
        return str((_PROC / str(pid) / "root").readlink()).removesuffix("/")
    except OSError:
        return ""


@contextmanager
def named_after(pid: int) -> Iterator[None]:
    """Names this process after the one that it reads: if the read hangs, others see which one."""
    before = _rename(f"{AT}{pid}".encode())
    try:
        yield
    finally:
        _rename(before)


def _rename(name: bytes) -> bytes:
    """Renames this process and returns its previous name; does nothing without /proc."""
    before = name
    with suppress(OSError), (_PROC / "self" / "comm").open("r+b", buffering=0) as comm:
        before = comm.read(64).strip()
        comm.write(name)
    return before
