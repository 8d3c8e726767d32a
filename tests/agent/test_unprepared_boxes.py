"""Black boxes of jobs that nobody prepared, written while somebody watches them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.unprepared_fakes import backend, c10d, candidate, entry, group, job, work
from frtop_probe import archive, wire
from frtop_probe.agent import box_folder
from frtop_probe.agent.black_boxes import BlackBoxWriter
from frtop_probe.agent.interfaces import ClockReading
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.ring.box_lock import BOX_KIND, RecordingLock, lock_file
from frtop_probe.unprepared.model import FlightRing
from frtop_probe.unprepared.worker import Look
from frtop_tui.files import blackbox
from history_rows import rows_of
from waiting import wait_for_async


class Agent:
    """Black boxes of ranks that stand in for gloo's: rank 1 of three has not entered #5."""

    def __init__(self, home: Path, boxes: Path) -> None:
        home.mkdir()
        self.home, self.boxes = home, boxes
        self.tracker = RankTracker([home])
        self.writer = BlackBoxWriter(
            self.tracker, SnapshotTaker(), self.update, RecordingLock(home),
            host="node4", instance="1f2e3d4c5b6a",
        )  # fmt: skip
        self.processes = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        self.ranks: list[UnpreparedRank] = []
        for number, process in enumerate(self.processes):
            rank = self.tracker.add_unprepared(candidate(process.pid, rank=number), job())
            assert rank is not None
            number_of_last = 4 if number == 1 else 5
            pending = [] if number == 1 else [work("allreduce", 5)]
            now = c10d(group("0", backend(number_of_last, pending), rank=number))
            rank.take(Look(process.pid, now), time.monotonic_ns())
            ring = FlightRing("gloo", 2000, 4, tuple(entry(n) for n in range(1, 5)))
            found = Look(process.pid, now, rings=(ring,), after=now)
            rank.take_ring(found, time.monotonic_ns(), time.time_ns() - time.monotonic_ns())
            rank.box_folder = lambda: str(boxes)
            self.ranks.append(rank)
        self.tick()

    def update(
        self, ranks: tuple[wire.RankUpdate, ...], at: ClockReading | None = None
    ) -> wire.Update:
        at = at or ClockReading.now()
        notes = self.tracker.notes
        return wire.Update("node4", "i", 1, at.monotonic_ns, at.wall_ns, ranks, notes=notes)

    def tick(self) -> None:
        now_ns = time.monotonic_ns()
        self.tracker.tick(now_ns)
        self.writer.tick(now_ns)

    def watch(self, *, on: bool) -> None:
        """Whether somebody watches the job from now on."""
        for rank in self.ranks:
            rank.box_folder = (lambda: str(self.boxes)) if on else None
        self.tick()

    def end(self, *ranks: int, by: int = signal.SIGKILL) -> None:
        for rank in ranks:
            self.processes[rank].send_signal(by)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        def ticked() -> object:
            self.tick()
            return condition()

        await wait_for_async(ticked, what)

    def found(self) -> list[wire.BlackBox]:
        paths = sorted(self.boxes.glob("*.box"))
        return [wire.decode_box(archive.read(path, BOX_KIND)) for path in paths]

    def complete(self) -> bool:
        return [box.complete for box in self.found()] == [True]

    def all_ended(self) -> bool:
        return all(rank.exit_info is not None for rank in self.ranks)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    one = Agent(tmp_path / "home", tmp_path / "state" / "frtop")
    yield one
    await one.writer.finish(one.tick, time.monotonic())
    for process in one.processes:
        process.kill()
        process.wait()
    one.tracker.clear()


async def test_a_watched_job_that_is_killed_leaves_what_was_seen_last(agent: Agent) -> None:
    before_ns = time.monotonic_ns()
    agent.end(0, 1, 2, by=signal.SIGTERM)
    await agent.until(agent.complete, "the box is complete")
    (box,) = agent.found()
    assert 0 < box.since_ns < before_ns
    assert [rank.exit_info and rank.exit_info.signal for rank in box.after.ranks] == [15] * 3
    assert box.before is not None
    assert [len(rank.pending or ()) for rank in box.before.ranks] == [1, 0, 1]
    assert [len(rows_of(one.history)) for one in box.histories] == [4] * 3
    assert agent.boxes.stat().st_mode & 0o777 == 0o700
    (note,) = agent.tracker.notes
    assert note.startswith(f"black box of train.py: frtop open {agent.boxes}/train.py-")
    assert box.after.notes == ()
    frame = blackbox.frame_of([blackbox.load(path) for path in agent.boxes.glob("*.box")])
    assert frame.recorded is not None
    assert any(text.startswith("not prepared: seen from outside from ")
               for text in frame.recorded.notes)  # fmt: skip
    assert set(frame.ranks) == {0, 1, 2}
    (path,) = agent.boxes.glob("*.box")
    again = blackbox.frame_of([blackbox.load(path)] * 2)
    assert again.recorded is not None
    assert any("there are older black boxes of this job: 1;" in text
               for text in again.recorded.notes)  # fmt: skip


async def test_the_others_of_a_dead_rank_are_in_the_box_also_when_nobody_watches_on(
    agent: Agent,
) -> None:
    agent.end(1)
    await agent.until(agent.found, "a box")
    for rank in (agent.ranks[0], agent.ranks[2]):
        agent.tracker.forget(rank)
    await agent.until(lambda: not agent.writer.busy, "it is not waited for")
    (box,) = agent.found()
    assert not box.complete
    assert len(box.after.ranks) == 3


async def test_nobody_waits_for_such_a_box_and_a_job_that_nobody_watched_leaves_none(
    agent: Agent,
) -> None:
    assert not agent.writer.busy
    assert not lock_file(agent.home).exists()  # `frtop run` waits for that
    agent.watch(on=False)
    agent.end(0, 1, 2)
    await agent.until(agent.all_ended, "their ends are known")
    for too_late in (False, True):
        agent.watch(on=too_late)
        assert not agent.writer.busy
        assert not agent.boxes.exists()


async def test_who_looks_elsewhere_and_comes_back_finds_one_box(agent: Agent) -> None:
    agent.end(0, 1, 2)
    await agent.until(lambda: agent.complete() and not agent.writer.busy, "the box is complete")
    notes = agent.tracker.notes
    for shown in (False, True):
        agent.watch(on=shown)
    assert not agent.writer.busy
    assert (len(agent.found()), agent.tracker.notes) == (1, notes)


async def test_a_job_that_ends_well_leaves_no_box(agent: Agent, tmp_path: Path) -> None:
    done = tmp_path / "done"
    process = subprocess.Popen(["sh", "-c", f"until [ -e {done} ]; do sleep 0.02; done"])
    agent.processes.append(process)
    rank = agent.tracker.add_unprepared(candidate(process.pid, rank=0), job(identity="another"))
    assert rank is not None
    rank.take(Look(process.pid, c10d(group("0", backend(3)))), time.monotonic_ns())
    rank.box_folder = lambda: str(agent.boxes)
    agent.tick()
    done.touch()
    await agent.until(lambda: rank.exit_info is not None, "its end is known")
    assert rank.exit_info is not None
    assert rank.exit_info.exit_code == 0
    assert not agent.writer.busy
    assert not agent.boxes.exists()


async def test_a_folder_that_cannot_be_written_is_said(agent: Agent) -> None:
    agent.boxes.parent.write_text("a file")
    agent.end(0, 1, 2)
    await agent.until(lambda: agent.tracker.notes, "a note")
    (note,) = agent.tracker.notes
    assert note.startswith("no black box of train.py: ")
    assert note.endswith("or name another with FRTOP_BOXES")
    await agent.until(lambda: not agent.writer.busy, "it is given up")


async def test_a_relative_folder_is_refused(agent: Agent) -> None:
    agent.boxes = Path("boxes")
    agent.watch(on=True)
    agent.end(0, 1, 2)
    await agent.until(lambda: agent.tracker.notes, "a note")
    assert agent.tracker.notes == (
        "no black box of train.py: FRTOP_BOXES=boxes is not an absolute path: set it to one",
    )
    assert not agent.boxes.exists()


def test_old_boxes_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_folder, "MAX_BOXES", 4)
    monkeypatch.setattr(box_folder, "MAX_BYTES", 350)
    other = tmp_path / "mine.txt"
    other.touch()
    (tmp_path / "linked.box").symlink_to(other)
    paths = [tmp_path / f"{number}.box" for number in range(6)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    box_folder.make_room(tmp_path, "*.box", keep=paths[0])
    assert [path.name for path in paths if path.exists()] == ["0.box", "3.box", "4.box", "5.box"]
    paths[5].write_bytes(bytes(300))
    os.utime(paths[5], (9, 9))
    box_folder.make_room(tmp_path, "*.box", keep=paths[0])
    assert [path.name for path in paths if path.exists()] == ["0.box", "5.box"]
    assert other.exists()
    assert (tmp_path / "linked.box").is_symlink()


@pytest.mark.parametrize(("environment", "folder"), [
    ({"HOME": "/home/ann"}, "/home/ann/.local/state/frtop"),
    ({"HOME": "/home/ann", "XDG_STATE_HOME": "/scratch/ann"}, "/scratch/ann/frtop"),
    ({"HOME": "/home/ann", "XDG_STATE_HOME": "relative"}, "/home/ann/.local/state/frtop"),
    ({"HOME": "/home/ann", "FRTOP_BOXES": "/scratch/boxes"}, "/scratch/boxes"),
    ({"HOME": "/home/ann", "FRTOP_BOXES": "0"}, ""),
    ({}, ""),
])  # fmt: skip
def test_where_they_go(environment: dict[str, str], folder: str) -> None:
    assert box_folder.box_folder(environment) == folder
