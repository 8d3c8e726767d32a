"""A memory cgroup below our own: a container whose limit one rank will break."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LIMIT: Final = 512 << 20
_GONE_S: Final = 5.0


def possible() -> bool:
    """Whether such a cgroup can be made here."""
    try:
        with limited():
            return True
    except OSError:
        return False


@contextmanager
def limited(limit: int = LIMIT) -> Iterator[Path]:
    """Makes it; removes it when nobody is in it any more.

    Raises:
        OSError: there is no memory controller that may be used here.
    """
    own, file = _own()
    folder = own / f"frtop-zoo-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / file).write_text(str(limit))
        yield folder
    finally:
        _removed(folder)


def _own() -> tuple[Path, str]:
    """Our own group in the hierarchy of the memory controller, and where a limit is written."""
    root = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if "memory" in controllers.split(","):
            return root / "memory" / name.lstrip("/"), "memory.limit_in_bytes"
        unified = root / name.lstrip("/")
        if not controllers and "memory" in _subtree(unified):
            return unified, "memory.max"
    raise FileNotFoundError("no memory controller")


def _subtree(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "cgroup.subtree_control").read_text()
    return ""


def _removed(folder: Path) -> None:
    end = time.monotonic() + _GONE_S
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
