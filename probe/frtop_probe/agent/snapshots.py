"""Takes snapshots of ranks from outside: processes, stacks, connections and native stacks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.proc import processes
from frtop_probe.proc.connections import ConnectionTables
from frtop_probe.proc.within import within
from frtop_probe.stacks import native_stacks, stacks
from frtop_probe.stacks.source_lines import SourceLines

DEADLINE: Final = 2.0
"""Seconds for all snapshots of one request."""
_READ_S: Final = 1.0
"""The part of it that remains for reading, after waiting for native stacks to be taken."""
DUMPS_AT_ONCE: Final = 4
MAX_OPS: Final = 8192
"""Ops per response, shared among the requested ranks."""
MAX_MARKS: Final = 160
"""Marks per snapshot: those among a few dozen ops, about 35 bytes each."""
MAX_PROCESSES: Final = 64
"""Most stack dumps per response: more would miss the deadline."""


class SnapshotTaker:
    """Takes snapshots, with at most `DUMPS_AT_ONCE` stack dumps at a time on this host."""

    def __init__(self) -> None:
        self._dumps = asyncio.Semaphore(DUMPS_AT_ONCE)
        self._source = SourceLines()
        self.on_snapshots: Callable[[tuple[wire.Snapshot, ...]], None] | None = None

    async def take_requested(
        self, request: wire.SnapshotRequest, ranks: Iterable[TrackedRank]
    ) -> tuple[wire.Snapshot, ...]:
        """Takes the snapshots that an operator requests, one per rank, within `DEADLINE`."""
        snapshots = await self.take(request, ranks, DEADLINE)
        if self.on_snapshots is not None:
            self.on_snapshots(snapshots)
        return snapshots

    async def take(
        self, request: wire.SnapshotRequest, ranks: Iterable[TrackedRank], seconds: float
    ) -> tuple[wire.Snapshot, ...]:
        """Takes one snapshot per rank, within `seconds`.

        It leaves out ranks that one of our tools holds: the kernel shows them as stopped, which has
        nothing to do with the job.
        """
        end = time.monotonic() + seconds
        asked = tuple(ranks)
        ops = max(0, min(request.ops, MAX_OPS // max(1, len(asked))))
        chosen, snapshots, tables = [], [], ConnectionTables()
        await _until_released(asked, end - _READ_S)
        if ops:
            await asyncio.gather(*(rank.read_ops(ops) for rank in asked if not rank.held))
        for rank in asked:
            if not rank.held:
                chosen.append(rank)
                snapshots.append(self._without_stacks(rank, ops, tables))
            await asyncio.sleep(0)  # lets the tick and other requests run
        if not request.stacks:
            return tuple(snapshots)
        wanted = [
            (index, pid)
            for index, (rank, snapshot) in enumerate(zip(chosen, snapshots, strict=True))
            for pid in _pids_to_dump(rank, snapshot, frozenset(request.pids))
        ][:MAX_PROCESSES]
        # `return_exceptions` makes gather wait for all: every py-spy ends with its snapshot.
        groups = {rank.pid: rank.group_names for rank in chosen}
        dumping = (self._dump(pid, end, groups.get(pid)) for _, pid in wanted)
        dumps = await asyncio.gather(*dumping, return_exceptions=True)
        found: list[list[wire.StackDump]] = [[] for _ in snapshots]
        for (index, _), dump in zip(wanted, dumps, strict=True):
            if isinstance(dump, BaseException):
                raise dump
            found[index].append(dump)
        return tuple(
            structs.replace(snapshot, dumps=tuple(dumped))
            for snapshot, dumped in zip(snapshots, found, strict=True)
        )

    def _without_stacks(
        self, rank: TrackedRank, ops: int, tables: ConnectionTables
    ) -> wire.Snapshot:
        rows, lost = rank.recent_ops(ops)
        found: tuple[wire.Process, ...] = ()
        threads: tuple[wire.Process, ...] = ()
        dead, addresses = tables.find_dead(rank.pid) if rank.lives else ((), ())
        if rank.lives and (own := processes.read_process(rank.pid)) is not None:
            children = map(processes.read_process, processes.descendants(rank.pid))
            found = (own, *(child for child in children if child is not None))
            threads = processes.read_threads(rank.pid)
        return wire.Snapshot(
            key=rank.key,
            at_ns=time.monotonic_ns(),
            status=rank.status(),
            processes=found,
            ops=rows,
            ops_lost=lost,
            threads=threads,
            dead_connections=dead,
            addresses=addresses,
            ops_note=rank.ops_note,
            ended=rank.children.newest(),
            marks=rank.recent_marks(rows[0].issued_ns if rows else 0, MAX_MARKS) if ops else (),
        )

    async def _dump(self, pid: int, end: float, groups: Mapping[int, str] | None) -> wire.StackDump:
        try:
            await within(max(0.0, end - time.monotonic()), self._dumps.acquire())
        except TimeoutError:
            return _too_late(pid)
        try:
            left = end - time.monotonic()
            if left <= 0:
                return _too_late(pid)
            if processes.is_others(pid):
                help_ = f"process {pid} now belongs to another user: left alone"
                return wire.StackDump(pid, error="refused", help=help_)
            return await stacks.dump(pid, left, self._source, groups)
        finally:
            self._dumps.release()


async def _until_released(ranks: Iterable[TrackedRank], end: float) -> None:
    """Waits until tools release these ranks."""
    while any(rank.held for rank in ranks) and time.monotonic() < end:
        await asyncio.sleep(0.02)


def _pids_to_dump(
    rank: TrackedRank, snapshot: wire.Snapshot, requested: frozenset[int]
) -> list[int]:
    """The rank, and its requested descendants."""
    if not snapshot.processes:
        return [rank.pid]  # its dump will say that it has ended
    return [rank.pid, *(child.pid for child in snapshot.processes[1:] if child.pid in requested)]


def _too_late(pid: int) -> wire.StackDump:
    return wire.StackDump(
        pid,
        error="deadline",
        help=f"process {pid} was not reached within {DEADLINE:.0f} s: ask again, or for fewer",
    )


class NativeStacksTaker:
    """One per agent, so that only one rank of a host is stopped at a time."""

    def __init__(self) -> None:
        self._rank: TrackedRank | None = None
        """The rank whose stacks are being taken now."""

    async def take(
        self, host: str, request: wire.NativeStacksRequest, rank: TrackedRank
    ) -> wire.Response:
        """The rank's native stacks, or why there are none; "busy" while others are being taken."""
        if self._rank is not None:
            text = (
                f"native stacks of process {self._rank.pid} on {host} are being taken, and "
                "only one rank is stopped at a time: ask again in a few seconds"
            )
            return wire.Error(request.id, text, "busy")
        if not _is_itself(rank):
            return _response(host, request, native_stacks.NativeStacks(stacks.gone(rank.pid)))
        self._rank, rank.held = rank, True
        try:
            found = await native_stacks.take(rank.pid)
        finally:
            self._rank, rank.held = None, False
        return _response(host, request, found)


def _response(
    host: str, request: wire.NativeStacksRequest, found: native_stacks.NativeStacks
) -> wire.NativeStacksResponse:
    return wire.NativeStacksResponse(
        id=request.id,
        host=host,
        key=request.key,
        at_ns=time.monotonic_ns(),
        stopped_ns=found.stopped_ns,
        dump=found.dump,
        tool=found.tool,
        note=found.note,
    )


def _is_itself(rank: TrackedRank) -> bool:
    """Whether the process lives, is this user's, and is still the same process."""
    seen = processes.read_stat(rank.pid) if rank.lives else None
    return seen is not None and seen.start_ticks == rank.start_ticks and processes.is_own(rank.pid)
