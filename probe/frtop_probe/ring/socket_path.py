"""The socket of a rank, beside its ring, on which the rank answers requests itself.

Recorder and agent both bind and connect through `address`, because the path of a Unix socket
may have at most 107 bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from frtop_probe.features.profile.files import all_files

SUFFIX: Final = ".sock"
MAX_ADDRESS: Final = 107


def socket_of(ring: Path) -> Path:
    """Returns the path of the socket that belongs to a ring."""
    return ring.with_suffix(SUFFIX)


@contextmanager
def address(path: Path) -> Iterator[bytes]:
    """Yields an address for `bind` and `connect`, for a path of any length.

    Raises:
        OSError: the path is too long, and its folder cannot be opened.
    """
    name = os.fsencode(path)
    if len(name) <= MAX_ADDRESS:
        yield name
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield b"/proc/self/fd/%d/%s" % (descriptor, os.fsencode(path.name))
    finally:
        os.close(descriptor)


def remove_ring(ring: Path) -> None:
    """Removes a ring, its socket and its profile, ignoring errors."""
    for path in (ring, socket_of(ring), *all_files(ring)):
        with suppress(OSError):
            path.unlink()
