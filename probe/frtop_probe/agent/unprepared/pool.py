"""Children that read processes from outside: one, and more while reads do not return.

A rank that is stuck in a driver blocks whoever reads its memory. All ranks of a host may be
stuck there at once, so a look that takes long must not hold up those at other ranks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from frtop_probe.unprepared.discovery.facts import Discovery
from frtop_probe.unprepared.worker import Look, UnpreparedWorker

MAX_CHILDREN: Final = 4
"""Some 25 MB each while looks are slow; otherwise there is one."""


class UnpreparedPool:
    """Shares workers among looks; starts another one only while all others are busy."""

    def __init__(self, make: Callable[[], UnpreparedWorker] = UnpreparedWorker) -> None:
        self._make = make
        self._workers: list[UnpreparedWorker] = []
        self._busy: set[UnpreparedWorker] = set()
        self._freed = asyncio.Event()

    @property
    def size(self) -> int:
        return len(self._workers)

    async def look(
        self,
        pid: int,
        *,
        rings: int | None = None,
        since: Mapping[str, int] | None = None,
        environment: Collection[str] = (),
    ) -> Look:
        """Reads the c10d state of one process, with its transports past c10d, or with its rings."""
        worker = await self._take()
        try:
            return await worker.look(
                pid,
                rings=rings,
                since=since,
                environment=environment,
                transports=rings is None,
            )
        finally:
            self._put(worker)

    async def scan(self, recorded: Collection[tuple[int, int]]) -> Discovery:
        """Searches this host for jobs."""
        worker = await self._take()
        try:
            return await worker.scan(recorded)
        finally:
            self._put(worker)

    async def shrink(self) -> None:
        """Ends the children that are not needed any more; the first one is left."""
        spare = [one for one in self._workers[1:] if one not in self._busy]
        self._workers = [one for one in self._workers if one not in spare]
        await _close(spare)

    async def close(self) -> None:
        """Ends all children. Whoever looks again gets new ones: a closed worker reads no more."""
        workers, self._workers = self._workers, []
        self._busy.clear()
        await _close(workers)

    async def _take(self) -> UnpreparedWorker:
        while True:
            # The first one has the addresses of most processes at hand.
            idle = next((one for one in self._workers if one not in self._busy), None)
            if idle is None and len(self._workers) < MAX_CHILDREN:
                idle = self._make()
                self._workers.append(idle)
            if idle is not None:
                self._busy.add(idle)
                return idle
            self._freed.clear()
            await self._freed.wait()

    def _put(self, worker: UnpreparedWorker) -> None:
        self._busy.discard(worker)
        self._freed.set()


async def _close(workers: Collection[UnpreparedWorker]) -> None:
    await asyncio.gather(*(worker.close() for worker in workers))
