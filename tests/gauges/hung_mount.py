"""A file system that never answers: FUSE, whose server is this process and reads no request."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DETACH = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def possible() -> bool:
    """Whether it can be mounted here."""
    return os.geteuid() == 0 and Path("/dev/fuse").exists()


@contextmanager
def hung_mount(point: Path) -> Iterator[None]:
    """Mounts it; at the end all who wait for it get an error, as the connection is closed.

    Raises:
        OSError: it may not be mounted here.
    """
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    try:
        target = os.fsencode(point)
        if _LIBC.mount(b"hung", target, b"fuse.hung", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        try:
            yield
        finally:
            _LIBC.umount2(target, _DETACH)
    finally:
        os.close(server)
