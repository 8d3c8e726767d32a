"""Reads whose ring a file is, how large its sections are, and whether that process lives.

Trusts nothing in the file: checks sizes before it uses them.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.ring import layout
from frtop_probe.ring.layout import Shape, StatusCell

_FLOCK: Final = struct.Struct("hhqqi")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""
_MAX_ROWS: Final = 4096
"""Most groups, and most ops in the overflow: readers read them all twice a second."""


class RingError(Exception):
    """The file is not a ring that this version can read; the text says why."""


class RingClosed(RingError):
    """The reader has closed it."""


class OtherVersion(RingError):
    """Another build of frtop wrote the ring."""


@dataclass(frozen=True, slots=True)
class RingHeader:
    """The process that created the ring. Times in ns of the host's clocks."""

    pid: int
    start_ticks: int
    pid_namespace: int
    boot: bytes
    monotonic_ns: int
    wall_ns: int
    recorder_tid: int
    main_ident: int


@dataclass(frozen=True, slots=True)
class RingSummary:
    """A ring's header and liveness. `last_sign_wall_ns` is in ns since the epoch."""

    header: RingHeader
    inode: int
    last_sign_wall_ns: int
    writer_lives: bool


def read_summary(path: Path) -> RingSummary:
    """Reads whose ring it is and whether that process is alive.

    Raises:
        RingError: the file is not a ring, has another version, or is damaged.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        start = os.pread(descriptor, layout.GROUPS_OFFSET, 0)
        if len(start) < layout.GROUPS_OFFSET:
            raise RingError(f"{path.name}: {len(start)} bytes is not a ring")
        header, _ = read_header(start, status.st_size, path)
        cells = memoryview(start)[layout.CELLS_OFFSET :].cast("q")
        last = max(
            cells[StatusCell.HEARTBEAT_NS], cells[StatusCell.EXCEPTION_NS], header.monotonic_ns
        )
        sign = header.wall_ns + last - header.monotonic_ns
        return RingSummary(header, status.st_ino, sign, _locked(descriptor))
    finally:
        os.close(descriptor)


def read_header(data: bytes, size: int, path: Path) -> tuple[RingHeader, Shape]:
    """Reads and checks the header.

    Raises:
        RingError: the file is not a ring, has another version, or is damaged.
    """
    (
        magic,
        version,
        declared,
        start_ticks,
        pid_namespace,
        boot,
        monotonic_ns,
        wall_ns,
        pid,
        recorder_tid,
        main_ident,
        *_,
    ) = fields = layout.HEADER.unpack_from(data, 0)
    if magic != layout.MAGIC or not version:
        raise RingError(f"{path.name}: not a ring, or not completely created yet")
    if version != layout.VERSION:
        raise OtherVersion(
            f"{path.name}: ring version {version}, this frtop reads {layout.VERSION}"
        )
    shape = Shape(*fields[-len(Shape._fields) :])
    if (
        declared != size
        or shape.longest != size
        or not (shape.slots and shape.chunks and shape.marks)
        or max(shape.groups, shape.overflow) > _MAX_ROWS
    ):
        raise RingError(f"{path.name}: section sizes do not add up")
    numbers = start_ticks, pid_namespace, main_ident, abs(monotonic_ns), abs(wall_ns)
    if not 0 < pid < 2**31 or max(numbers) >= layout.LONGEST:
        raise RingError(f"{path.name}: its process cannot exist")
    header = RingHeader(
        pid, start_ticks, pid_namespace, boot, monotonic_ns, wall_ns, recorder_tid, main_ident
    )
    return header, shape


def locked(path: Path) -> bool:
    """Returns whether a process, in any container, holds a record lock on the file.

    Opens the file each time. Closing a descriptor drops the locks of the *closing* process
    on the file, but the agent holds none.

    Raises:
        OSError: the file cannot be opened, or its file system lacks such locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
