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
    """Bytes of the buffer that are in use."""

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
            first = blocks[0].offset if blocks else 0
            end = blocks[-1].offset + blocks[-1].size if blocks else 0
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

    def view(self, block: CopyBlock) -> memoryview:
        """The bytes of a block."""
        return self._view[block.offset : block.offset + block.size]

    def release(self, block: CopyBlock) -> None:
        """Gives a block back."""
        block.free = True
        if self._lock.acquire(blocking=False):  # else the next one does it
            try:
                while self._blocks and self._blocks[0].free:
                    self._blocks.popleft()
            finally:
                self._lock.release()
