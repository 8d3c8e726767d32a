"""Writes and removes the files of a profile in the rank, and checks the room for them.

They are beside the ring, usually in shared memory, which the job uses, too: if it is full, a data
loader or NCCL ends the job. So we check for room first, and always leave some.
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
"""Bytes left to the job, or a quarter of a small file system."""
LEAST_ROOM: Final = 8 * _MB
"""Bytes that a profile needs to begin, for some 25,000 events."""
MAX_EXECUTION: Final = 1000 * _MB
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ModuleLabels(Protocol):
    """The modules of a profile, if the rank records modules; for the profiled thread."""

    def begin(self) -> None:
        """Describes the model, and begins to label its module calls."""

    def end(self) -> None:
        """Stops labelling."""

    def drop(self) -> None:
        """Forgets the description."""

    def save(self, path: Path) -> None:
        """Writes the description, if possible."""


def why_no_room(ring: Path, needed: int) -> str:
    """Returns why a file of `needed` bytes must not be written beside a ring, or ""."""
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
    """Returns why the running execution trace must end now, or ""."""
    if size_of(profile_file(ring, "execution")) > MAX_EXECUTION:
        return f"its execution trace has grown to {MAX_EXECUTION // _MB} MB"
    return why_no_room(ring, LEAST_ROOM)


def save(
    ring: Path, profiler: TorchProfiler, grown: int, modules: ModuleLabels | None
) -> dict[str, int]:
    """Writes what an ended profiler has recorded; returns the sizes of the files by name.

    `grown`: by how many bytes the process has grown, an estimate of the files' size.

    Raises:
        OSError: a file is incomplete; the text says why.
    """
    if why := why_no_room(ring, max(LEAST_ROOM, 2 * grown)):
        raise OSError(0, why)
    profiler.save(profile_file(ring, "trace"))
    if modules is not None:
        modules.save(profile_file(ring, "modules"))
    sizes = {name: size_of(profile_file(ring, name)) for name in FILES}
    return {name: size for name, size in sizes.items() if size}


def remove(ring: Path) -> None:
    """Removes all files of a profile, unfinished ones too."""
    for path in all_files(ring):
        with suppress(OSError):
            path.unlink()


def own_memory() -> int:
    """Returns the private memory of this process in bytes; 0 if unknown."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def size_of(path: Path) -> int:
    """Returns the size of a file in bytes; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
