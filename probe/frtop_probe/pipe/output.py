"""Lines to the operator, through a descriptor that never blocks us."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_QUEUED: Final = 4 << 20
"""Bytes above which updates are dropped, and responses wait: an operator that does not read."""
_PIECE: Final = 256 * 1024
_PAUSE_S: Final = 0.02


class LineOutput:
    """Belongs to a running event loop. `on_end` is called when nobody can read any more."""

    def __init__(self, descriptor: int, on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_end = on_end
        self._queue: deque[memoryview] = deque()
        self._size = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._waits = False
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether the operator is far behind."""
        return self._size > MAX_QUEUED

    def write(self, line: bytes) -> None:
        """Sends a line as soon as the descriptor takes it."""
        if self._ended:
            return
        self._queue.append(memoryview(line))
        self._size += len(line)
        if self.full:
            self._drained.clear()
        self._flush()

    async def drained(self) -> None:
        """Waits until the operator is no longer far behind, or has gone."""
        await self._drained.wait()

    async def finish(self, seconds: float) -> None:
        """Waits until all is sent, but not for an operator that does not read."""
        end = time.monotonic() + seconds
        while self._queue and time.monotonic() < end:
            await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        """Drops what is not sent yet."""
        self._stop_waiting()
        self._queue.clear()
        self._ended = True
        self._drained.set()

    def _flush(self) -> None:
        try:
            while self._queue:
                sent = os.write(self._descriptor, self._queue[0][:_PIECE])
                self._size -= sent
                self._queue[0] = self._queue[0][sent:]
                if not self._queue[0]:
                    self._queue.popleft()
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                asyncio.get_running_loop().add_writer(self._descriptor, self._flush)
        except OSError:  # EPIPE: nobody reads
            self.close()
            self._on_end()
            return
        else:
            self._stop_waiting()
        if not self.full:
            self._drained.set()

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            asyncio.get_running_loop().remove_writer(self._descriptor)
