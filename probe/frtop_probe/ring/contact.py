"""Where a rank itself can be asked: a socket that lies beside its ring.

Both ends go through here, since the path of a socket may have 107 bytes and no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SUFFIX: Final = ".sock"
MAX_ADDRESS: Final = 107


def socket_of(ring: Path) -> Path:
    return ring.with_suffix(SUFFIX)


@contextmanager
def address(path: Path) -> Iterator[bytes]:
    """What `bind` and `connect` take for `path`, however long that is.

    Raises:
        OSError: the folder of a long one cannot be opened.
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


def remove(ring: Path) -> None:
    """Removes a ring and what lies beside it, as far as it can."""
    for path in (ring, socket_of(ring)):
        with suppress(OSError):
            path.unlink()
