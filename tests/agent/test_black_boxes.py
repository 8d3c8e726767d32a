"""Black boxes of recorded jobs whose ranks are killed, fail, hang, or end well."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.agent_host import Host, RankProcess
from frtop_probe import archive, wire
from frtop_probe.agent import announcement
from frtop_probe.agent.black_boxes import (
    MAX_SNAPSHOT_BYTES,
    MAX_SNAPSHOTS,
    MAX_WAIT_NS,
    PAIR_NS,
    QUIET_NS,
    RecentSnapshots,
    StallDetector,
)
from frtop_probe.agent.box_folder import MAX_BOXES, make_room
from frtop_probe.ring.box_lock import (
    BOX_KIND,
    RecordingLock,
    lock_file,
    under_way,
    wait_for_boxes,
)
from history_rows import rows_of
from waiting import DEADLINE_S, wait_for

S = 1_000_000_000
QUICK_STALLS = """
import os, sys
from frtop_probe.agent import snapshots
from frtop_probe.agent import black_boxes
black_boxes.QUIET_NS, black_boxes.PAIR_NS = 1_000_000_000, 300_000_000
take = snapshots.SnapshotTaker.take
async def count(*arguments):
    found = await take(*arguments)
    with open(os.environ["FRTOP_DIR"] + "/../taken", "a") as file:
        file.write("x")
    return found
snapshots.SnapshotTaker.take = count
from frtop_probe.agent.__main__ import main
sys.exit(main())
"""
"""An agent that takes a job for stalled after a second, and counts its snapshots."""
QUICK_MINUTES = """
import sys
from frtop_probe.agent.gauges import gauge_table
gauge_table.MINUTE_NS = 1_000_000_000
from frtop_probe.agent.__main__ import main
sys.exit(main())
"""
"""An agent whose minutes are seconds."""
HUNG_STORAGE = """
import sys, time
from frtop_probe import archive
from frtop_probe.agent import black_boxes
archive.write = lambda *_, **__: time.sleep(600)
black_boxes.SLOW = 0.3
from frtop_probe.agent.__main__ import main
sys.exit(main())
"""
"""An agent whose record folder does not answer."""


@pytest.fixture
def record(host: Host, tmp_path: Path) -> Path:
    """The record folder of the ranks of `host`."""
    folder = tmp_path / "record"
    folder.mkdir(mode=0o700)
    host.environment["FRTOP_RECORD"] = str(folder)
    return folder


def read_box(record: Path, like: str = "*.box") -> wire.BlackBox | None:
    found = list(record.glob(like))
    assert len(found) <= 1, found
    return wire.decode_box(archive.read(found[0], BOX_KIND)) if found else None


def wait_for_complete_box(record: Path, like: str = "*.box") -> wire.BlackBox:
    def there() -> wire.BlackBox | None:
        found = read_box(record, like)
        return found if found is not None and found.complete else None

    return wait_for(there, "the box is complete")


def ranks(update: wire.Update | None) -> dict[int, wire.RankUpdate]:
    assert update is not None
    return {rank.identity.rank: rank for rank in update.ranks if rank.identity is not None}


def is_unlocked(host: Host) -> bool:
    """Whether nobody holds the lock for which `frtop run` waits."""
    return not under_way([host.folder], time.time_ns())


def start_pending(host: Host, count: int) -> tuple[list[RankProcess], list[int]]:
    """Starts ranks with one pending op each, and an agent; returns the ranks and their keys."""
    started = [host.rank("wait", rank=rank) for rank in range(count)]
    for rank in started:
        rank.do("op")
    operator = host.operator(host.agent())

    def known() -> list[int]:
        sent = ranks(operator.state())
        keys = [sent[n].key for n in sorted(sent) if sent[n].pending]
        return keys if len(keys) == count else []

    return started, wait_for(known, "the agent knows all pending ops")


def snapshots_taken(host: Host) -> int:
    path = host.folder.parent / "taken"
    return path.stat().st_size if path.exists() else 0


def test_the_first_bad_death_is_written_at_once(host: Host, record: Path) -> None:
    (first, second, third), _ = start_pending(host, 3)
    assert not list(record.iterdir())
    os.kill(second.pid, signal.SIGKILL)
    found = wait_for(lambda: read_box(record), "a box")
    assert (found.complete, found.job.run_id, found.host) == (
        False,
        "test",
        os.uname().nodename,
    )
    before, after = ranks(found.before), ranks(found.after)
    assert set(before) == set(after) == {0, 1, 2}
    assert [op.number for op in before[1].pending or ()] == [2]
    assert before[1].exit_info is None
    exit_info = after[1].exit_info
    assert exit_info is not None
    assert (exit_info.signal, exit_info.clean) == (signal.SIGKILL, False)
    assert after[0].exit_info is None
    sent = {history.key: history.history for history in found.histories}
    assert [(row.number, row.took_ns > 0) for row in rows_of(sent[after[1].key])] == [
        (1, True),
        (2, False),
    ]

    def with_stacks() -> wire.BlackBox | None:
        again = read_box(record)
        return again if again is not None and again.snapshots else None

    seen = wait_for(with_stacks, "the stacks of the living ranks")
    assert {history.key for history in seen.histories} == {rank.key for rank in after.values()}
    assert {snapshot.key for snapshot in seen.snapshots[0].snapshots} == {
        after[0].key,
        after[2].key,
    }
    assert all(snapshot.dumps[0].threads for snapshot in seen.snapshots[0].snapshots)
    for rank in (first, third):
        rank.process.send_signal(signal.SIGTERM)
    last = ranks(wait_for_complete_box(record).after)
    exit_status = [rank.exit_info.signal for rank in last.values() if rank.exit_info is not None]
    assert sorted(exit_status, key=str) == sorted([signal.SIGKILL, *[signal.SIGTERM] * 2], key=str)
    wait_for(lambda: is_unlocked(host), "no box is pending")


def test_a_hung_job_killed_as_a_whole_has_its_stacks_in_the_box(
    host: Host, record: Path, tmp_path: Path
) -> None:
    fifo = tmp_path / "shard"
    os.mkfifo(fifo)
    started = [host.rank("read", str(fifo), rank=0), host.rank("wait", rank=1)]
    host.spawn(program=("-c", QUICK_STALLS))
    wait_for(lambda: snapshots_taken(host) >= 2, "two snapshots are taken")
    assert not list(record.iterdir())
    for rank in started:
        rank.process.send_signal(signal.SIGTERM)
    found = wait_for_complete_box(record)
    keys = {rank: sent.key for rank, sent in ranks(found.after).items()}
    seen = [
        snapshot
        for response in found.snapshots
        for snapshot in response.snapshots
        if snapshot.key == keys[0]
    ]
    assert len(seen) >= 2
    assert seen[1].at_ns - seen[0].at_ns > 0.25 * S
    snapshot = seen[1]
    assert snapshot.processes[0].file == str(fifo)
    (stack,) = [stack for stack in snapshot.dumps[0].threads if stack.name == "MainThread"]
    assert stack.frames[0].function == "read_for_ever"


def test_a_job_that_is_not_recorded_leaves_no_box_and_one_that_ends_well_a_record(
    host: Host, record: Path
) -> None:
    del host.environment["FRTOP_RECORD"]
    (unrecorded,), _ = start_pending(host, 1)
    assert is_unlocked(host)
    unrecorded.kill()
    operator = host.operators[-1]
    wait_for(lambda: operator.state().ranks[0].exit_info, "the death is known")
    assert not lock_file(host.folder).exists()

    host.environment["FRTOP_RECORD"] = str(record)
    started = [host.rank("wait", rank=rank) for rank in range(2)]
    for rank in started:
        rank.do("op")
    wait_for(lambda: len(operator.state().ranks) == 3, "the agent tracks all ranks")
    wait_for(lambda: lock_file(host.folder).exists() and not is_unlocked(host), "the lock is held")
    with lock_file(host.folder).open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert not wait_for_boxes([host.folder], time.time_ns(), 0.1)
    for rank, order in zip(started, ("stop", "exit 0"), strict=True):
        rank.send_command(order)
    wait_for(lambda: is_unlocked(host), "no box is pending")
    (path,) = record.iterdir()
    box = read_box(record)
    assert path.name.endswith("-ended.box")
    assert box is not None
    assert box.complete
    assert all(rank.exit_info for rank in box.after.ranks)
    assert len(box.histories) == 2


def test_the_record_has_the_gauges_of_each_minute_of_the_run(host: Host, record: Path) -> None:
    rank = host.rank("wait")
    rank.do("op")
    operator = host.operator(host.agent(program=("-c", QUICK_MINUTES), FRTOP_GAUGES="1"))

    seconds = set()

    def have_readings() -> bool:
        gauges = operator.state().gauges
        if gauges is not None:
            seconds.add(gauges.at_ns // S)
        return len(seconds) > 3  # on a loaded host they are further apart

    wait_for(have_readings, "readings of some minutes")
    rank.send_command("stop")
    minutes = wait_for_complete_box(record).minutes
    assert minutes is not None
    assert minutes.points >= 2
    kinds = {one.id: one.kind for one in minutes.subjects}
    kept = {(kinds[one.series.subject], one.series.gauge) for one in minutes.columns}
    assert {("host", "cpu"), ("host", "mem_available"), ("rank", "mem")} <= kept


def test_records_of_runs_that_ended_well_make_room_for_newer_ones(tmp_path: Path) -> None:
    pattern, kept = "*-node1-??????-ended.box", tmp_path / "job-9-a0-node1-abcdef-ended.box"
    for number in range(MAX_BOXES + 3):
        path = tmp_path / f"job-{number}-a0-node1-abcdef-ended.box"
        path.touch()
        os.utime(path, (number, number))
    others = [tmp_path / "job-1-a0-node1-abcdef.box", tmp_path / "job-1-a0-node2-abcdef-ended.box"]
    for path in others:
        path.touch()
        os.utime(path, (1, 1))
    make_room(tmp_path, pattern, keep=kept)
    left = {path.name for path in tmp_path.glob(pattern)}
    assert len(left) == MAX_BOXES
    assert kept.name in left
    assert all(path.exists() for path in others)


def test_two_jobs_leave_two_boxes(host: Host, record: Path) -> None:
    started = []
    for name in ("one", "t/w:o"):
        host.environment["TORCHELASTIC_RUN_ID"] = name
        started += [host.rank("wait", rank=rank) for rank in range(2)]
    operator = host.operator(host.agent())
    wait_for(lambda: len(operator.state().ranks) == 4, "the agent tracks all ranks")
    started[0].send_command("exit 3")
    wait_for(lambda: read_box(record), "a box of the first job")
    for rank in started[1:]:
        rank.kill()
    for like, name in (("*-one-*.box", "one"), ("*-t_w_o-*.box", "t/w:o")):
        found = wait_for_complete_box(record, like)
        assert found.job.run_id == name
        ends = [rank.exit_info for _, rank in sorted(ranks(found.after).items())]
        assert [end and end.exit_code for end in ends] == [3 if name == "one" else None, None]
    assert all(path.suffix == ".box" for path in record.iterdir())


def test_an_unwritable_folder_gives_a_note(host: Host, tmp_path: Path) -> None:
    folders = [tmp_path / "missing", tmp_path / "file"]
    folders[1].touch()
    for folder in folders:
        host.environment |= {"FRTOP_RECORD": str(folder), "TORCHELASTIC_RUN_ID": folder.name}
        host.rank("wait")
    operator = host.operator(host.agent())
    wait_for(lambda: len(operator.state().ranks) == 2, "the agent tracks both ranks")
    for rank in host.ranks:
        rank.kill()
    wait_for(lambda: len(operator.state().notes) == 2, "two notes")
    for note, folder in zip(sorted(operator.state().notes), sorted(folders), strict=True):
        assert str(folder) in note
        assert "--record" in note
    first = operator.update()
    assert operator.update().number > first.number


@contextmanager
def mount_tiny(folder: Path) -> Iterator[None]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a file system")
def test_a_full_folder_has_no_partial_box(host: Host, record: Path) -> None:
    with mount_tiny(record):
        (record / "fill").write_bytes(bytes(4096))
        (rank,), _ = start_pending(host, 1)
        rank.kill()
        operator = host.operators[-1]
        notes = wait_for(lambda: operator.state().notes, "a note")
        assert "No space left" in notes[0]
        assert [path.name for path in record.iterdir()] == ["fill"]


def test_a_terminated_agent_finishes_its_boxes_and_does_not_wait_for_a_living_job(
    host: Host, record: Path
) -> None:
    started, _ = start_pending(host, 3)
    host.environment["TORCHELASTIC_RUN_ID"] = "living"
    host.rank("wait")
    operator = host.operators[-1]
    wait_for(lambda: len(operator.state().ranks) == 4, "the agent tracks all ranks")
    for rank in started:
        rank.process.send_signal(signal.SIGKILL)
    host.agents[-1].terminate()
    assert host.agents[-1].wait(DEADLINE_S) == 0
    found = read_box(record)
    assert found is not None
    assert (found.complete, found.job.run_id) == (True, "test")
    assert not lock_file(host.folder).exists()


def test_an_agent_started_after_the_death_writes_one_box(host: Host, record: Path) -> None:
    rank = host.rank("wait")
    began = 0
    assert under_way([host.folder], began)  # a ring that no agent has read
    rank.process.send_signal(signal.SIGKILL)
    rank.process.wait(DEADLINE_S)
    host.agent()
    assert wait_for_boxes([host.folder], began, 10)
    found = read_box(record)
    assert found is not None
    assert found.complete
    assert found.before is None
    host.agents[-1].kill()
    host.agents[-1].wait()
    operator = host.operator(host.agent())
    wait_for(lambda: operator.state().ranks, "the agent tracks the ring")
    wait_for(lambda: is_unlocked(host), "no box is pending")
    assert len(list(record.iterdir())) == 1


def test_a_lock_file_that_an_agent_has_just_made_says_nothing(host: Host, record: Path) -> None:
    """Between making and locking it, or while another process tests it, no rank is known yet."""
    host.rank("wait")
    lock_file(host.folder).touch()
    assert under_way([host.folder], 0)
    held, lock = os.open(lock_file(host.folder), os.O_RDONLY), RecordingLock(host.folder)
    fcntl.flock(held, fcntl.LOCK_SH)
    lock.acquire(1)
    os.close(held)
    assert under_way([host.folder], 0)
    lock.acquire(1)
    assert under_way([host.folder], 0)
    lock.release()
    assert not under_way([host.folder], 0)


def test_snapshots_of_a_stall_come_in_pairs_and_ever_less_often() -> None:
    detector, with_stacks = StallDetector(), []
    for tick in range(1, 4000):
        now = tick * S // 2
        if detector.update("same", now):
            with_stacks.append(now - S // 2)
    assert with_stacks[:2] == [QUIET_NS, QUIET_NS + PAIR_NS]
    assert with_stacks[2:4] == [2 * QUIET_NS, 2 * QUIET_NS + PAIR_NS]
    assert with_stacks[4:6] == [4 * QUIET_NS, 4 * QUIET_NS + PAIR_NS]
    assert with_stacks[-2] - with_stacks[-4] == MAX_WAIT_NS


def test_a_job_that_moves_has_no_snapshots_due() -> None:
    detector = StallDetector()
    assert not any(detector.update(tick // 10, tick * S) for tick in range(1, 100))
    assert not detector.is_stalled(99 * S)
    assert detector.is_stalled(100 * S)
    assert detector.over_for_ns(100 * S) == 0
    detector.update("moved", 102 * S)
    assert detector.over_for_ns(103 * S) == S


def test_recent_snapshots_are_bounded() -> None:
    snapshots = RecentSnapshots("node0")
    for at in range(10):
        snapshots.add("stall", [wire.Snapshot(1, at)], at)
        snapshots.add("request", [wire.Snapshot(1, at)], at)
    assert len(snapshots.encoded()) == MAX_SNAPSHOTS["stall"] + MAX_SNAPSHOTS["request"]
    big = wire.Snapshot(1, 11, dumps=(wire.StackDump(1, help="x" * (MAX_SNAPSHOT_BYTES // 2)),))
    for at in range(3):
        snapshots.add("death", [big], 20 + at)
    assert len(snapshots.encoded()) == 1
    snapshots.add(
        "death",
        [wire.Snapshot(1, 1, dumps=(wire.StackDump(1, help="x" * MAX_SNAPSHOT_BYTES),))],
        30,
    )
    assert snapshots.encoded() == ()
    snapshots.add("death", [], 31)
    snapshots.add("death", [wire.Snapshot(1, 32)], 32)
    snapshots.drop_before(33)
    assert snapshots.encoded() == ()


def test_a_terminated_agent_writes_the_box_of_a_stalled_job(host: Host, record: Path) -> None:
    """A batch system ends all processes at once; ranks may take longer than the agent."""
    host.rank("wait")
    agent = host.spawn(program=("-c", QUICK_STALLS))
    wait_for(lambda: snapshots_taken(host), "a snapshot of the stall")
    assert not list(record.iterdir())
    agent.terminate()
    found = wait_for(lambda: read_box(record), "a box")
    assert (found.complete, found.before) == (False, None)
    assert found.snapshots
    host.ranks[0].kill()
    last = wait_for_complete_box(record)
    assert ranks(last.before)[0].exit_info is None
    exit_info = ranks(last.after)[0].exit_info
    assert exit_info is not None
    assert exit_info.signal == signal.SIGKILL
    assert agent.wait(DEADLINE_S) == 0


def test_a_hung_folder_blocks_neither_ticks_nor_exit(host: Host, record: Path) -> None:
    rank = host.rank("wait")
    agent = host.spawn(program=("-c", HUNG_STORAGE))
    card = wait_for(lambda: announcement.find_agent(host.folder), "the agent announces itself")
    wait_for(lambda: not is_unlocked(host), "the agent knows it")
    rank.kill()
    operator = host.operator(card)
    notes = wait_for(lambda: operator.state().notes, "a note")
    assert "has not answered" in notes[0]
    first = operator.update()
    second = operator.update()
    assert second.number == first.number + 1
    assert second.monotonic_ns - first.monotonic_ns < DEADLINE_S * S  # the folder answers never
    assert not is_unlocked(host)
    agent.terminate()
    assert agent.wait(DEADLINE_S) == 0
