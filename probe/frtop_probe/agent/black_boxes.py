"""Writes black boxes: when a rank of a recorded job ends badly, saves the ranks of its host.

Of a recorded job that ends well there is a box as well, the record to compare later runs with.

The launcher, or the end of the container, may kill everything at any moment. So the first box holds
what is at hand. It is rewritten with the stacks of the living ranks, again at further deaths, and a
last time when all ranks have ended. If a job stalls, snapshots are taken in advance.

Unrecorded jobs leave no box, except jobs without a recorder that somebody watches. The agent does
not wait for the boxes of those.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import structs

from frtop_probe import archive, wire
from frtop_probe.agent.box_folder import BOXES, make_room
from frtop_probe.agent.histories import history
from frtop_probe.agent.interfaces import ClockReading, MakeUpdate
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.snapshots import DEADLINE, SnapshotTaker
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.proc import daemon_thread
from frtop_probe.proc.within import within
from frtop_probe.ring.box_lock import BOX_KIND, BOX_SUFFIX, RECORD, RecordingLock
from frtop_probe.ring.header import RingClosed

AFTER_DEATH: Final = 1.0
"""Seconds to get the stacks of living ranks: the launcher may end them at any moment."""
SLOW: Final = 10.0
"""Seconds without an answer from the record folder after which a note is sent."""
MAX_SNAPSHOTS_AT_ONCE: Final = 64
OPTION: Final = "`frtop run --record`"
BOX_NOTE: Final = "black box of "
ENDED_WELL: Final = "-ended"
"""At the end of a name: only such boxes make room for others in a folder that the user named."""
MAX_ROWS: Final = 16 * 8192
"""Most ops of all ranks together; with more than sixteen ranks, or longer rings, each rank keeps
fewer."""
SNAPSHOT_LIFETIME_NS: Final = 60_000_000_000
"""How long after a stall its snapshots may still explain a death."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PART: Final = 48
_NEVER: Final = 2**63
Occasion = Literal["stall", "request", "death"]
MAX_SNAPSHOTS: Final[dict[Occasion, int]] = {"stall": 4, "request": 4, "death": 2}
"""Sets of snapshots per occasion; those of a stall come in pairs."""
MAX_SNAPSHOT_BYTES: Final = 8 * 1024 * 1024
"""Most bytes per job; beyond that the oldest are dropped. Snapshots of eight ranks take 60 KB."""
QUIET_NS: Final = 10_000_000_000
"""Time without progress after which a job counts as stalled."""
PAIR_NS: Final = 2_500_000_000
"""Time between the two snapshots of a pair."""
MAX_WAIT_NS: Final = 300_000_000_000
"""The longest time between pairs."""


class BlackBoxWriter:
    """Writes the black boxes of one agent; called by the service's ticks and at deaths.

    `host` and `instance` are those of the agent: file names contain them.
    """

    def __init__(
        self,
        tracker: RankTracker,
        taker: SnapshotTaker,
        make_update: MakeUpdate,
        lock: RecordingLock,
        *,
        host: str,
        instance: str,
    ) -> None:
        self._host = host
        self._instance = instance
        self._tracker = tracker
        self._taker = taker
        self._make_update = make_update
        self._ranks_seen = 0
        self._lock = lock
        self._jobs: list[RecordedJob] = []
        self._job_of: dict[int, RecordedJob] = {}
        self._paths: set[Path] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.gauge_history: Callable[[], wire.GaugeHistory] | None = None
        """Returns the history of the host's gauges; None if nobody reads them."""
        self.gauge_minutes: Callable[[int], wire.GaugeHistory | None] = lambda _: None
        """Returns the gauges of each minute from a time on."""
        tracker.on_death = self.handle_death
        taker.on_snapshots = self._add_requested

    @property
    def busy(self) -> bool:
        """Whether a recorded rank lives, or a box is incomplete."""
        return any(not job.closed and (not job.since_ns or job.wanted) for job in self._jobs)

    def tick(self, now_ns: int) -> None:
        """Assigns ranks to jobs; handles deaths and stalls."""
        for rank in self._tracker.ranks.values():
            self._assign(rank)
        for job in self._jobs:
            with self._guarded(job):
                self._update(job, now_ns)
        self._job_of = {key: job for key, job in self._job_of.items() if key in self._tracker.ranks}
        # A closed job is remembered while its ranks are: they must not open another job.
        known = set(self._job_of.values())
        self._jobs = [job for job in self._jobs if not job.closed or job in known]
        self._update_lock()

    def handle_death(self, rank: TrackedRank) -> None:
        """Called at the moment of a death, before the rank is read again."""
        self._assign(rank)
        job = self._job_of.get(rank.key)
        if job is not None:
            with self._guarded(job):
                if job.note_end(rank):
                    self._check_failure(job, rank)

    async def finish(self, tick: Callable[[], None], end: float) -> None:
        """Completes boxes before the agent leaves, until `end` on the monotonic clock.

        Writes jobs that stall now, because they may be killed later.
        """
        now_ns = time.monotonic_ns()
        for job in self._jobs:
            hangs = not job.since_ns and job.stall.is_stalled(now_ns)
            if not job.closed and not job.wanted and hangs:
                self._request_box(job)
        while self.busy and time.monotonic() < end:
            await asyncio.sleep(0.05)
            tick()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lock.remove()

    def _assign(self, rank: TrackedRank) -> None:
        """Puts a rank into its job, even if the rank has only now named it."""
        identity, record = rank.job, rank.record
        job = self._job_of.get(rank.key)
        if identity is None or not record:
            if job is not None and job.since_ns and not (job.wanted or job.closed):
                job.remove_rank(rank)  # nobody watches it now
                del self._job_of[rank.key]
            return
        since_ns = rank.first_seen_ns if isinstance(rank, UnpreparedRank) else 0
        if since_ns and job is None and not rank.lives:
            return  # nobody watched when it ended
        if job is not None and (job.closed or job.matches(record, identity)):
            job.add_rank(rank, identity)
            return
        if job is not None:
            job.remove_rank(rank)
        matching = (job for job in reversed(self._jobs) if job.matches(record, identity))
        found = next(matching, None)
        if found is None:
            found = RecordedJob(self._host, record, identity, since_ns)
            self._jobs.append(found)
        found.add_rank(rank, identity)
        self._job_of[rank.key] = found
        self._ranks_seen += 1

    def _update(self, job: RecordedJob, now_ns: int) -> None:
        if job.closed:
            return
        for rank in list(job.ranks.values()):
            if rank.key not in self._tracker.ranks and rank.exit_info is None:
                if job.since_ns and job.wanted:  # nobody watches now: leave the box as it is
                    self._close(job)
                    job.changed.set()
                    return
                job.remove_rank(rank)  # it made a new ring
            elif job.note_end(rank) or (rank.lives and not job.failed):
                self._check_failure(job, rank)
        living = job.living
        if job.over:
            self._end(job)
        elif living:
            job.drop_old_snapshots(now_ns)
            progress = tuple((rank.key, rank.progress) for rank in living)
            if job.stall.update(progress, now_ns):
                self._start(self._take_snapshots(job, "stall", DEADLINE))

    def _end(self, job: RecordedJob) -> None:
        """Has the last box of a job written."""
        if job.wanted:
            job.changed.set()
        elif job.seen_alive and not job.since_ns:
            job.ended_well = True
            self._request_box(job)
        else:
            self._close(job)

    def _check_failure(self, job: RecordedJob, rank: TrackedRank) -> None:
        """Starts a box at the first bad end: a death, or an exception that ends the program."""
        job.changed.set()
        failed = rank.ended_by_exception or (not rank.lives and rank.has_failed)
        if not job.failed and failed:
            job.failed = True
            if job.seen_alive:
                updates = (rank.full() for rank in job.ranks.values())
                job.before = self._make_update(tuple(u for u in updates if u.identity), None)
            self._request_box(job)
            self._start(self._take_snapshots(job, "death", AFTER_DEATH))

    def _request_box(self, job: RecordedJob) -> None:
        if not job.wanted:
            job.wanted = True
            self._start(self._keep_writing(job))

    async def _take_snapshots(self, job: RecordedJob, occasion: Occasion, seconds: float) -> None:
        living = job.living[:MAX_SNAPSHOTS_AT_ONCE]
        if not living:
            return
        keys = tuple(rank.key for rank in living)
        request = wire.SnapshotRequest(0, keys, pids=awaited_workers(living))
        try:
            # Rings of torch's Flight Recorder end with their processes.
            rings = asyncio.gather(*(rank.read_ops(0) for rank in living))
            snapshots, _ = await asyncio.gather(self._taker.take(request, living, seconds), rings)
        except Exception as error:  # noqa: BLE001 - a failed snapshot must not end the agent
            name = job.job.name
            self._tracker.note(f"a snapshot for the black box of {name} failed: {error!r}")
            return
        # A rank that has ended since then has no stacks to show.
        seen = (one for one in snapshots if any(dump.error != "gone" for dump in one.dumps))
        job.snapshots.add(occasion, seen, time.monotonic_ns())
        job.changed.set()

    def _add_requested(self, snapshots: tuple[wire.Snapshot, ...]) -> None:
        """Adds the snapshots that operators have requested."""
        for job in {self._job_of[one.key] for one in snapshots if one.key in self._job_of}:
            if not job.closed:
                own = (one for one in snapshots if one.key in job.ranks and one.dumps)
                job.snapshots.add("request", own, time.monotonic_ns())

    async def _keep_writing(self, job: RecordedJob) -> None:
        """Rewrites a box, one write at a time, until it is complete."""
        # The first box omits the rings of living ranks, which take long to read.
        most: int | None = max(1, len(job.ranks) - len(job.living))
        with self._guarded(job):
            path = self._path(job)
            while not job.closed:
                job.changed.clear()
                complete = job.over
                content = await self._content(job, complete, None if complete else most)
                await self._write(job, path, content)
                if complete:
                    self._close(job)
                elif most is None:
                    await job.changed.wait()
                most = None

    async def _content(self, job: RecordedJob, complete: bool, most: int | None) -> wire.BlackBox:
        histories = await job.histories(most)
        now = ClockReading.now()
        after = self._make_update(job.updates_now(now.monotonic_ns), now)
        for name, reason in job.faults.items():
            text = f"the black box of {job.job.name} lacks data of {name}: {reason}"
            self._tracker.note_fault(text)
        notes = tuple(note for note in after.notes if not note.startswith(BOX_NOTE))
        after = structs.replace(after, notes=notes)
        known = (one.identity for one in after.ranks)
        began_ns = [one.started_ns for one in known if one is not None]
        return wire.BlackBox(
            host=self._host,
            instance=self._instance,
            job=job.job,
            monotonic_ns=after.monotonic_ns,
            wall_ns=after.wall_ns,
            before=job.before,
            after=after,
            snapshots=job.snapshots.encoded(),
            histories=histories,
            complete=complete,
            version=after.version,
            since_ns=job.since_ns,
            gauges=self.gauge_history() if self.gauge_history is not None else None,
            minutes=self.gauge_minutes(min(began_ns, default=0)),
        )

    async def _write(self, job: RecordedJob, path: Path, box: wire.BlackBox) -> None:
        """Writes a box; a problem becomes a note, since the job must not suffer."""
        # An agent that found only dead ranks may follow an agent that has already written their
        # box.
        unless = "" if job.seen_alive else f"{job.file_stem(self._host)}-*"
        others = ""
        if job.since_ns:
            others = f"*{BOX_SUFFIX}"
        elif job.ended_well:
            others = f"*-{_clean(self._host)}-??????{ENDED_WELL}{BOX_SUFFIX}"
        writing = daemon_thread.run(lambda: _write(path, box, unless, others), "frtop black box")
        try:
            problem = await within(SLOW, asyncio.shield(writing))
        except TimeoutError:
            self._tracker.note(
                f"{path.parent} has not answered for {SLOW:.0f} s: the black box of "
                f"{job.job.name} waits for it; check that its file system is available"
            )
            problem = await writing
        if problem:
            self._tracker.note(f"no black box of {job.job.name}: {problem}")
        elif job.since_ns:
            self._tracker.note_box(f"{BOX_NOTE}{job.job.name}: frtop open {shlex.quote(str(path))}")

    def _path(self, job: RecordedJob) -> Path:
        name = job.file_name(self._host, self._instance)
        path = Path(job.record, name)
        number = 2
        while path in self._paths:
            path = Path(job.record, name).with_stem(f"{Path(name).stem}.{number}")
            number += 1
        self._paths.add(path)
        return path

    @contextmanager
    def _guarded(self, job: RecordedJob) -> Iterator[None]:
        """Gives up the box on any error; the agent goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - damaged rings, and unforeseen errors
            self._tracker.note(f"no black box of {job.job.name}: {error!r}")
            self._close(job)

    def _close(self, job: RecordedJob) -> None:
        job.close()
        self._update_lock()

    def _update_lock(self) -> None:
        """Holds the recording lock as long as a box may still be written."""
        try:
            if any(not job.closed and not job.since_ns for job in self._jobs):
                self._lock.acquire(self._ranks_seen)
            else:
                self._lock.release()
        except OSError as error:
            self._tracker.note(f"frtop run will not wait for black boxes: {error.strerror}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(path: Path, box: wire.BlackBox, unless: str, others: str) -> str:
    """Writes a box unless another file matches `unless`; returns the problem, or "".

    The oldest files that match `others` make room for it, if there are too many.
    """
    setting = BOXES if box.since_ns else RECORD
    if not path.is_absolute():
        return f"{setting}={path.parent} is not an absolute path: set it to one"
    try:
        if unless and any(other != path for other in path.parent.glob(unless)):
            return ""
        if others:
            make_room(path.parent, others, keep=path)
        archive.write(path, BOX_KIND, wire.encode(box))
    except OSError as error:
        return (
            f"{path.parent}: {error.strerror}; make room there, or make it a folder that this "
            f"user may write to, or name another with {BOXES if box.since_ns else OPTION}"
        )
    return ""


class RecordedJob:
    """The state of one recorded job.

    `failed` is true from the first bad end of a rank. `wanted` means that a box must be
    written: after a failure, at a good end, or when the agent leaves while the job stalls.
    `closed` jobs need nothing more. `since_ns` is when a job without a recorder was first seen, 0
    for others.
    """

    def __init__(self, host: str, record: str, job: wire.Job, since_ns: int = 0) -> None:
        self.record = record
        self.since_ns = since_ns
        self.job = job
        self.ranks: dict[int, TrackedRank] = {}
        self.before: wire.Update | None = None
        self.failed = False
        self.wanted = False
        self.ended_well = False
        self.changed = asyncio.Event()
        self.closed = False
        self.seen_alive = False
        self.faults: dict[str, str] = {}
        """Why the box lacks something, by the name of the rank."""
        self.snapshots = RecentSnapshots(host)
        self.stall = StallDetector()
        self._host = host
        self._dead: set[int] = set()
        self._ended: dict[int, wire.RankUpdate] = {}
        self._histories: dict[int, tuple[str, bytes]] = {}

    @property
    def over(self) -> bool:
        """Whether all ranks have ended and their exit info was sent."""
        return all(rank.exit_info is not None for rank in self.ranks.values())

    @property
    def living(self) -> list[TrackedRank]:
        return [rank for rank in self.ranks.values() if rank.lives]

    def matches(self, record: str, job: wire.Job) -> bool:
        """Whether a rank with this job identity belongs here; unknown fields match anything."""
        mine = self.job
        return (
            not self.closed
            and self.record == record
            and _compatible(mine.nonce, job.nonce)
            and _compatible(mine.master_addr, job.master_addr)
            and _compatible(mine.master_port, job.master_port)
            and _compatible(mine.world_size, job.world_size)
            and (mine.run_id, mine.attempt) == (job.run_id, job.attempt)
        )

    def add_rank(self, rank: TrackedRank, job: wire.Job) -> None:
        """Adds a rank, and fills in what it knows about the job."""
        if rank.key in self.ranks and job == self.job:
            return
        self.ranks[rank.key] = rank
        self.seen_alive = self.seen_alive or rank.lives
        mine = self.job
        self.job = wire.Job(
            mine.master_addr or job.master_addr,
            mine.master_port or job.master_port,
            mine.world_size or job.world_size,
            mine.run_id,
            mine.attempt,
            mine.nonce or job.nonce,
            mine.name or job.name,
        )

    def remove_rank(self, rank: TrackedRank) -> None:
        """Removes a rank that belongs to another job, or has made a new ring."""
        self.ranks.pop(rank.key, None)

    def note_end(self, rank: TrackedRank) -> bool:
        """Records a rank's death or exit info; returns whether there is a new one."""
        if rank.lives:
            return False
        if rank.exit_info is not None:
            if rank.key in self._ended:
                return False
            self._ended[rank.key] = rank.full()
            self._dead.add(rank.key)
            return True
        if rank.key in self._dead:
            return False
        self._dead.add(rank.key)
        return True

    def drop_old_snapshots(self, now_ns: int) -> None:
        """Drops snapshots of a stall that ended long ago."""
        if not self.wanted and self.stall.over_for_ns(now_ns) > SNAPSHOT_LIFETIME_NS:
            self.snapshots.drop_before(now_ns - SNAPSHOT_LIFETIME_NS)

    def updates_now(self, now_ns: int) -> tuple[wire.RankUpdate, ...]:
        """The current state of all ranks; ended ranks as last sent."""
        found = []
        for rank in self.ranks.values():
            with self._noted(rank):
                update = self._ended.get(rank.key) or rank.reread(now_ns)
                wire.size_of_rank(update)
                found.append(update)
        return tuple(found)

    @contextmanager
    def _noted(self, rank: TrackedRank) -> Iterator[None]:
        """Leaves out a rank if its ring cannot be read."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a ring may hold anything
            self.faults[rank.name] = repr(error)

    async def histories(self, most: int | None = None) -> tuple[wire.HistoryResponse, ...]:
        """The ops of all ranks, or of the `most` ranks that died first.

        They are already encoded and fit only for writing. So a rank that is dead or issues
        nothing is read once, even if its ring must make room for new ranks.
        """
        limit = MAX_ROWS // max(1, len(self.ranks))
        order = sorted(self.ranks.values(), key=lambda rank: (rank.died_ns or _NEVER, rank.key))
        found: list[wire.HistoryResponse] = []
        for rank in order[:most]:
            stamp = "dead"
            known = self._histories.get(rank.key)
            with self._noted(rank), suppress(RingClosed):  # removed to make room
                if rank.lives:
                    stamp = repr(rank.history_stamp)
                if known is None or known[0] != stamp:
                    ops = await _history(rank, limit)
                    data = wire.encode(wire.HistoryResponse(0, self._host, rank.key, ops))
                    known = self._histories[rank.key] = (stamp, data)
            if known is not None:
                found.append(cast("wire.HistoryResponse", msgspec.Raw(known[1])))
        return tuple(found)

    def close(self) -> None:
        """Releases everything except the ranks: the box is written, or not needed."""
        self.closed = True
        self.before = None
        self.snapshots = RecentSnapshots(self._host)
        self._histories.clear()
        self._ended.clear()

    def file_name(self, host: str, instance: str) -> str:
        """The name of this agent's box: readable, and unique by the agent's instance."""
        end = ENDED_WELL if self.ended_well else ""
        return f"{self.file_stem(host)}-{_clean(instance[:6])}{end}{BOX_SUFFIX}"

    def file_stem(self, host: str) -> str:
        """The part of the name that all boxes of this job and host share, from any agent."""
        job = self.job
        which = job.nonce or job.run_id or f"{job.master_addr}-{job.master_port}"
        return "-".join(map(_clean, (job.name or "job", which, f"a{job.attempt}", host)))


@dataclass(frozen=True, slots=True)
class _Encoded:
    occasion: Occasion
    at_ns: int
    data: bytes


class RecentSnapshots:
    """The last snapshots of one job's ranks on this host, bounded in number and bytes."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._sets: list[_Encoded] = []

    def add(self, occasion: Occasion, snapshots: Iterable[wire.Snapshot], now_ns: int) -> None:
        """Adds snapshots that were taken together; drops the oldest of the same occasion."""
        found = tuple(snapshots)
        if not found:
            return
        data = wire.encode(wire.SnapshotResponse(0, self._host, found, now_ns))
        self._sets.append(_Encoded(occasion, now_ns, data))
        alike = [one for one in self._sets if one.occasion == occasion]
        for old in alike[: -MAX_SNAPSHOTS[occasion]]:
            self._sets.remove(old)
        while sum(len(one.data) for one in self._sets) > MAX_SNAPSHOT_BYTES:
            self._sets.pop(0)

    def drop_before(self, before_ns: int) -> None:
        """Drops snapshots taken before `before_ns`."""
        self._sets = [one for one in self._sets if one.at_ns >= before_ns]

    def encoded(self) -> tuple[wire.SnapshotResponse, ...]:
        """All of them, oldest first; already encoded and fit only for writing."""
        return tuple(cast("wire.SnapshotResponse", msgspec.Raw(one.data)) for one in self._sets)


def awaited_workers(ranks: Iterable[TrackedRank]) -> tuple[int, ...]:
    """Pids of the DataLoader workers that these ranks are waiting for."""
    known = (rank.status() for rank in ranks)
    fetches = (status.fetch for status in known if status is not None)
    return tuple(
        fetch.worker_pid
        for fetch in fetches
        if fetch is not None and fetch.begin_ns > fetch.end_ns and fetch.worker_pid
    )


async def _history(rank: TrackedRank, limit: int) -> wire.History:
    if isinstance(rank, RingRank):
        return await history(rank, limit)
    return rank.flight.history(limit) if isinstance(rank, UnpreparedRank) else wire.History()


def _compatible(one: str | int, other: str | int) -> bool:
    return one == other or not one or not other


def _clean(text: str) -> str:
    return _UNSAFE.sub("_", text)[:_MAX_PART].strip(".") or "_"


class StallDetector:
    """Detects that a job makes no progress, and schedules snapshots of it. Pure: takes `now`.

    If a launcher kills a hung job, no time is left for snapshots, so its black box needs
    earlier ones. They are taken in pairs, because one alone does not show whether anything
    moves, and less and less often, because they show the same.
    """

    def __init__(self) -> None:
        self._progress: Hashable = None
        self._since_ns = 0
        self._ended_ns = 0
        self._due_ns = 0
        self._first = True
        self._wait_ns = QUIET_NS

    def update(self, progress: Hashable, now_ns: int) -> bool:
        """Takes the current progress; returns whether a snapshot is due.

        `progress` is any value that changes when something moves.
        """
        if progress != self._progress:
            if self.is_stalled(now_ns):
                self._ended_ns = now_ns
            self._progress = progress
            self._since_ns = now_ns
            self._due_ns = now_ns + QUIET_NS
            self._first, self._wait_ns = True, QUIET_NS
            return False
        if now_ns < self._due_ns:
            return False
        if self._first:
            self._due_ns = now_ns + PAIR_NS
        else:
            self._due_ns += self._wait_ns - PAIR_NS
            self._wait_ns = min(2 * self._wait_ns, MAX_WAIT_NS)
        self._first = not self._first
        return True

    def is_stalled(self, now_ns: int) -> bool:
        """Whether nothing has moved for `QUIET_NS`."""
        return self._progress is not None and now_ns - self._since_ns >= QUIET_NS

    def over_for_ns(self, now_ns: int) -> int:
        """Time since the last stall ended; 0 during a stall."""
        return 0 if self.is_stalled(now_ns) else now_ns - self._ended_ns
