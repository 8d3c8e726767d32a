"""Reads facts about one rank: nothing that frtop does not read anyway when it looks at a rank.

`maps`, `environ` and `mem` wait for the rank's memory lock, so the caller calls this in a child
(`proc/risky_calls.py`).
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from frtop_probe.features.doctor.facts import SETTINGS, RankFacts, RingFacts, TorchFiles
from frtop_probe.features.doctor.torch_files import LIBRARY, read_torch
from frtop_probe.proc.memory import NO_RIGHT, NotReadable, executable, mapped_files
from frtop_probe.proc.process_rights import ProcessRights, read_rights
from frtop_probe.proc.ptrace_refusal import ProgramFlaw
from frtop_probe.unprepared.discovery.proc_reader import MAX_ENVIRON, parse_environ, read_blocking
from frtop_probe.unprepared.reader import UnpreparedReader

NO_LONGER: Final = "the process has ended"
_PYTHON: Final = re.compile(r"python(3\.\d{1,2}t?)")
_READABLE: Final = 4
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - only looked at
_LIBRARIES: Final = (LIBRARY, "libtorch.so", "libtorch_cuda.so")


def read_rank(
    pid: int, rank: int | None = None, *, prepared: bool = False, own: bool = True
) -> RankFacts:
    """Reads one rank; another user's rank only as far as everybody may."""
    rights = read_rights(pid)
    if not own:
        return RankFacts(pid, rank, own=False, rights=rights, memory=NO_RIGHT, c10d=NO_RIGHT)
    program = executable(pid) or _named_program(pid)
    files = _files(pid)
    settings, unread = _settings(pid)
    found: dict[str, Any] = {"memory": "", "c10d": ""}
    with suppress(NotReadable), closing(UnpreparedReader(pid)) as reader:
        found = _read_c10d(reader)
        if not found["memory"]:
            with suppress(NotReadable):  # as it is now; the program may have changed it
                settings, unread = reader.environment(SETTINGS), ""
    return RankFacts(
        pid=pid,
        rank=rank,
        rights=rights,
        python=_python(program, files),
        program=program,
        program_flaw=_flaw_of(program, rights),
        torch=_torch(pid, files),
        settings=settings,
        settings_unread=unread,
        shared_memory=_device(f"/proc/{pid}/root{_SHARED_MEMORY}"),
        prepared=prepared,
        **found,
    )


def _read_c10d(reader: UnpreparedReader) -> dict[str, Any]:
    """Memory, c10d state and rings, each with the reason if it is unreadable."""
    try:
        c10d = reader.read()
    except NotReadable as error:
        return {"memory": error.reason, "c10d": error.reason}
    kinds = {backend.kind for group in c10d.groups for backend in group.backends}
    found: dict[str, Any] = {
        "memory": NO_RIGHT if c10d.reason == NO_RIGHT else "",
        "c10d": c10d.reason,
        "groups": len(c10d.groups),
        "backends": tuple(sorted(filter(None, kinds))),
    }
    if c10d.reason != NO_RIGHT:
        with suppress(NotReadable):
            found["rings"] = tuple(
                RingFacts(ring.kind, ring.capacity, ring.recorded, ring.reason)
                for ring in reader.rings(1)
            )
    return found


def _files(pid: int) -> tuple[str, ...]:
    try:
        return tuple(mapped_files(pid))
    except NotReadable:
        return ()


def _settings(pid: int) -> tuple[dict[str, str], str]:
    """The settings that the program started with, or why they are unknown."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
            return parse_environ(file.read(MAX_ENVIRON), SETTINGS), ""
    except OSError as error:
        return {}, error.strerror or str(error)


def _python(program: str, files: tuple[str, ...]) -> str:
    """Python's version from the names of its files; "" if they do not show it."""
    named = (path.rpartition("/")[2] for path in (program, *files))
    found = (_PYTHON.search(name) for name in named if "python" in name)
    return next((match[1] for match in found if match), "")


def _torch(pid: int, files: tuple[str, ...]) -> TorchFiles | None:
    for path in files:
        folder, _, name = path.rpartition("/")
        if name in _LIBRARIES and folder.endswith("/lib"):
            return read_torch(Path(folder).parent, f"/proc/{pid}/root", symbols=False)
    return None


def _named_program(pid: int) -> str:
    """The program from its command line, if the link to it is hidden; "" if unknown."""
    try:
        words = read_blocking(pid, ("cmdline",)).argv or ("",)
    except OSError:
        return ""
    return shutil.which(words[0]) or ""


def _flaw_of(program: str, rights: ProcessRights) -> ProgramFlaw:
    """Why a process of this program is not dumpable, judged by the file's rights."""
    try:
        status = os.stat(program)  # noqa: PTH116 - a path of another process
    except OSError:
        return ""
    with suppress(OSError):
        os.getxattr(program, "security.capability")
        return "capabilities"
    shift = 6 if status.st_uid == rights.uid else 3 if status.st_gid == rights.gid else 0
    return "" if rights.uid == 0 or status.st_mode >> shift & _READABLE else "unreadable"


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev  # noqa: PTH116 - a path of another process
    except OSError:
        return 0
