"""An agent keeps its place in its folder, whatever goes wrong there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.agent.announcement import Announcement
from frtop_probe.agent.lifecycle import FolderLease
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.stale_files import StaleFiles
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace
from waiting import wait_for_async

HERE = PidNamespace.here()
CARD = Announcement(1, "n", "127.0.0.1", 7677, 7678, "key", "instance", "1", 0)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[AgentLock]:
    taken = AgentLock.take(AgentFiles(tmp_path, HERE.name))
    assert taken is not None
    yield taken
    taken.release()


class BrokenSweep(StaleFiles):
    """Fails as nobody foresaw."""

    def sweep(self) -> str:
        raise KeyError("unforeseen")


async def test_a_failure_is_noted_and_the_card_is_made_again_all_the_same(
    lock: AgentLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_probe.agent.lifecycle.CHECK_S", 0.01)
    tracker = RankTracker([tmp_path])
    lease = FolderLease(lock, CARD, tracker, BrokenSweep([tmp_path], HERE, 0.0))
    maintenance = asyncio.create_task(lease.maintain())
    await wait_for_async(lambda: tracker.notes, "the failure is noted")
    assert "unforeseen" in tracker.notes[0]
    lock.files.card.unlink()
    await wait_for_async(lock.files.card.exists, "the card is there again")
    maintenance.cancel()


def test_a_card_that_cannot_be_looked_at_is_noted(
    lock: AgentLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bool:
        raise OSError(5, "Input/output error", str(path))

    tracker = RankTracker([tmp_path])
    lease = FolderLease(lock, CARD, tracker, StaleFiles([tmp_path], HERE, 60.0))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", fail)
        lease.check()
    assert tracker.notes == (f"{lock.files.card}: Input/output error",)


def test_an_agent_that_begins_keeps_the_log_to_which_it_writes(lock: AgentLock) -> None:
    for path in (lock.files.log, lock.files.spawn, lock.files.card):
        path.touch()
    lock.remove_files(log=False)
    assert lock.files.log.exists()
    assert not lock.files.spawn.exists()
    assert not lock.files.card.exists()
    lock.remove_files()
    assert not lock.files.log.exists()
