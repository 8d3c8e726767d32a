"""Tracks the ranks of unprepared jobs, as long as somebody looks.

Child processes (`unprepared.worker`), which may be left behind, do all reading: one child, and more
while reads do not return. A rank stuck in a driver blocks any process that reads its memory, and
all ranks of a host may be stuck there at once. While no operator asks for anything, nothing is
read, and no such rank is tracked.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.rank_tracker import RankTracker, ShownRanks
from frtop_probe.agent.unprepared.flight_history import MAX_OPS, FlightHistory
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.proc import processes
from frtop_probe.proc.line_child import CHILD_ENDED, NO_CHILD, TOO_MANY_LEFT
from frtop_probe.unprepared.discovery.facts import SCAN_FAILED, Candidate, Discovery
from frtop_probe.unprepared.flight_settings import SIZE_NAMES
from frtop_probe.unprepared.reader import UNCHANGING
from frtop_probe.unprepared.worker import (
    SCAN_TOOK_TOO_LONG,
    TOOK_TOO_LONG,
    Look,
    UnpreparedWorker,
)

LOOK_S: Final = 1.0
"""Seconds between two looks at a rank's c10d state, if they cost little."""
MAX_LOOK_S: Final = 5.0
OTHER_LOOK_S: Final = 4.0
"""The same for a rank that nobody shows; once shown, it is looked at soon."""
FIRST_LOOKS: Final = 3
"""Looks that show which ops are in progress, and whether they stay in progress."""
LOAD: Final = 0.25
"""Largest share of a core for looks: with many ranks, each is looked at less often."""
SCAN_S: Final = 2.0
"""Seconds between two searches for new ranks."""
SLOW_S: Final = 0.3
"""If a look takes longer, looks at other ranks begin alongside it."""
ROUND_S: Final = 5.0
"""Longest round of looks. Ranks left over come first in the next round."""
RETRY_S: Final = 60.0
"""Pause after a read that took too long and left a child behind."""
RESTART_S: Final = 10.0
"""Pause after a look or a search ended the child, or failed to start one."""
INTEREST_S: Final = 30.0
"""How long after an operator's last request ranks are still tracked. A screen asks for the
time every 5 s."""
MAX_RANKS: Final = 64
"""Most ranks without a recorder tracked on one host."""

NO_RING_S: Final = 30.0
"""The recorder makes its ring when torch is imported. An older rank without a ring has no
recorder, whatever its environment says."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAUSES: Final = {
    CHILD_ENDED: RESTART_S,
    NO_CHILD: RESTART_S,
    SCAN_FAILED: RESTART_S,
    SCAN_TOOK_TOO_LONG: RESTART_S,  # the next one skips the process where it hung
    **dict.fromkeys((TOOK_TOO_LONG, TOO_MANY_LEFT, *UNCHANGING), RETRY_S),
}
"""Pause after a failed look or search, by its reason."""
COMPARE_S: Final = 10.0
"""Seconds between two reads of a Flight Recorder to compare ops, while ops are issued."""
COMPARE_LOAD: Final = 0.05
"""Largest share of time for these reads, per rank; on a busy host they are slow."""
MAX_COMPARE_S: Final = 15.0
FRESH_S: Final = 0.8
"""A ring read this recently is not read again for a snapshot."""
UNCHANGED_S: Final = 5.0
"""The same, if the rank has issued nothing since."""
RINGS_AT_ONCE: Final = 2
"""Most rings read at once: each child searches for symbols by itself."""
RING_WAIT_S: Final = 0.5
"""How long a snapshot waits for a ring: its first look takes 0.1 s."""
MAX_CHILDREN: Final = 4
"""Most children while looks are slow, about 25 MB each; otherwise there is one."""


class UnpreparedWatch:
    """Finds unprepared ranks, and reads their c10d state.

    `last_asked` returns when the last request came, by `time.monotonic()`. `boxes` is the folder
    for the black boxes of shown ranks; "" for none.
    """

    def __init__(
        self,
        tracker: RankTracker,
        last_asked: Callable[[], float],
        pool: UnpreparedPool | None = None,
        boxes: str = "",
    ) -> None:
        self._tracker = tracker
        self._last_asked = last_asked
        self._pool = pool if pool is not None else UnpreparedPool()
        self._watched: dict[tuple[int, int], Watched] = {}
        self._looking: dict[asyncio.Task[None], Watched] = {}
        self._scanning: asyncio.Task[None] | None = None
        self._scan_at = 0.0
        self._spent_s = 0.0
        self._shown = shown = tracker.shown
        self._boxes = boxes
        self._rings = UnpreparedRings(self._pool, shown, self._note)
        self._active = False

    async def run(self) -> None:
        """Works until cancelled."""
        self._tracker.searching = True
        try:
            while True:
                begin = time.monotonic()
                pause_s = LOOK_S
                try:
                    pause_s = await self._step(begin)
                except Exception as error:  # noqa: BLE001 - prepared ranks must still be followed
                    self._note(error)
                    pause_s = RESTART_S
                await asyncio.sleep(max(0.1, pause_s - (time.monotonic() - begin)))
        finally:
            await self._stop()

    async def _step(self, now: float) -> float:
        """Looks at all ranks if an operator is there; returns the time until the next step."""
        if now - self._last_asked() < INTEREST_S:
            self._active = True
            await self._scan(now)
            await self._look_at_all(now)
            if self._tracker.searching:
                self._tracker.searching = self._is_searching(time.monotonic())
            spent_s = self._spent_s + self._rings.spent_s
            return min(MAX_LOOK_S, max(LOOK_S, spent_s / LOAD))
        if self._active:
            self._active = False
            await self._rest()
        return LOOK_S

    async def _scan(self, now: float) -> None:
        """Searches for ranks if due; waits for the result only while no rank is known."""
        if self._scanning is None and now >= self._scan_at:
            self._scanning = asyncio.create_task(self._find())
        if self._scanning is not None:
            await asyncio.wait({self._scanning}, timeout=SLOW_S if self._watched else None)
            if self._scanning.done():
                done, self._scanning = self._scanning, None
                self._scan_at = max(self._scan_at, time.monotonic() + SCAN_S)
                error = done.exception()
                if isinstance(error, Exception):  # still look at known ranks
                    self._note(error)
                    self._scan_at = time.monotonic() + RESTART_S

    async def _find(self) -> None:
        first = not self._scan_at
        found = await self._pool.scan(self._tracker.recorded)
        self._scan_at = time.monotonic() + max(map(_pause_s, found.reasons), default=0.0)
        guest = self._tracker.guest
        others = (one.note(through_shell=guest) for one in found.left_alone if one.ranks)
        elsewhere = () if guest else _notes_of_other_folders(found, self._tracker.recorded)
        notes = [*others, *elsewhere, *found.reasons]
        if self._add(found, first=first):
            notes.append(f"more than {MAX_RANKS} ranks without a recorder: not all are shown")
        self._tracker.set_unprepared_notes(notes)
        lives = any(watched.rank.lives for watched in self._watched.values())
        self._tracker.none_found = not (lives or found.reasons or self._is_one_starting(found))

    def _is_searching(self, now: float) -> bool:
        """Whether the first search is not over, or the first looks at a rank that it found.

        Ranks that came later belong to jobs that have just begun; there may always be some.
        """
        return not self._scan_at or any(
            one.first and one.rank.lives and one.looks < FIRST_LOOKS and one.not_before <= now
            for one in self._watched.values()
        )

    def _is_one_starting(self, found: Discovery) -> bool:
        """Whether a rank of ours has a recorder that has not made its ring yet."""
        recorded = self._tracker.recorded
        return any(
            one.prepared
            and (one.pid, one.start_ticks) not in recorded
            and not _has_rings_elsewhere(one)
            for job in found.jobs
            for one in job.ranks
        )

    def _add(self, found: Discovery, *, first: bool) -> bool:
        """Tracks ranks that were found; returns whether there were too many."""
        self._drop_forgotten()
        living = sum(watched.rank.lives for watched in self._watched.values())
        recorded, now_s = self._tracker.recorded, time.clock_gettime(time.CLOCK_BOOTTIME)
        unprepared = [
            (one, job)
            for job in found.jobs
            for one in job.ranks
            if not one.prepared
            # The operator at the end of this pipe has no other agent that reads them.
            or (self._tracker.guest and _has_rings_elsewhere(one))
            or _has_no_recorder(one, recorded, now_s)
            or (one.pid, one.start_ticks) in self._tracker.unread
        ]
        too_many = False
        for candidate, job in unprepared:
            identity = candidate.pid, candidate.start_ticks
            known = self._watched.get(identity)
            if known is not None:
                known.rank.learn(candidate, job)
                continue
            if living >= MAX_RANKS:
                too_many = True
                continue
            rank = self._tracker.add_unprepared(candidate, job)
            if rank is not None:
                watched = self._watched[identity] = Watched(rank, first)
                rank.read_ring = partial(self._rings.read_soon, watched)
                rank.box_folder = partial(self._box_folder, rank.key)
                living += 1
        return too_many

    def _box_folder(self, key: int) -> str:
        return self._boxes if key in self._shown else ""

    def _drop_forgotten(self) -> None:
        ranks = self._tracker.ranks
        self._watched = {
            identity: one for identity, one in self._watched.items() if one.rank.key in ranks
        }

    async def _look_at_all(self, now: float) -> None:
        """Looks at one rank after another, without waiting for those that do not answer."""
        self._drop_forgotten()
        self._spent_s = self._rings.spent_s = 0.0
        waiting = set(self._looking.values())
        due = [
            one
            for one in self._watched.values()
            if one.rank.lives and one not in waiting and one.not_before <= now and self._is_due(one)
        ]
        for watched in sorted(due, key=lambda one: one.looked_at):
            # A search may be under way in one of the children.
            while len(self._looking) >= MAX_CHILDREN - 1 and time.monotonic() < now + ROUND_S:
                await asyncio.wait(
                    self._looking, timeout=SLOW_S, return_when=asyncio.FIRST_COMPLETED
                )
            if time.monotonic() >= now + ROUND_S:
                return
            task = asyncio.create_task(self._look_at(watched))
            self._looking[task] = watched
            task.add_done_callback(self._looking.pop)
            await asyncio.wait({task}, timeout=SLOW_S)
        self._rings.drop_unwanted(self._watched.values())
        await self._rings.read_due(self._watched.values(), now + ROUND_S)
        if not self._looking and self._scanning is None:
            await self._pool.shrink()

    def _is_due(self, watched: Watched) -> bool:
        """Whether a look is due; after the first looks, later for a rank that nobody shows."""
        wanted = watched.looks < FIRST_LOOKS or watched.rank.key in self._shown
        return wanted or time.monotonic() >= watched.looked_at + OTHER_LOOK_S

    async def _look_at(self, watched: Watched) -> None:
        rank = watched.rank
        watched.looked_at = begin = time.monotonic()
        if processes.is_others(rank.pid):  # it gained rights: do not read it again
            watched.not_before = begin + RETRY_S
            return
        try:
            look = await self._pool.look(rank.pid)
            now = time.monotonic()
            reason = look.reason or (look.c10d.reason if look.c10d is not None else "")
            watched.not_before = now + _pause_s(reason)
            rank.take(look, time.monotonic_ns(), begun_ns=int(begin * 1e9))
        except Exception as error:  # noqa: BLE001 - one rank must not hide the others
            watched.not_before = time.monotonic() + RESTART_S
            self._note(error)
            return
        watched.looks += 1
        if watched.looks > 1:  # the first one searches for addresses and costs far more
            self._spent_s += now - begin

    def _note(self, error: Exception) -> None:
        self._tracker.note(f"a look at ranks without a recorder failed: {error!r}")

    async def _rest(self) -> None:
        """Forgets the ranks and ends the children, because nobody looks."""
        await self._stop()
        for watched in self._watched.values():
            if watched.rank.key in self._tracker.ranks:
                self._tracker.forget(watched.rank)
        self._watched.clear()
        self._tracker.set_unprepared_notes(())
        self._tracker.none_found = False
        self._tracker.searching = True
        self._scan_at = 0.0

    async def _stop(self) -> None:
        """Ends the children, even in the middle of a read."""
        tasks = list(self._looking)
        if self._scanning is not None:
            tasks.append(self._scanning)
            self._scanning = None
        tasks += [one.reading for one in self._watched.values() if one.reading is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()


def _pause_s(reason: str) -> float:
    """Seconds until the next try; a reason may be followed by a detail."""
    return next((pause_s for known, pause_s in _PAUSES.items() if reason.startswith(known)), 0.0)


def _has_no_recorder(rank: Candidate, recorded: Collection[tuple[int, int]], now_s: float) -> bool:
    """Whether the recorder is off in a rank although its environment starts it.

    Known only for ranks whose ring would be in this agent's folder. `now_s` counts from boot.
    """
    if (rank.pid, rank.start_ticks) in recorded or _has_rings_elsewhere(rank):
        return False
    return now_s - rank.start_ticks / _TICKS_PER_S > NO_RING_S


def _has_rings_elsewhere(rank: Candidate) -> bool:
    """Whether a prepared rank's ring is not in our folder, or is in a container."""
    return rank.inner_pid != rank.pid or rank.ring_folder != os.environ.get("FRTOP_DIR", "")


def _notes_of_other_folders(
    found: Discovery, recorded: Collection[tuple[int, int]]
) -> Iterator[str]:
    """Names jobs that another agent shows; to a person whose shell names no folder, none is there.

    Ranks in containers are left out: their folder is not ours, whatever its name.
    """
    ranks = Counter(
        (job.name, one.ring_folder)
        for job in found.jobs
        for one in job.ranks
        if one.prepared
        and one.inner_pid == one.pid
        and (one.pid, one.start_ticks) not in recorded
        and _has_rings_elsewhere(one)
    )
    for (name, folder), count in ranks.items():
        who = f"{count} rank{'s' if count > 1 else ''} of {name}"
        way = f"FRTOP_DIR={shlex.quote(folder)} frtop" if folder else "env -u FRTOP_DIR frtop"
        yield f"{who}{wire.RINGS_ELSEWHERE}{folder or 'the usual folder'}; {way}"


@dataclass(slots=True, eq=False)
class Watched:
    """A rank, when it was last looked at and when it may be next, by `time.monotonic()`.

    `first`: the first search found it. `ring_at` and `ring_issued` belong to the last read of its
    Flight Recorder; `compare_at` is when the next read for comparison is due.
    """

    rank: UnpreparedRank
    first: bool
    looked_at: float = 0.0
    not_before: float = 0.0
    looks: int = 0
    ring_at: float = 0.0
    ring_issued: int = 0
    compare_at: float = 0.0
    reading: asyncio.Task[None] | None = None


class UnpreparedRings:
    """Reads Flight Recorders for an `UnpreparedWatch`.

    `shown` are the ranks whose ops are kept; `note` takes unexpected errors.
    """

    def __init__(
        self,
        pool: UnpreparedPool,
        shown: ShownRanks,
        note: Callable[[Exception], None],
    ) -> None:
        self._pool = pool
        self._shown = shown
        self._note = note
        self._reads = asyncio.Semaphore(RINGS_AT_ONCE)
        self.spent_s = 0.0
        """Time spent on reads, without the first read of each rank."""

    async def read_due(self, ranks: Collection[Watched], end: float) -> None:
        """Reads the rings of ranks that have issued ops since the last read, in quick succession.

        Ops can be compared only while they are in the rings of all members.
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
        """Forgets ops of ranks that nobody has looked at for a while; they can be read again."""
        for watched in ranks:
            rank = watched.rank
            unwanted = rank.lives and rank.key not in self._shown
            if unwanted and rank.flight.read_ns and watched.reading is None:
                rank.flight = FlightHistory()
                watched.ring_at = watched.compare_at = 0.0
                watched.ring_issued = 0

    async def read_soon(self, watched: Watched, limit: int = 0) -> None:  # noqa: ARG002
        """Reads a rank's ring unless it was just read; waits only briefly."""
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
            watched.not_before = time.monotonic() + _pause_s(look.reason)
        except Exception as error:  # noqa: BLE001 - one rank must not hide the others
            self._note(error)
        is_first = not watched.ring_at  # it searches for symbols and costs far more
        watched.ring_at, watched.ring_issued = time.monotonic(), issued
        took_s = 0.0 if is_first else watched.ring_at - begin
        self.spent_s += took_s
        pause_s = max(COMPARE_S, min(took_s / COMPARE_LOAD, MAX_COMPARE_S))
        watched.compare_at = watched.ring_at + pause_s


class UnpreparedPool:
    """Shares workers among looks; starts another worker only while all others are busy."""

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
        """Reads the c10d state of a process, with its transports beyond c10d, or with its rings."""
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
        """Ends all children except the first."""
        spare = [one for one in self._workers[1:] if one not in self._busy]
        self._workers = [one for one in self._workers if one not in spare]
        await _close(spare)

    async def close(self) -> None:
        """Ends all children; the next look starts new ones."""
        workers, self._workers = self._workers, []
        self._busy.clear()
        await _close(workers)

    async def _take(self) -> UnpreparedWorker:
        while True:
            # The first worker knows the addresses of most processes.
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
