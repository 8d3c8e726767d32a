"""What /proc tells about a process: who it is, what it waits for, what it has mapped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc import pid_stat
from frtop_probe.proc.memory import GONE, NO_RIGHT, PROC, WAITS_FOR_MEMORY, NotReadable

_MAX_MAPS: Final = 32 << 20
"""Bytes of /proc/PID/maps. A CUDA job with many threads has 2 MiB."""
_CHUNK: Final = 1 << 20
_MEMORY_LOCK_WAITS: Final = ("rwsem_down", "down_read", "down_write", "mmap_read", "mmap_write")
"""Beginnings of wchan while a thread waits for an address space's lock (kernel/locking/rwsem.c)."""

AT: Final = "at "
"""Begins the name of a process, with a pid, while it reads the memory of that one in a search."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, as the kernel tells it without blocking.

    Attributes:
        start_ticks: Start time in clock ticks after boot: with the pid it names one process.
        state: Letter of the main thread's state, as in proc(5).
        wchan: Kernel function in which the main thread waits; "" if it runs or this is hidden.
        cpu_ticks: CPU time of all threads in clock ticks.
    """

    pid: int
    start_ticks: int
    state: str
    wchan: str
    cpu_ticks: int = 0


@dataclass(frozen=True, slots=True)
class Mapping:
    """One file as it is mapped: where its first byte lies, and where its last mapping ends."""

    path: str
    start: int
    end: int


def identify(pid: int, proc: Path = PROC) -> ProcessIdentity:
    """Reads stat and wchan, which never block.

    Raises:
        NotReadable: the process has ended, or is a zombie.
    """
    folder = proc / str(pid)
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
    """Raises when reading this process's memory would wait with it.

    Raises:
        NotReadable: its main thread waits for the lock of its address space.
    """
    if identity.state == "D" and identity.wchan.startswith(_MEMORY_LOCK_WAITS):
        raise NotReadable(WAITS_FOR_MEMORY, identity.wchan)


def mapped_files(pid: int, proc: Path = PROC) -> dict[str, Mapping]:
    """Reads /proc/PID/maps. May block: see `memory`.

    Returns:
        Files whose first byte is mapped, by path as the process sees it.

    Raises:
        NotReadable: the process is gone, or its maps are not ours to read.
    """
    return parse_maps(read_maps(pid, proc), _root(pid, proc))


def parse_maps(text: str, root: str = "") -> dict[str, Mapping]:
    """Parses /proc/PID/maps; lines that are none, and mappings without a file, are left out.

    Args:
        text: of the file.
        root: of the process, if it is another folder than ours.
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
            found[path] = Mapping(path, known.start, max(known.end, last))
        elif offset == 0:
            found[path] = Mapping(path, first, last)
    return found


def executable(pid: int, proc: Path = PROC) -> str:
    """Returns the path of the program, as the process sees it; "" when it is hidden."""
    try:
        path = str((proc / str(pid) / "exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""
    return _inside(path, _root(pid, proc))


def _inside(path: str, root: str) -> str:
    return path[len(root) :] if path.startswith(f"{root}/") else path


def _root(pid: int, proc: Path) -> str:
    """The folder that a process in a chroot has for its root; "" for ours, and in containers.

    The kernel names files as the reader sees them. A container's are named as the container does.
    """
    try:
        return str((proc / str(pid) / "root").readlink()).removesuffix("/")
    except OSError:
        return ""


def read_maps(pid: int, proc: Path = PROC) -> str:
    """Reads /proc/PID/maps, bounded. May block: see `memory`.

    Raises:
        NotReadable: the process is gone, or its maps are not ours to read.
    """
    path = proc / str(pid) / "maps"
    parts = []
    size = 0
    try:
        with path.open("rb", buffering=0) as file:
            while (part := file.read(_CHUNK)) and size < _MAX_MAPS:
                parts.append(part)
                size += len(part)
    except PermissionError as error:
        raise NotReadable(NO_RIGHT, str(error)) from error
    except OSError as error:
        raise NotReadable(GONE, str(error)) from error
    return b"".join(parts).decode("utf-8", "replace")


@contextmanager
def named_after(pid: int) -> Iterator[None]:
    """Names this process after the one that it reads: where that hangs, others see at which."""
    before = _rename(f"{AT}{pid}".encode())
    try:
        yield
    finally:
        _rename(before)


def _rename(name: bytes) -> bytes:
    """Gives this process another name, and returns the one before; without /proc nothing."""
    before = name
    with suppress(OSError), (PROC / "self" / "comm").open("r+b", buffering=0) as comm:
        before = comm.read(64).strip()
        comm.write(name)
    return before
