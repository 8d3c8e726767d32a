"""Raises how many files this process may have open: often 1,024, of which many hosts need more."""

from __future__ import annotations

import resource
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES_PER_HOST: Final = 3
"""Two connections, or three pipes."""
FILES_PER_SOURCE: Final = 16
SPARE_FILES: Final = 256


class FileLimit:
    """Counts the sources of this process: `frtop watch` has one for each job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = SPARE_FILES

    @contextmanager
    def room_for(self, hosts: int) -> Iterator[None]:
        """Makes room for a source that connects to so many hosts, while it does."""
        own = FILES_PER_SOURCE + FILES_PER_HOST * hosts
        with self._lock:
            self._wanted += own
            _raise_to(self._wanted)
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= own


OF_PROCESS: Final = FileLimit()


def _raise_to(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted > soft:
        with suppress(ValueError, OSError):  # then as many hosts as fit are reached
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
