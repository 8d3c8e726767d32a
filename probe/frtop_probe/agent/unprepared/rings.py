"""Reads the Flight Recorders of ranks without a recorder: of those that somebody wants to see.

A ring is read when a snapshot or a history is asked for, and now and then to compare the ops of
ranks that are shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from frtop_probe.agent.shown_ranks import ShownRanks
from frtop_probe.agent.unprepared.flight_history import MAX_OPS, FlightHistory
from frtop_probe.agent.unprepared.pool import UnpreparedPool
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.unprepared.flight_settings import SIZE_NAMES

COMPARE_S: Final = 10.0
"""Seconds between two reads of a Flight Recorder only to compare ops, while some are issued."""
COMPARE_LOAD: Final = 0.05
"""Share of the time that these reads may take, per rank; on a busy host they are slow."""
MAX_COMPARE_S: Final = 15.0
FRESH_S: Final = 0.8
"""A ring that was read this short ago is not read again for a snapshot."""
UNCHANGED_S: Final = 5.0
"""For this long, nor is the ring of a rank that has issued nothing since."""
RINGS_AT_ONCE: Final = 2
"""Each child searches for symbols by itself: more would cost more than they save."""
RING_WAIT_S: Final = 0.5
"""How long a snapshot waits for a ring: its first look takes 0.1 s."""


@dataclass(slots=True, eq=False)
class Watched:
    """A rank, and when it was looked at and may be again, by `time.monotonic()`.

    `ring_at` and `ring_issued` are of the last read of its Flight Recorder, `compare_at` when the
    next one is due that nobody asked for.
    """

    rank: UnpreparedRank
    looked_at: float = 0.0
    not_before: float = 0.0
    looks: int = 0
    ring_at: float = 0.0
    ring_issued: int = 0
    compare_at: float = 0.0
    reading: asyncio.Task[None] | None = None


class UnpreparedRings:
    """Belongs to an `UnpreparedWatch`.

    Args of the constructor:
        pool: reads.
        shown: ranks whose ops are kept.
        pause_s: seconds for which a rank is left alone after a look, by its reason.
        note: takes an error that nobody expected.
    """

    def __init__(
        self,
        pool: UnpreparedPool,
        shown: ShownRanks,
        pause_s: Callable[[str], float],
        note: Callable[[Exception], None],
    ) -> None:
        self._pool = pool
        self._shown = shown
        self._pause_s = pause_s
        self._note = note
        self._reads = asyncio.Semaphore(RINGS_AT_ONCE)
        self.spent_s = 0.0
        """Time that reads took, but for the first ones of a rank."""

    async def read_due(self, ranks: Collection[Watched], end: float) -> None:
        """Reads the rings of ranks that have issued ops since, one soon after the other.

        What is compared must still be in the rings of all members.
        """
        for watched in ranks:
            now, rank = time.monotonic(), watched.rank
            if now >= end:
                return
            if rank.key not in self._shown:
                continue
            fresh = rank.lives and watched.looks > 1 and rank.issued != watched.ring_issued
            if fresh and now >= watched.compare_at:
                await self.read_soon(watched)

    def drop_unwanted(self, ranks: Collection[Watched]) -> None:
        """Forgets the ops of ranks that nobody has wanted to see for a while.

        They can be read again, but for those of ranks that have ended.
        """
        for watched in ranks:
            rank = watched.rank
            unwanted = rank.lives and rank.key not in self._shown
            if unwanted and rank.flight.read_ns and watched.reading is None:
                rank.flight = FlightHistory()
                watched.ring_at = watched.compare_at = 0.0
                watched.ring_issued = 0

    async def read_soon(self, watched: Watched, limit: int = 0) -> None:  # noqa: ARG002
        """Reads a rank's ring, unless that was done just now; waits for it a moment only."""
        now, rank = time.monotonic(), watched.rank
        if watched.reading is None:
            unchanged = rank.issued == watched.ring_issued
            pause_s = UNCHANGED_S if unchanged else FRESH_S
            if now < max(watched.ring_at + pause_s, watched.not_before) or not watched.looks:
                return
            watched.reading = asyncio.create_task(self._read(watched))
            watched.reading.add_done_callback(lambda _: setattr(watched, "reading", None))
        await asyncio.wait({watched.reading}, timeout=RING_WAIT_S)

    async def _read(self, watched: Watched) -> None:
        rank, begin = watched.rank, time.monotonic()
        issued, since = rank.issued, rank.flight.since()
        try:
            async with self._reads:
                look = await self._pool.look(
                    rank.pid, rings=MAX_OPS, since=since, environment=SIZE_NAMES
                )
            now_ns = time.monotonic_ns()
            rank.take_ring(look, now_ns, time.time_ns() - now_ns)
            watched.not_before = time.monotonic() + self._pause_s(look.reason)
        except Exception as error:  # noqa: BLE001 - one rank must not hide the others
            self._note(error)
        is_first = not watched.ring_at  # it searches for symbols, and is far dearer
        watched.ring_at, watched.ring_issued = time.monotonic(), issued
        took_s = 0.0 if is_first else watched.ring_at - begin
        self.spent_s += took_s
        pause_s = max(COMPARE_S, min(took_s / COMPARE_LOAD, MAX_COMPARE_S))
        watched.compare_at = watched.ring_at + pause_s
