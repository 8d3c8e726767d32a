"""Black boxes: when a rank of a recorded job ends badly, all is written down at once.

Before the launcher's cascade, or the container's end, takes everything: first what is at
hand, then with the stacks of those that live, again at further deaths, and a last time
when all have ended. A job that stands still is looked at beforehand, since one that is
killed as a whole leaves no time for that. Jobs that nobody records are left alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from frtop_probe import archive, wire
from frtop_probe.agent.apart import apart
from frtop_probe.agent.case import Case, fetchers
from frtop_probe.agent.lastlooks import Occasion
from frtop_probe.agent.looks import DEADLINE, Looker
from frtop_probe.agent.moment import Moment
from frtop_probe.agent.rank import Rank
from frtop_probe.agent.roster import Roster
from frtop_probe.ring.recording import BOX_KIND, RecordingLock

AFTER_DEATH: Final = 1.0
"""Seconds for the stacks of those that still live: the launcher ends them any moment."""
SLOW: Final = 10.0
"""Seconds after which a record folder that does not answer is worth a note."""
MAX_LOOKED_AT: Final = 64

Told = Callable[[tuple[wire.RankUpdate, ...], Moment | None], wire.Update]
"""Makes an update of these ranks, as of a moment or of the last tick."""


class BlackBoxes:
    """Those of one agent. Its ticks come from the service, deaths from the roster."""

    def __init__(self, roster: Roster, looker: Looker, told: Told, lock: RecordingLock) -> None:
        self._roster = roster
        self._looker = looker
        self._told = told
        self._host = told((), None).host
        self._met = 0
        self._lock = lock
        self._cases: list[Case] = []
        self._of: dict[int, Case] = {}
        self._paths: set[Path] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        roster.on_death = self.died
        looker.on_looks = self._asked

    @property
    def busy(self) -> bool:
        """Whether something recorded lives, or is not written down yet."""
        return any(not case.closed for case in self._cases)

    def tick(self, now_ns: int) -> None:
        """Sorts ranks by job, sees who has ended, and who stands still."""
        for rank in self._roster.ranks.values():
            self._place(rank)
        for case in self._cases:
            with self._guarded(case):
                self._follow(case, now_ns)
        self._of = {key: case for key, case in self._of.items() if key in self._roster.ranks}
        known = set(self._of.values())  # closed ones, too: their ranks must not open another
        self._cases = [case for case in self._cases if not case.closed or case in known]
        self._hold()

    def died(self, rank: Rank) -> None:
        """Called at the moment of a death, before anything else is read of it."""
        self._place(rank)
        case = self._of.get(rank.key)
        if case is not None:
            with self._guarded(case):
                if case.mourn(rank):
                    self._weigh(case, rank)

    async def finish(self, tick: Callable[[], None], end: float) -> None:
        """Before leaving: waits for what is under way, until `end` on the monotonic clock.

        What stands still is written down now: it may be killed after us.
        """
        now_ns = time.monotonic_ns()
        for case in self._cases:
            if not case.closed and not case.wanted and case.standstill.stands(now_ns):
                self._want(case)
        while self.busy and time.monotonic() < end:
            await asyncio.sleep(0.05)
            tick()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lock.remove()

    def _place(self, rank: Rank) -> None:
        """Sees to it that a rank is where its job is, also when it has only now said which."""
        job, record = rank.job, rank.record
        if job is None or not record:
            return
        case = self._of.get(rank.key)
        if case is not None and (case.closed or case.suits(record, job)):
            case.admit(rank, job)
            return
        if case is not None:
            case.leave(rank)
        found = next((case for case in reversed(self._cases) if case.suits(record, job)), None)
        if found is None:
            found = Case(self._host, record, job)
            self._cases.append(found)
        found.admit(rank, job)
        self._of[rank.key] = found
        self._met += 1

    def _follow(self, case: Case, now_ns: int) -> None:
        if case.closed:
            return
        for rank in list(case.ranks.values()):
            if rank.key not in self._roster.ranks and rank.exit_info is None:
                case.leave(rank)  # it has made itself a new ring
            elif case.mourn(rank) or (rank.lives and not case.failed):
                self._weigh(case, rank)
        living = case.living
        if case.over:
            if case.wanted:
                case.changed.set()
            else:
                self._close(case)
        elif living:
            case.moved(now_ns)
            progress = tuple((rank.key, rank.progress) for rank in living)
            if case.standstill.due(progress, now_ns):
                self._start(self._look(case, "standstill", DEADLINE))

    def _weigh(self, case: Case, rank: Rank) -> None:
        """Whether this is the first bad end: a death, or an exception while it still lives."""
        case.changed.set()
        if not case.failed and (rank.raised_to_end or (not rank.lives and rank.ended_badly)):
            case.failed = True
            if case.watched:
                told = (rank.full() for rank in case.ranks.values())
                case.before = self._told(tuple(r for r in told if r.identity), None)
            self._want(case)
            self._start(self._look(case, "death", AFTER_DEATH))

    def _want(self, case: Case) -> None:
        if not case.wanted:
            case.wanted = True
            self._start(self._keep(case))

    async def _look(self, case: Case, occasion: Occasion, seconds: float) -> None:
        living = case.living[:MAX_LOOKED_AT]
        if not living:
            return
        ask = wire.SnapshotRequest(0, tuple(rank.key for rank in living), pids=fetchers(living))
        try:
            looks = await self._looker.take(ask, living, seconds)
        except Exception as error:  # noqa: BLE001 - what a look meets must not end the agent
            self._roster.note(f"a look for the black box of {case.job.name} failed: {error!r}")
            return
        # Those that ended meanwhile have nothing more to show.
        seen = (look for look in looks if any(dump.error != "gone" for dump in look.dumps))
        case.looks.add(occasion, seen, time.monotonic_ns())
        case.changed.set()

    def _asked(self, looks: tuple[wire.Snapshot, ...]) -> None:
        """Keeps what operators have asked for."""
        for case in {self._of[look.key] for look in looks if look.key in self._of}:
            if not case.closed:
                ours = (look for look in looks if look.key in case.ranks and look.dumps)
                case.looks.add("asked", ours, time.monotonic_ns())

    async def _keep(self, case: Case) -> None:
        """Writes a box again and again until all is in it, one at a time."""
        path = self._path(case)
        # To begin with, without what takes long: the rings of those that still live.
        most: int | None = max(1, len(case.ranks) - len(case.living))
        with self._guarded(case):
            while not case.closed:
                case.changed.clear()
                complete = case.over
                content = await self._content(case, complete, None if complete else most)
                await self._write(case, path, content)
                if complete:
                    self._close(case)
                elif most is None:
                    await case.changed.wait()
                most = None

    async def _content(self, case: Case, complete: bool, most: int | None) -> wire.BlackBox:
        histories = await case.histories(most)
        now = Moment.now()
        after = self._told(case.ranks_now(now.monotonic_ns), now)
        return wire.BlackBox(
            host=after.host,
            instance=after.instance,
            job=case.job,
            monotonic_ns=after.monotonic_ns,
            wall_ns=after.wall_ns,
            before=case.before,
            after=after,
            snapshots=case.looks.told(),
            histories=histories,
            complete=complete,
            version=after.version,
        )

    async def _write(self, case: Case, path: Path, box: wire.BlackBox) -> None:
        """A problem becomes a note: the job is no worse off than without us."""
        # An agent that finds only dead ranks may come after one that has told of them.
        unless = "" if case.watched else f"{case.file_stem(self._host)}-*"
        writing = apart(lambda: _write(path, box, unless))
        try:
            problem = await asyncio.wait_for(asyncio.shield(writing), SLOW)
        except (asyncio.TimeoutError, TimeoutError):
            self._roster.note(
                f"{path.parent} has not answered for {SLOW:.0f} s: the black box of "
                f"{case.job.name} waits for it; see whether that file system is there"
            )
            problem = await writing
        if problem:
            self._roster.note(f"no black box of {case.job.name}: {problem}")

    def _path(self, case: Case) -> Path:
        name = case.file_name(self._host, self._told((), None).instance)
        path = Path(case.record, name)
        number = 2
        while path in self._paths:
            path = Path(case.record, name).with_stem(f"{Path(name).stem}.{number}")
            number += 1
        self._paths.add(path)
        return path

    @contextmanager
    def _guarded(self, case: Case) -> Iterator[None]:
        """Gives up a box rather than the agent."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - damaged rings, and what nobody foresaw
            self._roster.note(f"no black box of {case.job.name}: {error!r}")
            self._close(case)

    def _close(self, case: Case) -> None:
        case.close()
        self._hold()

    def _hold(self) -> None:
        """The lock, as long as there is something to wait for."""
        try:
            if self.busy:
                self._lock.acquire(self._met)
            else:
                self._lock.release()
        except OSError as error:
            self._roster.note(f"frtop run will not wait for black boxes: {error.strerror}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _write(path: Path, box: wire.BlackBox, unless: str) -> str:
    """In a thread of its own. Gives the problem as a sentence."""
    if not path.is_absolute():
        return f"{path.parent} is no absolute path: set FRTOP_RECORD to one"
    try:
        if unless and any(other != path for other in path.parent.glob(unless)):
            return ""
        archive.write(path, BOX_KIND, wire.encode(box))
    except OSError as error:
        return (
            f"{path.parent}: {error.strerror}; make room or a folder there that this user may "
            "write to, or name another with `frtop run --record`"
        )
    return ""
