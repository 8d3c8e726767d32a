"""A transport past c10d, as an inference engine has one: c10d sees nothing of what it moves.

Ranks meet in memory that they share, by semaphores and spin locks of libc: calls in C that release
the GIL, and of which a stack shows a line only. A replayed graph looks the same from outside. The
shared file and the module are called as those of DeepEP and NVSHMEM, by which frtop tells them.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import types
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoo.rank import Job

FILE: Final = "nvshmem_transport_ibrc.so.3"
MODULE: Final = "deep_ep"
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CELL: Final = 64
"""Bytes for a semaphore or a spin lock; each in a cache line of its own."""
_SHARED: Final = 1


class Transport:
    """Moves nothing, and lets ranks wait for each other."""

    def __init__(self, job: Job) -> None:
        """Meets the others by files, not by an op."""
        self._job = job
        size = job.world * (job.world + 1) * _CELL
        path = job.folder / FILE
        if job.rank == 0:
            with path.open("xb") as file:
                file.truncate(size)
        job.wait_for_all("transport-file")
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for other in range(job.world):  # whom this rank waits for
            _LIBC.sem_init(self._semaphore(job.rank, other), _SHARED, 0)
        _LIBC.pthread_spin_init(self._lock(job.rank), _SHARED)
        _LIBC.pthread_spin_lock(self._lock(job.rank))  # nobody ever unlocks it
        sys.modules[MODULE] = types.ModuleType(MODULE)
        job.wait_for_all("transport")

    def replay(self) -> None:
        """Waits asleep until every other rank is here, too."""
        rank, others = self._job.rank, [r for r in range(self._job.world) if r != self._job.rank]
        for other in others:
            _LIBC.sem_post(self._semaphore(other, rank))
        for other in others:
            while _LIBC.sem_wait(self._semaphore(rank, other)):
                pass

    def spin_for(self, rank: int) -> None:
        """Waits for one rank as for a device that never finishes: busy, and for ever."""
        _LIBC.pthread_spin_lock(self._lock(rank))

    def send(self) -> None:
        """Lets every other rank go on from `receive`."""
        for other in range(self._job.world):
            if other != self._job.rank:
                _LIBC.sem_post(self._semaphore(other, self._job.rank))

    def receive(self, sender: int) -> None:
        """Waits asleep until `sender` sends."""
        while _LIBC.sem_wait(self._semaphore(self._job.rank, sender)):
            pass

    def _semaphore(self, rank: int, other: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._base + (rank * self._job.world + other) * _CELL)

    def _lock(self, rank: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._base + (self._job.world**2 + rank) * _CELL)
