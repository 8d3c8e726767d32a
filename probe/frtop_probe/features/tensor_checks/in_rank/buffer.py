"""Room for copies of tensors that wait for their statistics: one mapping, apart from malloc.

Blocks are reserved by the program's threads and given back by ours, roughly in order. Nothing
waits for room: what does not fit is not copied.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from typing import Final

_MADV_DONTFORK: Final = 10


class CopyBlock:
    """Bytes of the buffer that are in use, until `free` is set; the next `reserve` takes them back.

    Setting it needs no lock: a thread of low priority that is paused while it has a lock would
    keep the program's threads from copying.
    """

    __slots__ = ("free", "offset", "size")

    def __init__(self, offset: int, size: int) -> None:
        self.offset = offset
        self.size = size
        self.free = False


class CopyBuffer:
    """A ring of blocks in anonymous memory, which a forked child does not have."""

    def __init__(self, size: int) -> None:
        """Maps `size` bytes; pages are only touched when they are first written."""
        self.size = size
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._map.madvise(_MADV_DONTFORK)
        self._view = memoryview(self._map)
        self._blocks: deque[CopyBlock] = deque()
        self._lock = threading.Lock()

    def reserve(self, size: int) -> CopyBlock | None:
        """Takes a block; None if there is no room, or another thread is at it."""
        # Not waited for: a signal handler may have interrupted this thread right here.
        if not 0 < size <= self.size or not self._lock.acquire(blocking=False):
            return None
        try:
            blocks = self._blocks
            first, end = self._used()
            if end > first or not blocks:
                if self.size - end >= size:
                    offset = end
                elif size < first:
                    offset = 0
                else:
                    return None
            elif size < first - end:
                offset = end
            else:
                return None
            block = CopyBlock(offset, size)
            blocks.append(block)
            return block
        finally:
            self._lock.release()

    def fill(self) -> float:
        """Returns how full it is, from 0 to 1; 1 also where another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return 1.0
        try:
            first, end = self._used()
            if not self._blocks:
                return 0.0
            return (end - first if end > first else self.size - first + end) / self.size
        finally:
            self._lock.release()

    def _used(self) -> tuple[int, int]:
        """Takes back what is free; returns where the used bytes begin and end."""
        blocks = self._blocks
        while blocks and blocks[0].free:
            blocks.popleft()
        if not blocks:
            return 0, 0
        return blocks[0].offset, blocks[-1].offset + blocks[-1].size

    def view(self, block: CopyBlock) -> memoryview:
        """The bytes of a block."""
        return self._view[block.offset : block.offset + block.size]
