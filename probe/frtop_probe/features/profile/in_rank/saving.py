"""The files of a profile on the rank's side: whether there is room, writing them, removing them.

They lie beside the ring, in shared memory as a rule, which is the job's as well: a data loader or
NCCL that finds it full ends the job. So room is asked for before, and some is always left.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from frtop_probe.features.profile.files import FILES, all_files, profile_file
from frtop_probe.features.profile.in_rank.torch_profiler import TorchProfiler

_MB: Final = 1_000_000
LEFT_FREE: Final = 64 * _MB
"""So many bytes are left to the job, or a quarter where the file system is small."""
LEAST_ROOM: Final = 8 * _MB
"""What a profile needs to begin: some 25,000 events."""
MAX_EXECUTION: Final = 1000 * _MB
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ModuleLabels(Protocol):
    """What a profile has of modules, where these are recorded; for the thread that is profiled."""

    def begin(self) -> None:
        """Describes the model, and labels the calls of its modules from now on."""

    def end(self) -> None:
        """Labels no more."""

    def drop(self) -> None:
        """Forgets the description."""

    def save(self, path: Path) -> None:
        """Writes the description, if it can."""


def why_no_room(ring: Path, needed: int) -> str:
    """Why a file of `needed` bytes must not be written beside a ring; "" if it may be."""
    try:
        found = os.statvfs(ring.parent)
    except OSError as error:
        return f"{ring.parent}: {error.strerror}"
    free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    left = min(LEFT_FREE, size // 4)
    if free - left >= needed:
        return ""
    return (
        f"too little room in {ring.parent}: {free // _MB} MB are free, {-(-needed // _MB)} MB are "
        f"needed and {left // _MB} MB left to the job; make room there, or profile for a shorter"
        " time"
    )


def why_no_more_execution(ring: Path) -> str:
    """Why an execution trace that is being written must end now; "" if it may go on."""
    if size_of(profile_file(ring, "execution")) > MAX_EXECUTION:
        return f"its execution trace had grown to {MAX_EXECUTION // _MB} MB"
    return why_no_room(ring, LEAST_ROOM)


def save(
    ring: Path, profiler: TorchProfiler, grown: int, modules: ModuleLabels | None
) -> dict[str, int]:
    """Writes what was recorded.

    Args:
        ring: files lie beside it.
        profiler: has ended, and its execution trace is finished.
        grown: memory in bytes that the process has more than before.
        modules: describes the model, where modules are recorded.

    Returns:
        The sizes of the files by name.

    Raises:
        OSError: a file was not written to its end; the text says why.
    """
    if why := why_no_room(ring, max(LEAST_ROOM, 2 * grown)):
        raise OSError(0, why)
    profiler.save(profile_file(ring, "trace"))
    if modules is not None:
        modules.save(profile_file(ring, "modules"))
    sizes = {name: size_of(profile_file(ring, name)) for name in FILES}
    return {name: size for name, size in sizes.items() if size}


def remove(ring: Path) -> None:
    """Removes all files of a profile, and what torch left of one that it could not write."""
    for path in all_files(ring):
        with suppress(OSError):
            path.unlink()


def own_memory() -> int:
    """Memory of this process alone, in bytes; 0 where the kernel does not say."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def size_of(path: Path) -> int:
    """Its size in bytes; 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
