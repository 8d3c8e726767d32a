"""Answers to requests for looks: some ranks, seen from outside, at one moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.rank import Rank
from frtop_probe.eyes import proc, stacks
from frtop_probe.eyes.links import Tables
from frtop_probe.eyes.source import SourceReader

DEADLINE: Final = 2.0
DUMPS_AT_ONCE: Final = 4
MAX_OPS: Final = 8192
"""Per answer, shared by the ranks asked for."""
MAX_PROCESSES: Final = 64
"""Dumps per answer: beyond that they would not be done within the deadline anyway."""


class Looker:
    """Takes looks, never more dumps at once than `DUMPS_AT_ONCE` on this host."""

    def __init__(self) -> None:
        self._dumps = asyncio.Semaphore(DUMPS_AT_ONCE)
        self._source = SourceReader()
        self.on_looks: Callable[[tuple[wire.Snapshot, ...]], None] | None = None

    async def look(
        self, ask: wire.SnapshotRequest, ranks: Iterable[Rank]
    ) -> tuple[wire.Snapshot, ...]:
        """What an operator asks for: one look per rank, all of them before the deadline."""
        looks = await self.take(ask, ranks, DEADLINE)
        if self.on_looks is not None:
            self.on_looks(looks)
        return looks

    async def take(
        self, ask: wire.SnapshotRequest, ranks: Iterable[Rank], seconds: float
    ) -> tuple[wire.Snapshot, ...]:
        """The same of our own accord, within `seconds`."""
        end = time.monotonic() + seconds
        chosen = tuple(ranks)
        ops = max(0, min(ask.ops, MAX_OPS // max(1, len(chosen))))
        looks, tables = [], Tables()
        for rank in chosen:
            looks.append(self._see(rank, ops, tables))
            await asyncio.sleep(0)  # the tick, and other operators, in between
        if not ask.stacks:
            return tuple(looks)
        wanted = [
            (index, pid)
            for index, (rank, look) in enumerate(zip(chosen, looks, strict=True))
            for pid in _dumped(rank, look, frozenset(ask.pids))
        ][:MAX_PROCESSES]
        # With exceptions returned it waits for all: a py-spy must not outlive its look.
        dumping = (self._dump(pid, end) for _, pid in wanted)
        dumps = await asyncio.gather(*dumping, return_exceptions=True)
        found: list[list[wire.StackDump]] = [[] for _ in looks]
        for (index, _), dump in zip(wanted, dumps, strict=True):
            if isinstance(dump, BaseException):
                raise dump
            found[index].append(dump)
        return tuple(
            structs.replace(look, dumps=tuple(dumped))
            for look, dumped in zip(looks, found, strict=True)
        )

    def _see(self, rank: Rank, ops: int, tables: Tables) -> wire.Snapshot:
        """Everything but the stacks."""
        rank.ring.refresh()
        rows, lost = rank.view.ops(ops) if ops else ((), 0)
        processes: tuple[wire.Process, ...] = ()
        threads: tuple[wire.Process, ...] = ()
        links, addresses = tables.of(rank.pid) if rank.lives else ((), ())
        if rank.lives and (first := proc.process(rank.pid)) is not None:
            children = [proc.process(pid) for pid in proc.children(rank.pid)]
            processes = (first, *(child for child in children if child is not None))
            threads = proc.threads(rank.pid)
        return wire.Snapshot(
            key=rank.key,
            at_ns=time.monotonic_ns(),
            status=rank.view.present(),
            processes=processes,
            ops=rows,
            ops_lost=lost,
            threads=threads,
            links=links,
            addresses=addresses,
        )

    async def _dump(self, pid: int, end: float) -> wire.StackDump:
        try:
            await asyncio.wait_for(self._dumps.acquire(), max(0.0, end - time.monotonic()))
        except (asyncio.TimeoutError, TimeoutError):
            return _late(pid)
        try:
            left = end - time.monotonic()
            return await stacks.dump(pid, left, self._source) if left > 0 else _late(pid)
        finally:
            self._dumps.release()


def _dumped(rank: Rank, look: wire.Snapshot, pids: frozenset[int]) -> list[int]:
    """The rank, and those of its children that were asked for."""
    if not look.processes:
        return [rank.pid]  # to be told that it is gone
    return [rank.pid, *(child.pid for child in look.processes[1:] if child.pid in pids)]


def _late(pid: int) -> wire.StackDump:
    return wire.StackDump(
        pid,
        error="deadline",
        help=f"process {pid} was not reached within {DEADLINE:.0f} s: ask for fewer at a time",
    )
