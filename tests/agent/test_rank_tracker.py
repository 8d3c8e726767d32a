"""Single ticks without sockets: rings are built here, their processes only sleep."""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent import rank_tracker
from frtop_probe.agent.histories import history
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.proc import exit_status, processes
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Event, Flag, IssuePhase, Side, StatusCell
from frtop_probe.ring.reader import Ring
from waiting import wait_for, wait_for_async

Sleeper = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Starts processes for rings to belong to."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "600"])
        started.append(process)
        wait_for(
            lambda: (p := processes.read_process(process.pid)) and p.syscall and p.wchan,
            "it sleeps",
        )
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


class TickClock:
    """Ticks a tracker with half a second between ticks, without waiting."""

    def __init__(self, folder: Path) -> None:
        self.tracker = RankTracker([folder])
        self.now = 0

    def tick(self) -> tuple[wire.RankUpdate, ...]:
        self.now = (self.now or time.monotonic_ns()) + 500_000_000
        return self.tracker.tick(self.now).ranks

    def pending(self) -> tuple[wire.Op, ...] | None:
        return next((update.pending for update in self.tick()), None)


@pytest.fixture
def ring(tmp_path: Path, sleeper: Sleeper) -> RingBuilder:
    """The ring of a living rank."""
    builder = RingBuilder(tmp_path, pid=sleeper().pid)
    builder.standard_tables()
    return builder


@pytest.fixture
def clock(tmp_path: Path) -> TickClock:
    return TickClock(tmp_path)


async def test_an_idle_rank_is_not_sent(ring: RingBuilder, clock: TickClock) -> None:
    assert len(clock.tick()) == 1
    clock.tick()
    assert clock.tick() == ()


async def test_the_size_of_the_largest_job_is_known(ring: RingBuilder, clock: TickClock) -> None:
    assert clock.tracker.largest_world == 0
    clock.tick()
    assert clock.tracker.largest_world == 8


async def test_updates_add_up_to_the_full_state(ring: RingBuilder, clock: TickClock) -> None:
    ring.add_group(2, name="late")
    progress: dict[int, wire.GroupProgress] = {}
    pending: tuple[wire.Op, ...] = ()
    for step in range(12):
        if step % 3 == 0:
            ring.op(1, done=step % 2 == 0)
            ring.op(2, done=True)
        for update in clock.tick():
            progress |= {one.group: one for one in update.group_progress}
            pending = update.pending if update.pending is not None else pending
    (rank,) = clock.tracker.ranks.values()
    full = rank.full()
    assert {one.group: one for one in full.group_progress} == progress
    assert full.pending == pending
    assert [op.number for op in pending] == [2, 4]
    last = progress[2].last
    assert last is not None
    assert last.signature is not None
    assert (last.number, last.signature.kind, last.signature.reduce) == (4, "all_reduce", "sum")
    assert last.site == wire.Site("/srv/train.py", 12, "train")
    assert {group.id for group in full.groups} == {1, 2}


async def test_a_pid_that_was_given_away_is_no_living_rank(
    tmp_path: Path, clock: TickClock
) -> None:
    RingBuilder(tmp_path, start_ticks=1)
    assert [rank.exit_info is not None for rank in clock.tick()] == [True]


async def test_only_rings_of_this_namespace_and_boot_are_adopted(
    tmp_path: Path, clock: TickClock
) -> None:
    RingBuilder(tmp_path, start_ticks=1, namespace=1)
    RingBuilder(tmp_path, start_ticks=2, boot_id=bytes(16))
    assert clock.tick() == ()


def test_files_of_ranks_that_came_and_went_are_forgotten(tmp_path: Path) -> None:
    tracker = RankTracker([tmp_path])
    for number in range(3 * rank_tracker.MAX_RANKS):
        gone = tmp_path / f"{number}-1-1.ring"
        gone.mkdir()
        assert not tracker.has_living()
        gone.rmdir()
    assert len(tracker._files) <= rank_tracker.MAX_RANKS + 2


async def test_the_oldest_pending_ops_are_sent_and_the_others_counted(
    ring: RingBuilder, clock: TickClock
) -> None:
    for _ in range(20):
        ring.op()
    (first,) = clock.tick()
    assert first.pending is not None
    assert [op.number for op in first.pending] == list(range(1, 17))
    assert first.pending_more == 4
    assert [clock.pending() for _ in range(3)] == [None] * 3  # they are sent once


async def test_of_many_pending_messages_the_awaited_and_the_newest_are_sent(
    ring: RingBuilder, clock: TickClock
) -> None:
    message = Flag.P2P
    numbers = [ring.op(flags=message) for _ in range(30)]
    collective = ring.op(flags=Flag(0))
    newest = [ring.op(flags=message) for _ in range(5)]
    ring.wait_for(numbers[2])
    (first,) = clock.tick()
    assert first.pending is not None
    sent = [op.sequence for op in first.pending]
    assert sent == [numbers[2], *numbers[-9:], collective, *newest]
    assert first.pending_more == 20


async def test_ops_issued_just_now_are_not_sent_as_pending(
    ring: RingBuilder, clock: TickClock
) -> None:
    clock.now = time.monotonic_ns() - 500_000_000
    ring.op()
    assert not clock.pending()
    assert not clock.tracker.ranks[1].full().pending
    clock.tick()
    clock.tick()
    assert clock.tracker.ranks[1].full().pending


async def test_the_end_of_a_wait_is_sent_at_once(ring: RingBuilder, clock: TickClock) -> None:
    blocked = ring.op()
    clock.tick()
    assert clock.tracker.ranks[1].full().pending
    ring.complete(blocked)
    ring.op(done=True)
    assert clock.pending() == ()


async def test_an_old_pending_op_is_found_when_the_rank_stops(
    clock: TickClock, tmp_path: Path, sleeper: Sleeper
) -> None:
    ring = RingBuilder(tmp_path, pid=sleeper().pid, shape=layout.FULL)
    ring.standard_tables()
    clock.tick()
    forgotten = ring.op()
    for _ in range(3):
        for _ in range(1000):
            ring.op(done=True)
        clock.tick()
    clock.tick()
    assert [op.sequence for op in clock.tracker.ranks[1].full().pending or ()] == [forgotten]


async def test_the_last_op_of_a_group_survives_its_slot(
    ring: RingBuilder, clock: TickClock
) -> None:
    ring.add_group(2)
    ring.op(2, done=True)
    for _ in range(ring.shape.slots + 1):
        ring.op(1, done=True)
    ring.cells[StatusCell.OLDEST] = ring.sequence
    clock.tick()
    clock.tick()
    progress = clock.tracker.ranks[1].full().group_progress
    (lost,) = (one.last for one in progress if one.group == 2)
    assert lost is not None
    assert lost.signature is not None
    assert (lost.number, lost.signature.kind, lost.pending) == (1, "all_reduce", False)


async def test_a_send_that_lost_its_slot_is_not_a_collective(
    ring: RingBuilder, clock: TickClock
) -> None:
    """As a collective it would be compared with those of other ranks, and reported as different."""
    ring.add_signature(2, "send", peer=3)
    ring.op(done=True)
    ring.numbers[1] = 4
    ring.op(done=True, signature=2, flags=Flag.P2P)
    at = layout.GROUPS_OFFSET + layout.GROUP_ROW.size
    struct.pack_into("=3Q", ring.map, at, ring.sequence, 1, 5)
    ring.cells[StatusCell.HEAD] = ring.sequence + layout.SMALL.slots
    ticks = (clock.tick() for _ in range(2))
    *_, last = (one.last for tick in ticks for update in tick for one in update.group_progress)
    assert last is not None
    assert (last.p2p, last.number) == (True, 5)


async def test_an_exception_is_sent(ring: RingBuilder, clock: TickClock) -> None:
    frame = ["load", "/srv/train.py", 7, "train", "raise ValueError"]
    for number, (kind, main) in enumerate((("KeyError", False), ("ValueError", True)), 1):
        entry = {"kind": kind, "text": "no such shard", "thread": "MainThread", "main": main}
        ring.add_entry(Side.EXCEPTION, number, {**entry, "at_ns": 5, "frames": [frame]})
    ring.add_entry(Side.NOTE, 1, "loading")
    (update,) = clock.tick()
    assert update.exception is not None
    assert (update.exception.kind, update.exception.main, update.exception.at_ns) == (
        "ValueError",
        True,
        5,
    )
    assert update.exception.frames == (wire.TraceFrame(*frame),)  # type: ignore[arg-type]
    assert update.notes == ("loading",)


@pytest.mark.parametrize("oom", [0, 2])
async def test_deaths_are_found_without_pidfds(
    clock: TickClock, tmp_path: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch, oom: int
) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom_kill 5\n")
    monkeypatch.setattr(exit_status, "open_pidfd", lambda pid: None)
    monkeypatch.setattr(exit_status, "oom_counter_file", lambda pid: counter)
    process = sleeper()
    RingBuilder(tmp_path, pid=process.pid)
    assert clock.tick()[0].exit_info is None
    process.kill()
    start_ticks = clock.tracker.ranks[1].start_ticks
    wait_for(lambda: not exit_status.is_alive(process.pid, start_ticks), "it ends")
    counter.write_text(f"oom_kill {5 + oom}\n")
    (update,) = clock.tick()
    assert update.exit_info is not None
    assert (update.exit_info.signal, update.exit_info.oom_kills) == (9, oom)
    assert clock.tick() == ()


@pytest.mark.parametrize("unlinked", [False, True])
@pytest.mark.parametrize("size", [0, 4096])
async def test_a_rank_whose_ring_was_truncated_is_shown_by_its_process(
    tmp_path: Path,
    sleeper: Sleeper,
    capsys: pytest.CaptureFixture[str],
    size: int,
    unlinked: bool,
) -> None:
    """Reading mapped pages beyond the end of a file raises SIGBUS."""
    intact, cut = (RingBuilder(tmp_path, pid=sleeper().pid, rank=rank) for rank in (0, 1))
    clock = TickClock(tmp_path)
    assert len(clock.tick()) == 2
    with cut.path.open("r+b") as file:
        if unlinked:
            cut.path.unlink()
        file.truncate(size)
    (damaged,) = clock.tick()
    assert {rank.name for rank in clock.tracker.ranks.values()} == {intact.path.name, cut.path.name}
    assert damaged.identity is not None
    assert (damaged.identity.rank, damaged.identity.pid) == (1, cut.pid)
    assert (damaged.identity.prepared, damaged.identity.c10d_readable) == (False, False)
    assert f"it was truncated to {size} bytes" in damaged.notes[0]
    assert damaged.process is None or damaged.process.pid == cut.pid
    assert damaged in clock.tracker.full()
    (note,) = clock.tracker.notes
    assert note == f"{cut.path.name} cannot be read: it was truncated to {size} bytes"
    assert note in capsys.readouterr().err
    clock.tick()
    assert len(clock.tracker.ranks) == 2


async def test_what_a_damaged_ring_says_ends_no_tick_and_hides_no_rank(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    """Sums of such counts are beyond what a message can hold, and such a line is no line."""
    intact, damaged = (RingBuilder(tmp_path, pid=sleeper().pid, rank=rank) for rank in (0, 1))
    for ring in (intact, damaged):
        ring.standard_tables()
        ring.op(age_s=5)
    begin, end = layout.GROUPS_OFFSET, damaged.shape.sites_offset
    damaged.map[begin:end] = b"\x7f" * (end - begin)
    damaged.add_entry(Side.SITE, 1, ["/srv/train.py", float("inf"), "train"])
    clock = TickClock(tmp_path)
    for update in clock.tick():
        assert update.identity is not None
        assert update.identity.prepared
        wire.to_frame(wire.Update("h", "i", 1, 0, 0, (update,)))
    assert len(clock.tracker.full()) == 2
    assert not clock.tracker.notes


async def test_a_rank_that_cannot_be_encoded_is_left_out_and_said(
    clock: TickClock, tmp_path: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (0, 1):
        RingBuilder(tmp_path, pid=sleeper().pid, rank=rank)
    assert len(clock.tick()) == 2
    broken = next(one for one in clock.tracker.ranks.values() if one.identity and one.identity.rank)
    assert isinstance(broken, RingRank)
    monkeypatch.setattr(broken.view, "notes", lambda: ("half of a pair: \ud800",))
    (instead,) = clock.tick()
    assert instead.identity is not None
    assert (instead.identity.rank, instead.identity.c10d_readable) == (1, False)
    assert "surrogates not allowed" in instead.notes[0]
    assert {rank.key for rank in clock.tracker.full()} == {3 - broken.key, instead.key}


async def test_an_end_that_cannot_be_saved_is_said(
    clock: TickClock, tmp_path: Path, sleeper: Sleeper
) -> None:
    process = sleeper()
    RingBuilder(tmp_path, pid=process.pid)
    clock.tick()

    def fail(_: object) -> None:
        raise OverflowError("too large")

    clock.tracker.on_death = fail
    process.kill()
    process.wait()
    await wait_for_async(lambda: clock.tracker.notes, "its end is noticed")
    assert any(update.exit_info for _ in range(8) for update in clock.tick())
    assert "is not saved: OverflowError" in clock.tracker.notes[0]


async def test_ended_ranks_do_not_displace_living_ones(
    clock: TickClock, tmp_path: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rings are in shared memory, which a job that restarts must not fill."""
    monkeypatch.setattr(rank_tracker, "MAX_RANKS", 8)
    paths = [RingBuilder(tmp_path, start_ticks=number + 1).path for number in range(12)]
    for _ in range(3):
        clock.tick()
    process = sleeper()
    RingBuilder(tmp_path, pid=process.pid)
    for _ in range(3):
        clock.tick()
    assert [rank.pid for rank in clock.tracker.ranks.values() if rank.lives] == [process.pid]
    assert len(clock.tracker.ranks) == 8
    assert sum(path.exists() for path in paths) < 12


async def test_traffic_of_a_busy_host_is_bounded(tmp_path: Path, sleeper: Sleeper) -> None:
    """The limit is 2 kB per rank and second, also with sixteen receives posted."""
    rings = [RingBuilder(tmp_path, pid=sleeper().pid, shape=layout.FULL) for _ in range(8)]
    for ring in rings:
        ring.standard_tables()
        for group in (2, 3, 4):
            ring.add_group(group, name=str(group))
    clock = TickClock(tmp_path)
    clock.tick()
    posted = [[ring.op(4, age_s=2) for _ in range(16)] for ring in rings]
    size = 0
    for _ in range(20):
        for ring, receives in zip(rings, posted, strict=True):
            for step in range(100):
                ring.op(1 + step % 3, done=True)
            ring.complete(receives.pop(0))
            receives.append(ring.op(4, age_s=2))
            ring.heartbeat()
            ring.cells[StatusCell.STEP] += 1
        size += len(wire.encode(wire.Update("node4", "99", 1, 1, 1, clock.tick())))
    assert size / 10 / 8 < 2048


def test_reading_cards_imports_nothing_large() -> None:
    program = (
        "import sys; from frtop_probe.agent import announcement;"
        "from frtop_probe.agent import __main__;"
        "print(*sorted({'zmq', 'msgspec', 'psutil', 'asyncio', 'torch'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "\n"


async def test_without_free_descriptors_no_rank_counts_as_dead(
    clock: TickClock, tmp_path: Path, sleeper: Sleeper
) -> None:
    """As when idle connections of others hold all descriptors."""
    process = sleeper()
    ticks = processes.read_stat(process.pid)
    assert ticks is not None
    RingBuilder(tmp_path, pid=process.pid).standard_tables()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(one.name) for one in Path("/proc/self/fd").iterdir()}
    least = next(number for number in range(len(used) + 1) if number not in used)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))
        alive = exit_status.is_alive(process.pid, ticks.start_ticks)
        for _ in range(6):
            clock.tick()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert alive
    (update,) = clock.tick()
    assert update.exit_info is None
    assert clock.tracker.busy
    clock.tracker.clear()


def test_extreme_times_can_be_encoded(tmp_path: Path) -> None:
    builder = RingBuilder(tmp_path)
    builder.standard_tables()
    builder.op()
    at = builder._slot(builder.sequence)
    builder.map[at + 8 : at + 24] = (-(2**63)).to_bytes(8, sys.byteorder, signed=True) * 2
    rank = RingRank(1, Ring(builder.path), lives=True, pidfd=None)
    response = wire.HistoryResponse(1, "h", 1, asyncio.run(history(rank)))
    rank.ring.close()
    assert wire.decode_response(wire.encode(response)) == response


@pytest.mark.parametrize("phase", list(IssuePhase))
async def test_a_send_is_counted_whatever_phase_issued_it(
    ring: RingBuilder, clock: TickClock, phase: IssuePhase
) -> None:
    """The phase has the highest bit of its word."""
    ring.add_signature(2, "send", peer=3)
    ring.write_slot(1, time.monotonic_ns() - 5 * 10**9, 1, 1, 1, 2, 1, 0, 4, Event.OP, Flag.P2P,
                    phase << layout.PHASE_SHIFT, 0)  # fmt: skip
    clock.tick()
    assert clock.tracker.notes == ()
    assert len(clock.tracker.full()) == 1


async def test_unreadable_rings_give_one_note(clock: TickClock, tmp_path: Path) -> None:
    (tmp_path / "1-1.ring").write_bytes(b"x" * 4096)
    os.mkfifo(tmp_path / "2-2.ring")
    (tmp_path / "3-3.ring").symlink_to("/dev/zero")
    for _ in range(6):
        clock.tick()
    (note,) = clock.tracker.notes
    assert "1-1.ring" in note
