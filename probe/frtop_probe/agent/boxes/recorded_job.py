"""One recorded job on this host: its ranks, and the parts of its black box."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, cast

import msgspec

from frtop_probe import wire
from frtop_probe.agent.histories import history
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.ring.header import RingClosed
from frtop_probe.ring.recording import BOX_SUFFIX

MAX_ROWS: Final = 16 * 8192
"""Ops of all ranks together; of more than sixteen ranks, or of longer rings, each keeps fewer."""
SNAPSHOT_LIFETIME_NS: Final = 60_000_000_000
"""How long after a stall its snapshots may still explain a death."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_PART: Final = 48
_NEVER: Final = 2**63

Occasion = Literal["stall", "request", "death"]
MAX_SNAPSHOTS: Final[dict[Occasion, int]] = {"stall": 4, "request": 4, "death": 2}
"""Sets of snapshots per occasion; those of a stall come in pairs."""
MAX_SNAPSHOT_BYTES: Final = 8 * 1024 * 1024
"""Of one job. Snapshots of eight ranks take about 60 KB; beyond this the oldest are dropped."""
QUIET_NS: Final = 10_000_000_000
"""Time without progress after which a job counts as stalled."""
PAIR_NS: Final = 2_500_000_000
"""Time between the two snapshots of a pair."""
MAX_WAIT_NS: Final = 300_000_000_000
"""The longest time between pairs."""


class RecordedJob:
    """The state of one recorded job.

    `failed` is true from the first bad end of a rank on. `wanted` says that a box must be
    written: after a failure, or when the agent leaves while the job stalls. `closed` jobs
    need nothing more. Of a job that nobody prepared, `since_ns` is when it was seen first; else 0.
    """

    def __init__(self, host: str, record: str, job: wire.Job, since_ns: int = 0) -> None:
        self.record = record
        self.since_ns = since_ns
        self.job = job
        self.ranks: dict[int, TrackedRank] = {}
        self.before: wire.Update | None = None
        self.failed = False
        self.wanted = False
        self.changed = asyncio.Event()
        self.closed = False
        self.seen_alive = False
        self.faults: dict[str, str] = {}
        """By the name of a rank, why something of it is not in the box."""
        self.snapshots = RecentSnapshots(host)
        self.stall = StallDetector()
        self._host = host
        self._dead: set[int] = set()
        self._ended: dict[int, wire.RankUpdate] = {}
        self._histories: dict[int, tuple[str, bytes]] = {}

    @property
    def over(self) -> bool:
        """Whether all ranks have ended, and their exit info was sent."""
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
        """Adds a rank, and fills in what it knows of the job."""
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
        """Drops snapshots of a stall that is over for long."""
        if not self.wanted and self.stall.over_for_ns(now_ns) > SNAPSHOT_LIFETIME_NS:
            self.snapshots.drop_before(now_ns - SNAPSHOT_LIFETIME_NS)

    def updates_now(self, now_ns: int) -> tuple[wire.RankUpdate, ...]:
        """The state of all ranks as of now; of ended ranks, as last sent."""
        found = []
        for rank in self.ranks.values():
            with self._noted(rank):
                update = self._ended.get(rank.key) or rank.reread(now_ns)
                wire.size_of_rank(update)
                found.append(update)
        return tuple(found)

    @contextmanager
    def _noted(self, rank: TrackedRank) -> Iterator[None]:
        """Leaves out a rank whose ring cannot be read: the box has the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a ring may hold anything
            self.faults[rank.name] = repr(error)

    async def histories(self, most: int | None = None) -> tuple[wire.HistoryResponse, ...]:
        """The ops of all ranks, or of the `most` ranks that died first.

        They are encoded already and fit only for writing. So a rank that is dead or issues
        nothing is read once, even when its ring has to make room for new ranks.
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
        """Releases everything except the ranks: the box is written, or not wanted."""
        self.closed = True
        self.before = None
        self.snapshots = RecentSnapshots(self._host)
        self._histories.clear()
        self._ended.clear()

    def file_name(self, host: str, instance: str) -> str:
        """The name of this agent's box: readable, and unique by the agent's instance."""
        return f"{self.file_stem(host)}-{_clean(instance[:6])}{BOX_SUFFIX}"

    def file_stem(self, host: str) -> str:
        """The part of the name that boxes of this job and host share, whoever wrote them."""
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
        """All of them, oldest first; encoded already and fit only for writing."""
        return tuple(cast("wire.SnapshotResponse", msgspec.Raw(one.data)) for one in self._sets)


def awaited_workers(ranks: Iterable[TrackedRank]) -> tuple[int, ...]:
    """Pids of the DataLoader workers for which these ranks wait now."""
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

    A job that its launcher kills while it hangs leaves no time for snapshots, so its black box
    needs earlier ones. They are taken in pairs, because one alone does not show whether anything
    moves, and ever less often, because they show the same.
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

        `progress` is any value that changes when something has moved.
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
