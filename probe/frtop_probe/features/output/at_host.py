"""Reads the end of the files that ranks and their launchers write to, when somebody asks.

Only regular files of the agent's own user are opened, never a pipe, a terminal or a device. A
descriptor that only names the file (O_PATH) is checked first, so nothing is opened that was not
checked. File systems may hang: each answer is read in a thread, and only a few of these may hang.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.features.output.messages import ReadOutput
from frtop_probe.proc import daemon_thread
from frtop_probe.proc.output_places import OutputPlace, output_places
from frtop_probe.proc.within import within

SWITCH: Final = "FRTOP_OUTPUT"
"""`0`, in the environment of a rank or of the agent: nobody gets this output."""
MAX_BYTES: Final = 64 * 1024
"""Per file: about a thousand lines."""
MAX_FILES: Final = 8
"""Per rank, those of the rank itself first: what reads a pipe may have many open."""
DEADLINE_S: Final = 3.0
AT_ONCE: Final = 4
FRESH_S: Final = 1.0
"""The ranks of a host mostly write to one file: this long, what was read of it serves all."""
_MOST_ENDS: Final = 16
_NAME: Final = os.O_PATH | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a terminal or another device"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
)


@dataclass(frozen=True, slots=True)
class _FileEnd:
    """The end of a file, as it was a moment ago."""

    until: float
    size: int
    changed_ns: int
    text: str


class OutputReader:
    """One per agent."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._ends: dict[tuple[int, int, int], _FileEnd] = {}

    async def read(self, host: str, request: ReadOutput, rank: TrackedRank) -> wire.OutputResponse:
        """Returns the end of each file, or why there is none."""
        answer = wire.OutputResponse(request.id, host, rank.key, time.monotonic_ns())
        if _is_off(rank):
            text = f"{SWITCH}=0: the output of this job is not read"
            return structs.replace(answer, error="off", help=text)
        if rank.lives and (places := output_places(rank.pid)):
            rank.output_places = places  # a program may redirect its output at any time
        places = rank.output_places
        if not places:
            text = f"process {rank.pid} has ended: nobody noted where its output went"
            if rank.lives:
                text = f"the descriptors of process {rank.pid} are closed, or not readable"
            return structs.replace(answer, error="failed" if rank.lives else "gone", help=text)
        if not self._free.acquire(blocking=False):
            text = f"{AT_ONCE} earlier reads still wait for a file system"
            return structs.replace(answer, error="busy", help=text)
        size = max(0, min(request.size, MAX_BYTES))
        try:
            reading = daemon_thread.run(
                lambda: self._read_all(rank.pid, places, size), "frtop output"
            )
        except RuntimeError as error:  # no more threads
            self._free.release()
            return structs.replace(answer, error="failed", help=str(error))
        try:
            files = await within(DEADLINE_S, reading)
        except TimeoutError:
            text = f"the file system did not answer in {DEADLINE_S:.0f} s"
            files = tuple(
                wire.OutputFile(path, streams, error="deadline", help=text)
                for path, streams, _ in _by_file(rank.pid, places)
            )
        return structs.replace(answer, files=files, at_ns=time.monotonic_ns())

    def _read_all(
        self, pid: int, places: Sequence[OutputPlace], size: int
    ) -> tuple[wire.OutputFile, ...]:
        """Runs in a thread."""
        try:
            return tuple(
                self._read_one(wire.OutputFile(path, streams), alike, size)
                for path, streams, alike in _by_file(pid, places)
            )
        finally:
            self._free.release()

    def _read_one(
        self, file: wire.OutputFile, alike: Sequence[OutputPlace], size: int
    ) -> wire.OutputFile:
        try:
            named = _named(alike)
        except OSError as error:
            text = f"its process has ended, and the file cannot be opened: {error.strerror}"
            return structs.replace(file, error="gone", help=text)
        try:
            return self._read_named(file, named, alike[0].inode, size)
        except OSError as error:
            reason = "permission" if isinstance(error, PermissionError) else "failed"
            text = f"the file cannot be read: {error.strerror}"
            return structs.replace(file, error=reason, help=text)
        finally:
            os.close(named)

    def _read_named(
        self, file: wire.OutputFile, named: int, inode: int, size: int
    ) -> wire.OutputFile:
        found = os.fstat(named)
        if not stat.S_ISREG(found.st_mode):
            kind = next((text for check, text in _KINDS if check(found.st_mode)), "no file")
            text = f"{kind}: only what goes to a file can be read"
            return structs.replace(file, error="not a file", help=text)
        if found.st_uid != os.getuid():
            text = f"the file belongs to user {found.st_uid}: left alone"
            return structs.replace(file, error="permission", help=text)
        if inode and found.st_ino != inode:
            text = "its process has ended, and another file has its name now"
            return structs.replace(file, error="gone", help=text)
        key = found.st_dev, found.st_ino, size
        end, now = self._ends.get(key), time.monotonic()
        as_found = found.st_size, found.st_mtime_ns
        if end is None or end.until < now or (end.size, end.changed_ns) != as_found:
            end = _FileEnd(now + FRESH_S, *as_found, _end_of(named, found.st_size, size))
            with self._lock:
                self._ends[key] = end
                while len(self._ends) > _MOST_ENDS:
                    del self._ends[next(iter(self._ends))]
        quiet_s = max(0.0, time.time() - found.st_mtime)
        return structs.replace(file, size=found.st_size, text=end.text, quiet_s=quiet_s)


def _is_off(rank: TrackedRank) -> bool:
    settings = rank.identity.settings if rank.identity is not None else ()
    return os.environ.get(SWITCH) == "0" or (SWITCH, "0") in settings


def _by_file(
    pid: int, places: Sequence[OutputPlace]
) -> Iterator[tuple[str, tuple[str, ...], tuple[OutputPlace, ...]]]:
    """Path, streams and descriptors of each file. Of other processes than the rank, only files."""
    shown = [one for one in places if one.pid == pid or one.target.startswith("/")]
    shown = [one for one in shown if one.pid == pid or not one.target.startswith("/dev/")]
    files: dict[tuple[str, int], list[OutputPlace]] = {}
    for one in shown:
        files.setdefault(one.file, []).append(one)
    for alike in islice(files.values(), MAX_FILES):
        yield alike[0].target, tuple(one.stream for one in alike), tuple(alike)


def _named(alike: Sequence[OutputPlace]) -> int:
    """A descriptor that names the file: through a process that has it open, else by its path.

    Raises:
        OSError: no process has it open, and there is nothing at its path.
    """
    for one in alike:
        if link := one.link():
            try:
                return os.open(link, _NAME)
            except OSError:  # it has just ended
                continue
    if not alike[0].here:
        raise OSError(errno.ENOENT, "it was deleted, or is a file of a container")
    return os.open(alike[0].target, _NAME | os.O_NOFOLLOW)


def _end_of(named: int, size: int, most: int) -> str:
    """The last whole lines of a file, at most `most` bytes."""
    start = max(0, size - most)
    descriptor = os.open(f"/proc/self/fd/{named}", _READ)
    try:
        data = b""
        while len(data) < most and (
            part := os.pread(descriptor, most - len(data), start + len(data))
        ):
            data += part
    finally:
        os.close(descriptor)
    if start:
        data = data[data.find(b"\n") + 1 :]
    return data.decode("utf-8", "replace")


HANDLERS: Final = {ReadOutput: OutputReader().read}
