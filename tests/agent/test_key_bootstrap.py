"""The user's key is made only by the agent beside rank 0, or by a person."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from agent.agent_host import Host
from agent.ring_builder import RingBuilder
from frtop_probe import keys
from frtop_probe.agent import announcement, key_bootstrap
from frtop_probe.agent.key_bootstrap import bootstrap_key, living_ranks
from frtop_probe.keys import KeyProblem
from frtop_probe.recorder.process import agent_launch
from frtop_probe.recorder.process.spawn_lock import SpawnAttempt
from frtop_probe.ring.folder import agent_lives
from frtop_probe.ring.layout import StatusCell
from waiting import wait_for


@pytest.fixture
def keyless(host: Host) -> Host:
    host.key_file.unlink()
    return host


def test_an_agent_beside_any_rank_loads_an_existing_key(host: Host) -> None:
    RingBuilder(host.folder, rank=3)
    assert bootstrap_key([host.folder], by_hand=False) == keys.load(create=False)


def test_the_agent_beside_rank_0_makes_the_key(keyless: Host, tmp_path: Path) -> None:
    RingBuilder(tmp_path, rank=0)
    assert bootstrap_key([keyless.folder, tmp_path], by_hand=False) == keys.load(create=False)
    assert not agent_lives(keyless.folder)


def test_the_key_is_made_beside_a_rank_0_that_has_just_died(keyless: Host) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    RingBuilder(keyless.folder, pid=ended.pid, start_ticks=1, rank=0)
    assert not living_ranks([keyless.folder])
    assert bootstrap_key([keyless.folder], by_hand=False) == keys.load(create=False)


def _without_identity(folder: Path) -> None:
    builder = RingBuilder(folder, rank=0)
    builder.cells[StatusCell.SIDE_USED] = 0


def _dead(folder: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    builder = RingBuilder(folder, pid=ended.pid, start_ticks=1, rank=0)
    builder.cells[StatusCell.HEARTBEAT_NS] -= int(2 * key_bootstrap.RECENT_S * 1e9)


def _malformed(folder: Path) -> None:
    (folder / "1-1.ring").write_bytes(os.urandom(5000))
    (folder / "2-1.ring").mkdir()


@pytest.mark.parametrize(
    "beside",
    [
        partial(RingBuilder, rank=-1),
        partial(RingBuilder, rank=1),
        partial(RingBuilder, namespace=1),  # in another container
        partial(RingBuilder, boot_id=b"x" * 16),
        _without_identity,
        _dead,
        _malformed,
    ],
)
def test_no_key_is_made_without_rank_0(keyless: Host, beside: Callable[[Path], object]) -> None:
    beside(keyless.folder)
    assert 0 not in living_ranks([keyless.folder])
    with pytest.raises(KeyProblem) as problem:
        bootstrap_key([keyless.folder], by_hand=False, timeout_s=0)
    assert not keyless.key_file.exists()
    assert "copy" in problem.value.next


@pytest.mark.long
def test_a_waiting_agent_holds_the_lock_until_the_key_appears(
    keyless: Host,
) -> None:
    keyless.rank("wait", rank=1)
    waiting = keyless.spawn()
    wait_for(lambda: agent_lives(keyless.folder), "the waiting agent holds its lock")
    assert announcement.find_agent(keyless.folder) is None
    second = keyless.spawn()
    second.communicate(timeout=60)
    assert second.returncode == 0
    pair = keys.load(create=True)  # as an agent on another host does, in a shared home

    def up() -> bool:
        card = announcement.find_agent(keyless.folder)
        return card is not None and card.public_key == pair.public.decode()

    assert wait_for(up, "the waiting agent has taken the key")
    assert waiting.poll() is None


def test_a_rank_that_learns_late_that_it_is_0_counts(keyless: Host) -> None:
    builder = RingBuilder(keyless.folder, rank=-1)

    def learn() -> None:
        builder.cells[StatusCell.RANK] = 0

    threading.Timer(0.2, learn).start()
    assert bootstrap_key([keyless.folder], by_hand=False) == keys.load(create=False)


def test_a_waiting_agent_leaves_with_its_last_rank(keyless: Host) -> None:
    rank = keyless.rank("wait", rank=1)
    waiting = keyless.spawn()
    wait_for(lambda: agent_lives(keyless.folder), "the agent waits")
    rank.kill()
    _, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 1
    assert f"there is no key at {keyless.key_file}" in errors


def test_a_script_makes_no_key(keyless: Host) -> None:
    with pytest.raises(KeyProblem, match="there is no key"):
        bootstrap_key([keyless.folder], by_hand=True)
    assert not keyless.key_file.exists()


def test_a_person_makes_a_key_and_is_informed(
    keyless: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    pair = bootstrap_key([keyless.folder], by_hand=True)
    errors = capsys.readouterr().err
    assert str(pair.path) in errors
    assert "another home" in errors
    bootstrap_key([keyless.folder], by_hand=True)
    assert not capsys.readouterr().err


def test_a_rank_reports_why_its_agent_waited_in_vain(
    keyless: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRTOP_AGENT", raising=False)
    monkeypatch.setattr(agent_launch, "_attempts", {keyless.files: SpawnAttempt(keyless.files)})
    RingBuilder(keyless.folder, rank=1)
    monkeypatch.setattr(key_bootstrap, "POLL_S", 0.0)
    living = key_bootstrap.living_ranks

    def meanwhile(folders: Iterable[Path], recent_s: float = 0.0) -> frozenset[int]:
        assert agent_launch.ensure_agent(keyless.folder) == ""
        return living(folders, recent_s)

    monkeypatch.setattr(key_bootstrap, "living_ranks", meanwhile)
    with pytest.raises(KeyProblem) as problem:
        bootstrap_key([keyless.folder], by_hand=False, timeout_s=0.1)
    keyless.files.log.write_text(f"frtop agent: {problem.value}\n")
    message = agent_launch.ensure_agent(keyless.folder)
    assert f"copy {keyless.key_file} from rank 0's host" in message
    assert message in capsys.readouterr().err


def test_an_agent_that_waited_in_vain_releases_its_lock(keyless: Host) -> None:
    RingBuilder(keyless.folder, rank=1)
    begin = time.monotonic()
    with pytest.raises(KeyProblem, match="this user's key is not on"):
        bootstrap_key([keyless.folder], by_hand=False, timeout_s=0.6)
    assert time.monotonic() - begin >= 0.6
    assert not agent_lives(keyless.folder)
