"""What an agent leaves of a recorded job: real ranks that are killed, fail, hang, or end well."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.host import Host, Rank, until
from frtop_probe import archive, wire
from frtop_probe.agent import announcement
from frtop_probe.agent.lastlooks import KEPT, MAX_BYTES, LastLooks
from frtop_probe.agent.standstill import PAIR_NS, QUIET_NS, SELDOM_NS, Standstill
from frtop_probe.ring.recording import BOX_KIND, lock_file, under_way, wait_for_boxes

S = 1_000_000_000
IMPATIENT = """
import os, sys
from frtop_probe.agent import looks, standstill
standstill.QUIET_NS, standstill.PAIR_NS = 1_000_000_000, 300_000_000
take = looks.Looker.take
async def taking(*words):
    found = await take(*words)
    with open(os.environ["FRTOP_DIR"] + "/../looks", "a") as file:
        file.write("x")
    return found
looks.Looker.take = taking
from frtop_probe.agent.__main__ import main
sys.exit(main())
"""
"""An agent that takes a job for standing still after a second, and counts its looks."""
WITHOUT_STORAGE = """
import sys, time
from frtop_probe import archive
from frtop_probe.agent import blackbox
archive.write = lambda *_, **__: time.sleep(600)
blackbox.SLOW = 0.3
from frtop_probe.agent.__main__ import main
sys.exit(main())
"""
"""An agent whose record folder does not answer."""


@pytest.fixture
def record(host: Host, tmp_path: Path) -> Path:
    """A record folder that the ranks of `host` name."""
    folder = tmp_path / "record"
    folder.mkdir(mode=0o700)
    host.environment["FRTOP_RECORD"] = str(folder)
    return folder


def box(record: Path, like: str = "*.box") -> wire.BlackBox | None:
    found = list(record.glob(like))
    assert len(found) <= 1, found
    return wire.decode_box(archive.read(found[0], BOX_KIND)) if found else None


def complete(record: Path, like: str = "*.box") -> wire.BlackBox:
    def there() -> wire.BlackBox | None:
        found = box(record, like)
        return found if found is not None and found.complete else None

    return until(there, "the box is complete")


def ranks(update: wire.Update | None) -> dict[int, wire.RankUpdate]:
    assert update is not None
    return {rank.identity.rank: rank for rank in update.ranks if rank.identity is not None}


def free(host: Host) -> bool:
    """Whether nobody holds the lock that tells `frtop run` to wait."""
    return not under_way([host.folder], time.time_ns())


def waiting(host: Host, count: int) -> tuple[list[Rank], list[int]]:
    """Ranks with one op pending each, known to an agent; and their keys."""
    started = [host.rank("wait", rank=rank) for rank in range(count)]
    for rank in started:
        rank.order("op")
        assert rank.line() == "done"
    operator = host.operator(host.agent())

    def known() -> list[int]:
        told = ranks(operator.state())
        keys = [told[n].key for n in sorted(told) if told[n].pending]
        return keys if len(keys) == count else []

    return started, until(known, "all pending ops are told")


def looks_taken(host: Host) -> int:
    path = host.folder.parent / "looks"
    return path.stat().st_size if path.exists() else 0


def changed_agent(host: Host, program: str) -> subprocess.Popen[str]:
    host.agents.append(
        subprocess.Popen(
            [sys.executable, "-c", program],
            env=host.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    return host.agents[-1]


def test_the_first_bad_death_is_written_down_at_once(host: Host, record: Path) -> None:
    (first, second, third), _ = waiting(host, 3)
    assert not list(record.iterdir())
    os.kill(second.pid, signal.SIGKILL)
    found = until(lambda: box(record), "a box", 1.5)
    assert (found.complete, found.job.run_id, found.host) == (False, "test", os.uname().nodename)
    before, after = ranks(found.before), ranks(found.after)
    assert set(before) == set(after) == {0, 1, 2}
    assert [op.number for op in before[1].pending or ()] == [2]
    assert before[1].exit_info is None
    ending = after[1].exit_info
    assert ending is not None
    assert (ending.signal, ending.clean) == (signal.SIGKILL, False)
    assert after[0].exit_info is None
    told = {history.key: history.history for history in found.histories}
    assert [(row.number, row.took_ns > 0) for row in told[after[1].key].rows] == [
        (1, True),
        (2, False),
    ]

    def looked() -> wire.BlackBox | None:
        again = box(record)
        return again if again is not None and again.snapshots else None

    seen = until(looked, "the stacks of those that live")
    assert {history.key for history in seen.histories} == {rank.key for rank in after.values()}
    assert {look.key for look in seen.snapshots[0].snapshots} == {after[0].key, after[2].key}
    assert all(look.dumps[0].threads for look in seen.snapshots[0].snapshots)
    for rank in (first, third):
        rank.process.send_signal(signal.SIGTERM)
    last = ranks(complete(record).after)
    endings = [rank.exit_info.signal for rank in last.values() if rank.exit_info is not None]
    assert sorted(endings, key=str) == sorted([signal.SIGKILL, *[signal.SIGTERM] * 2], key=str)
    until(lambda: free(host), "nothing is under way any more")


def test_a_job_that_hung_and_was_ended_as_a_whole_still_tells_where(
    host: Host, record: Path, tmp_path: Path
) -> None:
    fifo = tmp_path / "shard"
    os.mkfifo(fifo)
    started = [host.rank("read", str(fifo), rank=0), host.rank("wait", rank=1)]
    changed_agent(host, IMPATIENT)
    until(lambda: looks_taken(host) >= 2, "it has looked, twice")
    assert not list(record.iterdir())
    for rank in started:
        rank.process.send_signal(signal.SIGTERM)
    found = complete(record)
    keys = {rank: told.key for rank, told in ranks(found.after).items()}
    seen = [look for answer in found.snapshots for look in answer.snapshots if look.key == keys[0]]
    assert len(seen) >= 2
    assert seen[1].at_ns - seen[0].at_ns > 0.25 * S
    look = seen[1]
    assert look.processes[0].file == str(fifo)
    (stack,) = [stack for stack in look.dumps[0].threads if stack.name == "MainThread"]
    assert stack.frames[0].function == "read_for_ever"


@pytest.mark.parametrize("order", ["stop", "exit 0"])
def test_a_clean_end_leaves_no_box(host: Host, record: Path, order: str) -> None:
    started, _ = waiting(host, 2)
    until(lambda: not free(host), "the lock is held")
    for rank in started:
        rank.order(order)
    until(lambda: free(host), "nothing is under way any more")
    assert not list(record.iterdir())


def test_an_exit_status_is_a_bad_end(host: Host, record: Path) -> None:
    (rank,), _ = waiting(host, 1)
    rank.order("exit 3")
    ending = ranks(complete(record).after)[0].exit_info
    assert ending is not None
    assert ending.exit_code == 3


def test_jobs_nobody_records_are_left_alone(host: Host, tmp_path: Path) -> None:
    (rank,), _ = waiting(host, 1)
    assert free(host)
    rank.kill()
    operator = host.operators[-1]
    until(lambda: operator.state().ranks[0].exit_info, "the death is told")
    assert not lock_file(host.folder).exists()


def test_two_jobs_leave_two_boxes(host: Host, record: Path) -> None:
    started = []
    for name in ("one", "t/w:o"):
        host.environment["TORCHELASTIC_RUN_ID"] = name
        started += [host.rank("wait", rank=rank) for rank in range(2)]
    operator = host.operator(host.agent())
    until(lambda: len(operator.state().ranks) == 4, "all ranks are adopted")
    started[0].kill()
    until(lambda: box(record), "a box of the first job")
    for rank in started[1:]:
        rank.kill()
    for like, name in (("*-one-*.box", "one"), ("*-t_w_o-*.box", "t/w:o")):
        found = complete(record, like)
        assert found.job.run_id == name
        assert set(ranks(found.after)) == {0, 1}
    assert all(path.suffix == ".box" for path in record.iterdir())


def unmade(folder: Path) -> None:
    folder.rmdir()


def blocked(folder: Path) -> None:
    folder.rmdir()
    folder.touch()


@pytest.mark.parametrize("spoil", [unmade, blocked])
def test_a_folder_that_takes_nothing_is_a_note_and_no_more(
    host: Host, record: Path, spoil: object
) -> None:
    (rank, _), _ = waiting(host, 2)
    assert callable(spoil)
    spoil(record)
    rank.kill()
    operator = host.operators[-1]
    notes = until(lambda: operator.state().notes, "a note")
    assert str(record) in notes[0]
    assert "--record" in notes[0]
    first = operator.update()
    assert operator.update().number > first.number


@contextmanager
def tiny(folder: Path) -> Iterator[None]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a file system")
def test_a_full_folder_keeps_nothing_half(host: Host, record: Path) -> None:
    with tiny(record):
        (record / "fill").write_bytes(bytes(4096))
        (rank,), _ = waiting(host, 1)
        rank.kill()
        operator = host.operators[-1]
        notes = until(lambda: operator.state().notes, "a note")
        assert "No space left" in notes[0]
        assert [path.name for path in record.iterdir()] == ["fill"]


def test_an_agent_that_is_told_to_leave_finishes_its_boxes(host: Host, record: Path) -> None:
    started, _ = waiting(host, 3)
    for rank in started:
        rank.process.send_signal(signal.SIGKILL)
    host.agents[-1].terminate()
    assert host.agents[-1].wait(5) == 0
    found = box(record)
    assert found is not None
    assert found.complete
    assert not lock_file(host.folder).exists()


def test_an_agent_does_not_wait_for_a_job_that_lives(host: Host, record: Path) -> None:
    waiting(host, 1)
    begun = time.monotonic()
    host.agents[-1].terminate()
    assert host.agents[-1].wait(8) == 0
    assert time.monotonic() - begun < 5
    assert not list(record.iterdir())


def test_an_agent_that_comes_too_late_tells_of_the_dead_once(host: Host, record: Path) -> None:
    rank = host.rank("wait")
    began = 0
    assert under_way([host.folder], began)  # a ring that no agent has seen
    rank.process.send_signal(signal.SIGKILL)
    host.agent()
    assert wait_for_boxes([host.folder], began, 10)
    found = box(record)
    assert found is not None
    assert found.complete
    assert found.before is None
    host.agents[-1].kill()
    host.agents[-1].wait()
    operator = host.operator(host.agent())
    until(lambda: operator.state().ranks, "the ring is adopted anew")
    until(lambda: free(host), "nothing is under way")
    assert len(list(record.iterdir())) == 1


def test_the_lock_is_for_this_space_and_survives_questions(host: Host, record: Path) -> None:
    waiting(host, 1)
    until(lambda: not free(host), "the lock is held")
    with lock_file(host.folder).open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert not wait_for_boxes([host.folder], time.time_ns(), 0.1)


def test_looks_come_in_pairs_and_ever_more_seldom() -> None:
    still, looked = Standstill(), []
    for tick in range(1, 4000):
        now = tick * S // 2
        if still.due("same", now):
            looked.append(now - S // 2)
    assert looked[:2] == [QUIET_NS, QUIET_NS + PAIR_NS]
    assert looked[2:4] == [2 * QUIET_NS, 2 * QUIET_NS + PAIR_NS]
    assert looked[4:6] == [4 * QUIET_NS, 4 * QUIET_NS + PAIR_NS]
    assert looked[-2] - looked[-4] == SELDOM_NS


def test_a_job_that_moves_is_not_looked_at() -> None:
    still = Standstill()
    assert not any(still.due(tick // 10, tick * S) for tick in range(1, 100))
    assert not still.stands(99 * S)
    assert still.stands(100 * S)
    assert still.over_for_ns(100 * S) == 0
    still.due("moved", 102 * S)
    assert still.over_for_ns(103 * S) == S


def test_last_looks_are_few_and_bounded() -> None:
    looks = LastLooks("node0")
    for at in range(10):
        looks.add("standstill", [wire.Snapshot(1, at)], at)
        looks.add("asked", [wire.Snapshot(1, at)], at)
    assert len(looks.told()) == KEPT["standstill"] + KEPT["asked"]
    big = wire.Snapshot(1, 11, dumps=(wire.StackDump(1, help="x" * (MAX_BYTES // 2)),))
    for at in range(3):
        looks.add("death", [big], 20 + at)
    assert len(looks.told()) == 1
    looks.add("death", [wire.Snapshot(1, 1, dumps=(wire.StackDump(1, help="x" * MAX_BYTES),))], 30)
    assert looks.told() == ()
    looks.add("death", [], 31)
    looks.add("death", [wire.Snapshot(1, 32)], 32)
    looks.forget(33)
    assert looks.told() == ()


def test_a_job_that_stands_still_is_told_by_an_agent_that_must_leave_first(
    host: Host, record: Path
) -> None:
    """A batch system ends all processes of a job alike; ranks may take longer than we do."""
    host.rank("wait")
    agent = changed_agent(host, IMPATIENT)
    until(lambda: looks_taken(host), "it stands still")
    assert not list(record.iterdir())
    agent.terminate()
    found = until(lambda: box(record), "a box", 1.5)
    assert (found.complete, found.before) == (False, None)
    assert found.snapshots
    host.ranks[0].kill()
    last = complete(record)
    assert ranks(last.before)[0].exit_info is None
    ending = ranks(last.after)[0].exit_info
    assert ending is not None
    assert ending.signal == signal.SIGKILL
    assert agent.wait(5) == 0


def test_a_folder_that_does_not_answer_stops_nothing(host: Host, record: Path) -> None:
    rank = host.rank("wait")
    agent = changed_agent(host, WITHOUT_STORAGE)
    card = until(lambda: announcement.read(host.folder), "the agent announces itself")
    until(lambda: not free(host), "the agent knows it")
    rank.kill()
    operator = host.operator(card)
    notes = until(lambda: operator.state().notes, "a note")
    assert "has not answered" in notes[0]
    first = operator.update()
    second = operator.update()
    assert second.number == first.number + 1
    assert second.monotonic_ns - first.monotonic_ns < 2 * S
    assert not free(host)
    begun = time.monotonic()
    agent.terminate()
    assert agent.wait(10) == 0
    assert time.monotonic() - begun < 5
