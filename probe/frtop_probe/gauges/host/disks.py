"""The file systems of ranks (their folder, /tmp, /dev/shm): how full, and how busy.

Asking how full a file system is may hang: see `hanging`. Rates are of its block device in
/proc/diskstats; file systems over the network or in memory have none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.hanging import HangingCalls
from frtop_probe.gauges.host.mounts import Mount, mount_of, parse_mounts
from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.readings import SubjectReading, known
from frtop_probe.proc.kernel_files import number, printable, read_text

MAX_DISKS: Final = 16
FOLDERS: Final = ("/tmp", "/dev/shm")  # noqa: S108 - where ranks write, not we
WAIT_S: Final = 0.2
"""Longest wait for all file systems together; slower ones appear in the next reading."""
_SECTOR: Final = 512
_MS: Final = 1_000_000
_UNASKED: Final = frozenset({"autofs", "proc", "sysfs", "devtmpfs", "cgroup", "cgroup2"})
"""Kinds without real space. Asking autofs would mount something."""


@dataclass(slots=True)
class _Disk:
    mount: Mount
    path: str
    pids: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """Bytes moved by a block device since boot, and how many ns it was busy."""

    read: int
    written: int
    busy_ns: int


def parse_diskstats(text: str) -> dict[str, DeviceCounters]:
    """Counters by `major:minor` (Documentation/admin-guide/iostats.rst)."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        values = [number(word) for word in (*words[5:6], *words[9:10], *words[12:13])]
        if len(values) == 3 and None not in values:
            sectors_read, sectors_written, busy_ms = (value or 0 for value in values)
            found[f"{words[0]}:{words[1]}"] = DeviceCounters(
                sectors_read * _SECTOR, sectors_written * _SECTOR, busy_ms * _MS
            )
    return found


class DiskSource:
    """A subject for each file system."""

    def __init__(self, proc: Path, calls: HangingCalls) -> None:
        self._proc = proc
        self._calls = calls
        self._rates = Rates()

    def read(self, pids: Iterable[int], now_ns: int) -> Iterator[SubjectReading]:
        """The file systems that these processes use."""
        disks = self._disks(pids)
        for key, disk in disks.items():
            self._calls.begin(f"statvfs {key}", partial(os.statvfs, disk.path))
        until = time.monotonic() + WAIT_S
        devices = parse_diskstats(read_text(self._proc / "diskstats", 1 << 20))
        for key, disk in disks.items():
            yield self._subject(key, disk, devices.get(disk.mount.device), until, now_ns)

    def _disks(self, pids: Iterable[int]) -> dict[str, _Disk]:
        """Returns file systems by device, each with the first path that leads to it."""
        own = _link(f"{self._proc}/self/ns/mnt")
        mounts: dict[str, list[Mount]] = {}
        found: dict[str, _Disk] = {}
        for pid in pids:
            folder = f"{self._proc}/{pid}"
            space = _link(f"{folder}/ns/mnt")
            if space not in mounts:
                mounts[space] = parse_mounts(read_text(f"{folder}/mountinfo", 1 << 20))
            # As the rank sees it, perhaps in a container; reading a link accesses no target.
            root = "" if space == own else f"{folder}/root"
            for path in (_link(f"{folder}/cwd"), *FOLDERS):
                mount = mount_of(path.removesuffix(" (deleted)"), mounts[space]) if path else None
                if mount is None or mount.kind in _UNASKED:
                    continue
                key = f"{mount.device} {mount.kind}"
                if key not in found and len(found) < MAX_DISKS:
                    found[key] = _Disk(mount, root + mount.folder)
                if key in found:
                    found[key].pids.add(pid)
        return found

    def _subject(
        self, key: str, disk: _Disk, device: DeviceCounters | None, until: float, now_ns: int
    ) -> SubjectReading:
        space, hangs_s = self._calls.newest(f"statvfs {key}", until)
        values: dict[str, int | None] = {}
        problem = ""
        if hangs_s:
            problem = "it does not answer"
        elif isinstance(space, os.statvfs_result):
            values["size"] = space.f_blocks * space.f_frsize
            values["free"] = space.f_bavail * space.f_frsize
            if space.f_files:
                values["inodes_free"] = 1000 * space.f_favail // space.f_files
        elif space is not None:
            problem = str(getattr(space, "strerror", None) or "it cannot be asked")
        if device is not None:
            values["read"] = self._rates.per_second((key, "read"), device.read, now_ns)
            values["written"] = self._rates.per_second((key, "written"), device.written, now_ns)
            values["busy"] = self._rates.permille((key, "busy"), device.busy_ns, now_ns)
        detail = f"{disk.mount.kind} {disk.mount.source}"
        return SubjectReading("disk", printable(disk.mount.folder), known(**values),
                              printable(detail), problem, tuple(sorted(disk.pids)))  # fmt: skip


def _link(path: str) -> str:
    try:
        return os.fsencode(os.readlink(path)).decode("utf-8", "replace")  # noqa: PTH115 - a name
    except OSError:
        return ""
