"""The files beside a ring: the socket on which the rank answers requests, and those of features.

Recorder and agent both bind and connect through `address`, because the path of a Unix socket
has at most 107 bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".sock"
MAX_ADDRESS: Final = 107
FILES: Final = re.compile(r"(?P<ring>\d{1,10}-\d{1,20}(?:-\d{1,20})?)\.[a-z]+\.json(?:\.tmp)?")
"""Names of features' files: the ring's name, the content, `.json`. A file ends in `.tmp` if its
rank was killed while torch was writing it."""


def socket_of(ring: Path) -> Path:
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


def create_file(path: Path) -> None:
    """Creates a file for torch to write. Torch itself would follow links and apply the umask.

    Raises:
        OSError: it exists already, or cannot be created.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))


def remove_ring(ring: Path) -> None:
    """Removes a ring and its files beside it, ignoring errors."""
    with suppress(OSError):
        for path in list(ring.parent.iterdir()):
            found = FILES.fullmatch(path.name)
            if found is not None and found["ring"] == ring.stem:
                path.unlink()
    for path in (ring, socket_of(ring)):
        with suppress(OSError):
            path.unlink()
