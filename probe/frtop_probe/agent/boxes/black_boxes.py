"""Writes black boxes: when a rank of a recorded job ends badly, its host's ranks are saved.

The launcher, or the container's end, may kill everything at any moment. So the first box has
what is at hand; it is rewritten with the stacks of the living ranks, again at further deaths,
and a last time when all ranks have ended. Of a job that stalls, snapshots are taken in
advance. Jobs that nobody records are ignored, and those that nobody prepared while nobody watches
them. These are not waited for.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from frtop_probe import archive, wire
from frtop_probe.agent.boxes.box_folder import BOXES, make_room
from frtop_probe.agent.boxes.recorded_job import Occasion, RecordedJob, awaited_workers
from frtop_probe.agent.interfaces import ClockReading, MakeUpdate
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.snapshots import DEADLINE, SnapshotTaker
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.proc import daemon_thread
from frtop_probe.ring.recording import BOX_KIND, RecordingLock

AFTER_DEATH: Final = 1.0
"""Seconds for the stacks of living ranks: the launcher may end them at any moment."""
SLOW: Final = 10.0
"""Seconds without an answer of the record folder after which a note is sent."""
MAX_SNAPSHOTS_AT_ONCE: Final = 64
BOX_NOTE: Final = "black box of "


class BlackBoxWriter:
    """Writes the black boxes of one agent; called by the service's ticks and at deaths.

    `host` and `instance` are those of the agent: names of files contain them.
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
        """What there is of the host's gauges; None: nobody reads them."""
        tracker.on_death = self.handle_death
        taker.on_snapshots = self._add_requested

    @property
    def busy(self) -> bool:
        """Whether a recorded rank lives, or a box is not complete."""
        return any(not job.closed and (not job.since_ns or job.wanted) for job in self._jobs)

    def tick(self, now_ns: int) -> None:
        """Assigns ranks to jobs; handles deaths and stalls."""
        for rank in self._tracker.ranks.values():
            self._assign(rank)
        for job in self._jobs:
            with self._guarded(job):
                self._update(job, now_ns)
        self._job_of = {key: job for key, job in self._job_of.items() if key in self._tracker.ranks}
        # A closed job is remembered while its ranks are: they must not open another one.
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

        Jobs that stall are written now, because they may be killed later.
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
        """Puts a rank into its job, also when the rank has only now named it."""
        identity, record = rank.job, rank.record
        job = self._job_of.get(rank.key)
        if identity is None or not record:
            if job is not None and job.since_ns and not (job.wanted or job.closed):
                job.remove_rank(rank)  # nobody watches it any more
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
                if job.since_ns and job.wanted:  # nobody watches any more: the box stays as it is
                    self._close(job)
                    job.changed.set()
                    return
                job.remove_rank(rank)  # it has made a new ring
            elif job.note_end(rank) or (rank.lives and not job.failed):
                self._check_failure(job, rank)
        living = job.living
        if job.over:
            if job.wanted:
                job.changed.set()
            else:
                self._close(job)
        elif living:
            job.drop_old_snapshots(now_ns)
            progress = tuple((rank.key, rank.progress) for rank in living)
            if job.stall.update(progress, now_ns):
                self._start(self._take_snapshots(job, "stall", DEADLINE))

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
            # Rings of torch's recorder end with their processes.
            rings = asyncio.gather(*(rank.read_ops(0) for rank in living))
            snapshots, _ = await asyncio.gather(self._taker.take(request, living, seconds), rings)
        except Exception as error:  # noqa: BLE001 - a failed snapshot must not end the agent
            name = job.job.name
            self._tracker.note(f"a snapshot for the black box of {name} failed: {error!r}")
            return
        # A rank that has ended meanwhile has no stacks to show.
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
        # The first box leaves out the rings of living ranks, which take long to read.
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
            text = f"the black box of {job.job.name} lacks what cannot be read of {name}: {reason}"
            self._tracker.note_fault(text)
        notes = tuple(note for note in after.notes if not note.startswith(BOX_NOTE))
        after = structs.replace(after, notes=notes)
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
        )

    async def _write(self, job: RecordedJob, path: Path, box: wire.BlackBox) -> None:
        """Writes a box; a problem becomes a note, since the job must not suffer."""
        # An agent that found only dead ranks may follow one that has written their box.
        unless = "" if job.seen_alive else f"{job.file_stem(self._host)}-*"
        write = _write_of_unprepared if job.since_ns else _write
        writing = daemon_thread.run(lambda: write(path, box, unless), "frtop black box")
        try:
            problem = await asyncio.wait_for(asyncio.shield(writing), SLOW)
        except (asyncio.TimeoutError, TimeoutError):
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
        """Gives up the box when anything fails, so that the agent goes on."""
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


def _write_of_unprepared(path: Path, box: wire.BlackBox, unless: str) -> str:
    """Writes a box to the user's own folder, in which old ones give way."""
    if not path.is_absolute():
        return f"{BOXES}={path.parent} is no absolute path: set it to one"
    try:
        make_room(path.parent, keep=path)
    except OSError as error:
        return f"{path.parent}: {error.strerror}; name another folder with {BOXES}"
    return _write(path, box, unless)


def _write(path: Path, box: wire.BlackBox, unless: str) -> str:
    """Writes a box unless another file matches `unless`; returns the problem, or ""."""
    if not path.is_absolute():
        return f"{path.parent} is no absolute path: set FRTOP_RECORD to one"
    try:
        if unless and any(other != path for other in path.parent.glob(unless)):
            return ""
        archive.write(path, BOX_KIND, wire.encode(box))
    except OSError as error:
        return (
            f"{path.parent}: {error.strerror}; make room there, or make it a folder that this "
            "user may write to, or name another with `frtop run --record`"
        )
    return ""
