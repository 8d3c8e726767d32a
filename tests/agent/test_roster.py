"""What one tick tells, without sockets: rings are packed here, processes only sleep."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.host import until
from agent.ringmaker import RingMaker
from frtop_probe import wire
from frtop_probe.agent import roster
from frtop_probe.agent.histories import history_now
from frtop_probe.agent.ringview import RingView
from frtop_probe.agent.roster import Roster
from frtop_probe.eyes import endings, proc
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Side, StatusCell
from frtop_probe.ring.reader import Ring

Sleeper = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Starts processes that rings can belong to."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "600"])
        started.append(process)
        until(lambda: (p := proc.process(process.pid)) and p.syscall and p.wchan, "it sleeps")
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


class Clock:
    """Ticks of a roster half a second apart, without waiting for them."""

    def __init__(self, folder: Path) -> None:
        self.roster = Roster([folder])
        self.now = time.monotonic_ns()

    def tick(self) -> tuple[wire.RankUpdate, ...]:
        self.now += 500_000_000
        return self.roster.tick(self.now).ranks

    def pending(self) -> tuple[wire.Op, ...] | None:
        return next((update.pending for update in self.tick()), None)


async def test_a_rank_that_does_nothing_is_not_told(tmp_path: Path, sleeper: Sleeper) -> None:
    RingMaker(tmp_path, pid=sleeper().pid).usual()
    clock = Clock(tmp_path)
    assert len(clock.tick()) == 1
    clock.tick()
    assert clock.tick() == ()


async def test_what_is_told_adds_up_to_the_state(tmp_path: Path, sleeper: Sleeper) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    ring.usual()
    ring.group(2, name="late")
    clock = Clock(tmp_path)
    fronts: dict[int, wire.GroupProgress] = {}
    pending: tuple[wire.Op, ...] = ()
    for step in range(12):
        if step % 3 == 0:
            ring.op(1, done=step % 2 == 0)
            ring.op(2, done=True)
        for update in clock.tick():
            fronts |= {front.group: front for front in update.group_progress}
            pending = update.pending if update.pending is not None else pending
    (rank,) = clock.roster.ranks.values()
    full = rank.full()
    assert {front.group: front for front in full.group_progress} == fronts
    assert full.pending == pending
    assert [op.number for op in pending] == [2, 4]
    assert {group.id for group in full.groups} == {1, 2}


async def test_the_oldest_pending_ops_are_told_and_the_others_counted(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    ring.usual()
    for _ in range(20):
        ring.op()
    clock = Clock(tmp_path)
    (first,) = clock.tick()
    assert first.pending is not None
    assert [op.number for op in first.pending] == list(range(1, 17))
    assert first.pending_more == 4


async def test_ops_that_were_issued_just_now_are_not_told_as_pending(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    ring.usual()
    clock = Clock(tmp_path)
    clock.now -= 500_000_000
    ring.op()
    assert not clock.pending()
    assert not clock.roster.ranks[1].full().pending
    clock.tick()
    clock.tick()
    assert clock.roster.ranks[1].full().pending


async def test_the_end_of_a_wait_is_told_at_once(tmp_path: Path, sleeper: Sleeper) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    ring.usual()
    blocked = ring.op()
    clock = Clock(tmp_path)
    clock.tick()
    assert clock.roster.ranks[1].full().pending
    ring.complete(blocked)
    ring.op(done=True)
    assert clock.pending() == ()


async def test_an_op_left_behind_by_thousands_is_found_when_the_rank_stops(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid, shape=layout.FULL)
    ring.usual()
    clock = Clock(tmp_path)
    clock.tick()
    forgotten = ring.op()
    for _ in range(3):
        for _ in range(1000):
            ring.op(done=True)
        clock.tick()
    clock.tick()
    assert [op.sequence for op in clock.roster.ranks[1].full().pending or ()] == [forgotten]


async def test_the_last_op_is_known_though_the_history_has_lost_it(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    ring.usual()
    ring.group(2)
    ring.op(2, done=True)
    for _ in range(ring.shape.slots + 1):
        ring.op(1, done=True)
    ring.cells[StatusCell.OLDEST] = ring.sequence
    clock = Clock(tmp_path)
    clock.tick()
    clock.tick()
    lost = next(
        front.last for front in clock.roster.ranks[1].full().group_progress if front.group == 2
    )
    assert lost is not None
    assert lost.signature is not None
    assert (lost.number, lost.signature.kind, lost.pending) == (1, "all_reduce", False)


async def test_a_send_that_the_history_has_lost_is_not_told_as_a_collective(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    """It would be compared with the collectives of other ranks, and called different."""
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    ring.usual()
    ring.side(Side.SIGNATURE, 2, {"kind": "send", "peer": 3})
    ring.op(done=True)
    ring.sequence += 1
    at = layout.GROUPS_OFFSET + layout.GROUP_ROW.size
    row = (ring.sequence, 1, 5, ring.sequence, time.monotonic_ns(), 2, 1, ring.sequence)
    layout.GROUP_ROW.pack_into(ring.map, at, *row)
    ring.cells[StatusCell.HEAD] = ring.sequence + layout.SMALL.slots
    clock = Clock(tmp_path)
    fronts = [front for _ in range(2) for update in clock.tick() for front in update.group_progress]
    last = fronts[-1].last
    assert last is not None
    assert (last.p2p, last.number) == (True, 5)


async def test_an_exception_is_told(tmp_path: Path, sleeper: Sleeper) -> None:
    ring = RingMaker(tmp_path, pid=sleeper().pid)
    frame = ["load", "/srv/train.py", 7, "train", "raise ValueError"]
    for number, (kind, main) in enumerate((("KeyError", False), ("ValueError", True)), 1):
        entry = {"kind": kind, "text": "no such shard", "thread": "MainThread", "main": main}
        ring.side(Side.EXCEPTION, number, {**entry, "at_ns": 5, "frames": [frame]})
    ring.side(Side.NOTE, 1, "loading")
    (update,) = Clock(tmp_path).tick()
    assert update.exception is not None
    assert (update.exception.kind, update.exception.main, update.exception.at_ns) == (
        "ValueError",
        True,
        5,
    )
    assert update.exception.frames == (wire.TraceFrame(*frame),)  # type: ignore[arg-type]
    assert update.notes == ("loading",)


@pytest.mark.parametrize("oom", [0, 2])
async def test_deaths_are_found_by_looking_where_there_are_no_pidfds(
    tmp_path: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, oom: int
) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 5\n")
    monkeypatch.setattr(endings, "open_pidfd", lambda pid: None)
    monkeypatch.setattr(endings, "oom_file", lambda pid: counter)
    process = sleeper()
    RingMaker(tmp_path, pid=process.pid)
    clock = Clock(tmp_path)
    assert clock.tick()[0].exit_info is None
    process.kill()
    while endings.lives(process.pid, clock.roster.ranks[1].ring.header.start_ticks):
        pass
    counter.write_text(f"oom_kill {5 + oom}\n")
    (update,) = clock.tick()
    assert update.exit_info is not None
    assert (update.exit_info.signal, update.exit_info.oom_kills) == (9, oom)
    assert clock.tick() == ()


@pytest.mark.parametrize("size", [0, 4096])
async def test_a_ring_that_somebody_cuts_off_ends_nobody(
    tmp_path: Path, sleeper: Sleeper, size: int
) -> None:
    """Reading what is mapped beyond the end of a file is a SIGBUS."""
    whole, cut = (RingMaker(tmp_path, pid=sleeper().pid, rank=rank) for rank in (0, 1))
    clock = Clock(tmp_path)
    assert len(clock.tick()) == 2
    os.truncate(cut.path, size)
    clock.tick()
    (left,) = clock.roster.ranks.values()
    assert left.ring.path == whole.path
    assert f"was truncated to {size} bytes" in clock.roster.notes[0]


async def test_a_folder_full_of_the_dead_has_room_for_the_living(
    tmp_path: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "MAX_RANKS", 8)
    for number in range(12):
        RingMaker(tmp_path, start_ticks=number + 1)
    process = sleeper()
    RingMaker(tmp_path, pid=process.pid)
    clock = Clock(tmp_path)
    for _ in range(3):
        clock.tick()
    assert [rank.pid for rank in clock.roster.ranks.values() if rank.lives] == [process.pid]
    assert len(clock.roster.ranks) == 8


async def test_a_busy_host_stays_within_its_traffic(tmp_path: Path, sleeper: Sleeper) -> None:
    """Two kilobytes per rank and second are promised; also with sixteen receives posted."""
    rings = [RingMaker(tmp_path, pid=sleeper().pid, shape=layout.FULL) for _ in range(8)]
    for ring in rings:
        ring.usual()
        for group in (2, 3, 4):
            ring.group(group, name=str(group))
    clock = Clock(tmp_path)
    clock.tick()
    posted = [[ring.op(4, age_s=2) for _ in range(16)] for ring in rings]
    size = 0
    for _ in range(20):
        for ring, receives in zip(rings, posted, strict=True):
            for step in range(100):
                ring.op(1 + step % 3, done=True)
            ring.complete(receives.pop(0))
            receives.append(ring.op(4, age_s=2))
            ring.beat()
            ring.cells[StatusCell.STEP] += 1
        size += len(wire.encode(wire.Update("node4", "99", 1, 1, 1, clock.tick())))
    assert size / 10 / 8 < 2048


def test_asking_where_the_agent_is_costs_no_imports() -> None:
    program = (
        "import sys; from frtop_probe.agent import announcement;"
        "from frtop_probe.agent import __main__;"
        "print(*sorted({'zmq', 'msgspec', 'psutil', 'asyncio', 'torch'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "\n"


async def test_an_agent_without_descriptors_calls_nobody_dead(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    """As when strangers hold all of them, by connections that say nothing."""
    process = sleeper()
    ticks = proc.stat(process.pid)
    assert ticks is not None
    RingMaker(tmp_path, pid=process.pid).usual()
    clock = Clock(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(one.name) for one in Path("/proc/self/fd").iterdir()}
    least = next(number for number in range(len(used) + 1) if number not in used)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
        lives = endings.lives(process.pid, ticks.start_ticks)
        for _ in range(6):
            clock.tick()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert lives
    (update,) = clock.tick()
    assert update.exit_info is None
    assert clock.roster.busy
    clock.roster.clear()


def test_times_that_make_no_sense_can_be_told(tmp_path: Path) -> None:
    maker = RingMaker(tmp_path)
    maker.usual()
    maker.op()
    at = maker._slot(maker.sequence)
    maker.map[at + 8 : at + 24] = (-(2**63)).to_bytes(8, sys.byteorder, signed=True) * 2
    ring = Ring(maker.path)
    told = wire.HistoryResponse(1, "h", 1, history_now(RingView(ring)))
    ring.close()
    assert wire.decode_response(wire.encode(told)) == told
