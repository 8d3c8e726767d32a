"""c10d states, looks and searches as a child would bring them, and a child that reads nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.proc import processes
from frtop_probe.proc.line_child import CLOSED
from frtop_probe.unprepared.discovery.facts import Candidate, Discovery, FoundJob
from frtop_probe.unprepared.model import Backend, C10dState, FlightRing, GroupState, RingEntry, Work
from frtop_probe.unprepared.worker import Look, UnpreparedWorker

SECOND = 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND
"""Wall clock when the monotonic clock of the fakes was 0."""
TORCHRUN = "10.0.0.1:29500 run abc"


def start_ticks(pid: int) -> int:
    found = processes.read_stat(pid)
    assert found is not None
    return found.start_ticks


def work(op: str, number: int) -> Work:
    return Work(op, number, completed=False, timeout_s=1800)


def backend(
    number: int | None,
    pending: Sequence[Work] = (),
    collectives: int | None = -1,
    kind: str = "gloo",
    reason: str = "",
) -> Backend:
    """gloo counts messages, too; without them both counts are equal."""
    both = number if collectives == -1 else collectives
    return Backend(
        kind,
        number=number,
        counts_p2p=kind == "gloo",
        collectives=both if kind == "gloo" else None,
        timeout_s=1800.0,
        pending=tuple(pending),
        reason=reason,
    )


def group(
    name: str, *backends: Backend, ranks: tuple[int, ...] = (0, 1, 2), rank: int = 1
) -> GroupState:
    address = 0x1000 + 16 * int(name)
    return GroupState(address, name, "", ranks, rank, len(ranks), backends=backends)


def c10d(*groups: GroupState, start_ticks: int = 0, reason: str = "") -> C10dState:
    return C10dState(os.getpid(), start_ticks, groups=groups, reason=reason)


def look(one: Backend) -> Look:
    """A look at a rank with one group."""
    return Look(os.getpid(), c10d(group("0", one)))


def candidate(pid: int = 0, rank: int | None = 1, **fields: Any) -> Candidate:
    pid = pid or os.getpid()
    made = Candidate(pid, start_ticks(pid), "rank", rank, 3, rank, TORCHRUN, prepared=False)
    return replace(made, **fields)


def job(*ranks: Candidate, identity: str = TORCHRUN) -> FoundJob:
    return FoundJob(identity, "train.py", "torchrun", None, os.getuid(), False, ranks)


def unprepared_rank(job: str = TORCHRUN, **fields: Any) -> UnpreparedRank:
    """A rank whose process is ours."""
    one = candidate(**fields)
    return UnpreparedRank(1, one, FoundJob(job, "train.py", "", None, 0, False, (one,)), None)


def entry(number: int, op: str = "gloo:all_reduce", **fields: Any) -> RingEntry:
    """An entry of gloo's ring: an op of group 0 that is over, a second after the one before."""
    shapes = ((1024,),)
    known: dict[str, Any] = {
        "id": number, "group": "0", "description": "default_pg", "number": number,
        "p2p_number": 0, "op_id": number, "op": op, "is_p2p": False, "inputs": shapes,
        "outputs": shapes, "created_ns": EPOCH_NS + number * SECOND, "started_ns": 0,
        "completed_ns": 0, "timeout_ms": 1_800_000, "retired": True, "thread": "python",
        "input_types": ("float32",), "output_types": ("float32",),
    }  # fmt: skip
    return RingEntry(**{**known, **fields})


class FakeReads:
    """What fake workers find, and what they were asked.

    A process in `stuck` does not answer before `release`; `reasons` are answers without c10d,
    `c10d_reasons` are states without groups.
    """

    def __init__(self) -> None:
        self.discovery = Discovery()
        self.reasons: dict[int, str] = {}
        self.c10d_reasons: dict[int, str] = {}
        self.stuck: set[int] = set()
        self.release = asyncio.Event()
        self.looks: list[int] = []
        self.rings: list[tuple[int, int]] = []
        self.stuck_rings: set[int] = set()
        self.scans: list[frozenset[tuple[int, int]]] = []
        self.workers: list[FakeWorker] = []
        self.scan_error: Exception | None = None
        self.number = 1

    def worker(self) -> FakeWorker:
        self.workers.append(FakeWorker(self))
        return self.workers[-1]

    @property
    def open(self) -> int:
        return sum(not one.closed for one in self.workers)


class FakeWorker(UnpreparedWorker):
    def __init__(self, reads: FakeReads) -> None:
        super().__init__()
        self.reads = reads
        self.closed = False

    async def look(self, pid: int, *, rings: int | None = None, **fields: Any) -> Look:
        if self.closed:
            return Look(pid, reason=CLOSED)
        if rings is not None:
            return await self._look_at_ring(pid, rings, fields["since"].get("gloo", 0))
        self.reads.looks.append(pid)
        if pid in self.reads.stuck:
            await self.reads.release.wait()
        if pid in self.reads.reasons:
            return Look(pid, reason=self.reads.reasons[pid])
        if pid in self.reads.c10d_reasons:
            return Look(pid, C10dState(pid, start_ticks(pid), reason=self.reads.c10d_reasons[pid]))
        found = C10dState(pid, start_ticks(pid), groups=(group("0", backend(self.reads.number)),))
        return Look(pid, found)

    async def _look_at_ring(self, pid: int, limit: int, since: int) -> Look:
        self.reads.rings.append((pid, since))
        if pid in self.reads.stuck_rings:
            await self.reads.release.wait()
        one = group("0", backend(self.reads.number))
        now = C10dState(pid, start_ticks(pid), groups=(one,))
        found = [entry(number) for number in range(max(1, since), self.reads.number + 1)][-limit:]
        ring = FlightRing("gloo", 2000, self.reads.number + 1, tuple(found))
        return Look(pid, now, rings=(ring,), after=now)

    async def scan(self, recorded: Collection[tuple[int, int]] = ()) -> Discovery:
        if self.closed:
            return Discovery(reasons=(CLOSED,))
        self.reads.scans.append(frozenset(recorded))
        if self.reads.scan_error is not None:
            raise self.reads.scan_error
        return self.reads.discovery

    async def close(self) -> None:
        self.closed = True
