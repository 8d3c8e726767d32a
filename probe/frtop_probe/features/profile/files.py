"""The files that torch's profiler writes beside a ring, until an operator has fetched them.

The rank creates them (mode 0600, in a folder closed to all others), and the agent reads
them. The rank removes them when the operator says so, when requests cease, or at the next order.
If the rank was killed, they go with its ring.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

FILES: Final = ("trace", "execution", "modules")
"""torch's profile, the trace of its execution trace observer, and a description of the model."""
_DRAFT: Final = ".tmp"
"""Some versions of torch append this while they write: a killed rank leaves such a file."""
MODULE_LABEL: Final = "frtop module "
"""Begins the name of the event around a call of a module; the module's path follows."""


def profile_file(ring: Path, name: str) -> Path:
    """The path of one of `FILES` beside a ring."""
    return ring.with_suffix(f".{name}.json")


def all_files(ring: Path) -> tuple[Path, ...]:
    """All paths that a profile may have beside a ring, torch's drafts too."""
    files = [profile_file(ring, name) for name in FILES]
    return (*files, *(path.with_name(path.name + _DRAFT) for path in files))


def read_piece(path: Path, offset: int, size: int) -> tuple[bytes, int]:
    """Reads at most `size` bytes of a file from `offset` on; also returns the file's size.

    Raises:
        OSError: it does not exist, or is not this user's own file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            raise PermissionError(0, "it is not the rank's own file", str(path))
        return os.pread(descriptor, size, offset), status.st_size
    finally:
        os.close(descriptor)
