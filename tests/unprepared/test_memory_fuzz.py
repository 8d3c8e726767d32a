"""Nothing in the memory of a process ends the child that reads it, or a tick."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final

import pytest

from agent.unprepared_fakes import candidate
from agent.unprepared_fakes import job as job_of
from frtop_probe import wire
from frtop_probe.agent.black_boxes import RecordedJob
from frtop_probe.agent.statistics_requests import statistics_response
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.proc.memory import ProcessMemory
from frtop_probe.unprepared import reader as unprepared_reader
from frtop_probe.unprepared.__main__ import Readers
from frtop_probe.unprepared.worker import look_from
from mutations import Mutator, inputs
from unprepared.ranks import job

pytestmark = pytest.mark.torch
LONG: Final = (pytest.mark.long, pytest.mark.timeout(3600))
COLD: Final = 0.02
"""Share of the inputs that begin with a first look, which takes a hundred times as long."""
KEPT: Final = ("_python", "_layout", "_c10d", "_rings", "_transports")
"""What a reader remembers of a process between looks."""


class HostileMemory(ProcessMemory):
    """The memory of a real rank, of which the answers to some reads are changed."""

    mutator: Mutator | None = None
    places: frozenset[int] = frozenset()
    count = 0

    def read(self, address: int, size: int) -> bytes:
        data = super().read(address, size)
        kind, mutator = type(self), self.mutator
        kind.count += 1
        if mutator is None or self.count not in self.places:
            return data
        changed = bytearray(data)
        mutator.note(f"read {self.count}, of {size}")
        mutator.change(changed)
        return bytes(changed)


@pytest.fixture(scope="module")
def pid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A rank with ops in progress."""
    folder = tmp_path_factory.mktemp("queued")
    with job("queued", folder, TORCH_FR_BUFFER_SIZE="64", TIMEOUT_S="3600") as pids:
        yield pids[0]


@pytest.mark.parametrize("count", [150, pytest.param(40_000, marks=LONG)])
async def test_no_memory_ends_the_reader_or_a_tick(
    pid: int, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(unprepared_reader, "ProcessMemory", HostileMemory)
    monkeypatch.setattr(HostileMemory, "mutator", None)
    monkeypatch.setattr(unprepared_reader, "_TRIES", 1)
    readers = Readers()
    request = {"pid": pid, "rings": 64, "transports": True,
               "environment": ["SET_LATER"]}  # fmt: skip
    lengths, failed = [], 0
    for _ in range(2):
        HostileMemory.count = 0
        assert not readers.answer(request)["reason"]
        lengths.append(HostileMemory.count)
    (reader,) = readers._readers.values()
    kept = {name: getattr(reader, name) for name in KEPT}
    for _, mutator in inputs(count):
        cold = mutator.chance(COLD)
        for name, value in kept.items():
            setattr(reader, name, None if cold and name != "_transports" else value)
        length, most = lengths[not cold], mutator.random.choice((1, 1, 2, 5))
        places = frozenset(mutator.random.randrange(length) for _ in range(most))
        HostileMemory.mutator, HostileMemory.places, HostileMemory.count = mutator, places, 0
        try:
            answer = readers.answer(request)
        finally:
            HostileMemory.mutator = None
        failed += bool(answer["reason"])
        assert "Error" not in answer["reason"], answer["reason"]
        await _take(json.loads(json.dumps(answer)), pid)
    assert failed < count, "some are read, with something wrong in them"


async def _take(answer: dict[str, object], pid: int) -> None:
    """All that an agent does with an answer."""
    found = candidate(pid)
    rank = UnpreparedRank(1, found, job_of(found), None)
    look = look_from(answer)
    now = time.monotonic_ns()
    for tick in range(3):
        rank.take(look, now + tick)
        rank.take_ring(look, now + tick, time.time_ns() - now)
        update = rank.update(now + tick * 10**9)
        assert update is None or wire.size_of_rank(update)
    full = wire.StateResponse(1, wire.Update("h", "i", 1, now, now, (rank.full(),)))
    assert wire.decode_response(wire.encode(full)) == full
    for samples in (0, 8):
        asked = wire.StatisticsRequest(1, (1,), now - 10**12, now, not samples, samples, 4)
        wire.encode(await statistics_response("h", asked, [rank]))
    recorded = RecordedJob("h", "/r", wire.Job("a", 1, 2))
    recorded.add_rank(rank, recorded.job)
    await recorded.histories()
    wire.encode(wire.Update("h", "i", 1, now, now, recorded.updates_now(now)))
    assert not recorded.faults
    wire.encode(wire.HistoryResponse(1, "h", 1, rank.flight.excerpt(1, 0, 100)))
    repr(rank.progress)
    rank.lives = False
    wire.size_of_rank(rank.end(now + 10**10, 0))
