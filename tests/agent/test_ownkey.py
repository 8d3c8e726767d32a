"""Only the agent beside a job's rank 0, or a person, makes the user's key."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.host import Host, until
from agent.ringmaker import RingMaker
from frtop_probe import keys
from frtop_probe.agent import announcement, ownkey
from frtop_probe.agent.ownkey import living_ranks, own_key
from frtop_probe.keys import KeyProblem
from frtop_probe.recorder import agent_launch
from frtop_probe.recorder.spawn_lock import SpawnAttempt
from frtop_probe.ring.folder import agent_lives
from frtop_probe.ring.layout import StatusCell


@pytest.fixture
def keyless(host: Host) -> Host:
    host.key_file.unlink()
    return host


def test_an_agent_of_any_rank_takes_the_key_that_is_there(host: Host) -> None:
    RingMaker(host.folder, rank=3)
    assert own_key([host.folder], by_hand=False) == keys.load(create=False)


def test_the_agent_beside_rank_0_makes_the_key(keyless: Host) -> None:
    RingMaker(keyless.folder, rank=0)
    assert own_key([keyless.folder], by_hand=False) == keys.load(create=False)
    assert not agent_lives(keyless.folder)


def test_the_ring_of_rank_0_may_lie_in_the_second_folder(keyless: Host, tmp_path: Path) -> None:
    RingMaker(tmp_path, rank=0)
    assert own_key([keyless.folder, tmp_path], by_hand=False) == keys.load(create=False)


def test_a_rank_0_that_has_just_died_has_a_key_made_too(keyless: Host) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    RingMaker(keyless.folder, pid=gone.pid, start_ticks=1, rank=0)
    assert not living_ranks([keyless.folder])
    assert own_key([keyless.folder], by_hand=False) == keys.load(create=False)


def _unknown(folder: Path) -> None:
    RingMaker(folder, rank=-1)


def _another(folder: Path) -> None:
    RingMaker(folder, rank=1)


def _not_introduced(folder: Path) -> None:
    maker = RingMaker(folder, rank=0)
    maker.cells[StatusCell.SIDE_USED] = 0


def _dead(folder: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    maker = RingMaker(folder, pid=gone.pid, start_ticks=1, rank=0)
    maker.cells[StatusCell.BEAT_NS] -= int(2 * ownkey.LATELY_S * 1e9)


def _another_container(folder: Path) -> None:
    RingMaker(folder, rank=0, namespace=1)


def _another_boot(folder: Path) -> None:
    RingMaker(folder, rank=0, boot_id=b"x" * 16)


def _nonsense(folder: Path) -> None:
    (folder / "1-1.ring").write_bytes(os.urandom(5000))
    (folder / "2-1.ring").mkdir()


@pytest.mark.parametrize(
    "beside",
    [_unknown, _another, _not_introduced, _dead, _another_container, _another_boot, _nonsense],
)
def test_no_other_agent_makes_one(keyless: Host, beside: object) -> None:
    assert callable(beside)
    beside(keyless.folder)
    assert 0 not in living_ranks([keyless.folder])
    with pytest.raises(KeyProblem) as problem:
        own_key([keyless.folder], by_hand=False, patience_s=0)
    assert not keyless.key_file.exists()
    assert "copy" in problem.value.next


def test_an_agent_elsewhere_waits_for_the_key_and_keeps_others_from_starting(
    keyless: Host,
) -> None:
    keyless.rank("wait", rank=1)
    waiting = keyless.spawn()
    until(lambda: agent_lives(keyless.folder), "the waiting agent holds its lock")
    assert announcement.read(keyless.folder) is None
    second = keyless.spawn()
    second.communicate(timeout=20)
    assert second.returncode == 0
    pair = keys.load(create=True)  # as another host's agent does, in a home that is shared

    def up() -> bool:
        card = announcement.read(keyless.folder)
        return card is not None and card.public_key == pair.public.decode()

    assert until(up, "the waiting agent has taken the key")
    assert waiting.poll() is None


def test_a_rank_that_learns_its_number_late_counts_from_then_on(keyless: Host) -> None:
    maker = RingMaker(keyless.folder, rank=-1)

    def learn() -> None:
        maker.cells[StatusCell.RANK] = 0

    threading.Timer(0.2, learn).start()
    assert own_key([keyless.folder], by_hand=False) == keys.load(create=False)


def test_an_agent_does_not_wait_for_longer_than_its_ranks(keyless: Host) -> None:
    rank = keyless.rank("wait", rank=1)
    waiting = keyless.spawn()
    until(lambda: agent_lives(keyless.folder), "the agent waits")
    rank.kill()
    _, said = waiting.communicate(timeout=20)
    assert waiting.returncode == 1
    assert f"there is no key at {keyless.key_file}" in said


def test_a_script_makes_none(keyless: Host) -> None:
    with pytest.raises(KeyProblem, match="there is no key"):
        own_key([keyless.folder], by_hand=True)
    assert not keyless.key_file.exists()


def test_a_person_makes_one_and_is_told_so(
    keyless: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    pair = own_key([keyless.folder], by_hand=True)
    said = capsys.readouterr().err
    assert str(pair.path) in said
    assert "another home" in said
    own_key([keyless.folder], by_hand=True)
    assert not capsys.readouterr().err


def test_the_ranks_tell_what_an_agent_said_that_waited_in_vain(
    keyless: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRTOP_AGENT", raising=False)
    monkeypatch.setattr(agent_launch, "_attempts", {keyless.files: SpawnAttempt(keyless.files)})
    RingMaker(keyless.folder, rank=1)
    monkeypatch.setattr(ownkey, "POLL_S", 0.0)
    living = ownkey.living_ranks

    def meanwhile(folders: Iterable[Path], lately_s: float = 0.0) -> frozenset[int]:
        assert agent_launch.ensure_agent(keyless.folder) == ""
        return living(folders, lately_s)

    monkeypatch.setattr(ownkey, "living_ranks", meanwhile)
    with pytest.raises(KeyProblem) as problem:
        own_key([keyless.folder], by_hand=False, patience_s=0.1)
    keyless.files.log.write_text(f"frtop agent: {problem.value}\n")
    told = agent_launch.ensure_agent(keyless.folder)
    assert f"copy {keyless.key_file} from rank 0's host" in told
    assert told in capsys.readouterr().err


def test_an_agent_that_waited_in_vain_makes_room_for_the_next(keyless: Host) -> None:
    RingMaker(keyless.folder, rank=1)
    begun = time.monotonic()
    with pytest.raises(KeyProblem, match="this user's key is not on"):
        own_key([keyless.folder], by_hand=False, patience_s=0.6)
    assert time.monotonic() - begun >= 0.6
    assert not agent_lives(keyless.folder)
