"""Of what lies in a folder only what is ours, dead, old and nobody else's goes."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

import pytest

from agent.ringmaker import RingMaker
from frtop_probe.agent.announcement import Lock
from frtop_probe.agent.strays import Strays
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace

HERE = PidNamespace.here()
ELSEWHERE = PidNamespace(HERE.boot, 12)
EARLIER = PidNamespace(bytes(16), HERE.inode)


def ring(folder: Path, space: PidNamespace, number: int = 1) -> Path:
    """One whose last sign of life was just now."""
    maker = RingMaker(folder, start_ticks=number, namespace=space.inode, boot_id=space.boot)
    maker.beat()
    return maker.path


def aged(path: Path) -> Path:
    os.utime(path, (1, 1), follow_symlinks=False)
    return path


def sweep(folder: Path, grace_s: float = 0.0) -> str:
    return Strays([folder], HERE, grace_s).sweep()


@pytest.mark.parametrize("space", [ELSEWHERE, EARLIER])
def test_rings_of_what_is_over_go_after_some_time(tmp_path: Path, space: PidNamespace) -> None:
    path = ring(tmp_path, space)
    sweep(tmp_path, grace_s=60)
    assert path.exists()
    sweep(tmp_path)
    assert not path.exists()


def test_rings_of_our_own_space_are_the_rosters(tmp_path: Path) -> None:
    path = ring(tmp_path, HERE)
    sweep(tmp_path)
    assert path.exists()


def test_rings_stay_while_an_agent_lives_that_can_tell_of_them(tmp_path: Path) -> None:
    path = ring(tmp_path, ELSEWHERE)
    lock = Lock.take(AgentFiles(tmp_path, ELSEWHERE.name))
    assert lock is not None
    sweep(tmp_path)
    assert path.exists()
    lock.release()
    sweep(tmp_path)
    assert not path.exists()


def test_the_ring_of_a_living_rank_stays_and_operators_are_told_in_time(tmp_path: Path) -> None:
    path = ring(tmp_path, ELSEWHERE)
    reading, writing = os.pipe()
    child = os.fork()  # our own lock would not be told from none
    if not child:
        descriptor = os.open(path, os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1)
        os.write(writing, b"locked")
        time.sleep(600)
        os._exit(0)
    try:
        os.read(reading, 6)
        strays = Strays([tmp_path], HERE, 0)
        assert strays.sweep() == ""  # its agent may be starting
        assert "no agent: run `frtop agent` there" in strays.sweep()
        assert path.exists()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
    sweep(tmp_path)
    assert not path.exists()


def test_what_cannot_be_read_goes_later_and_only_if_it_has_our_names(tmp_path: Path) -> None:
    unfinished = tmp_path / "77-88-99.ring"
    unfinished.write_bytes(bytes(4096))
    others = [tmp_path / name for name in ("notes.ring", "7-7.ring.bak", "agent-x.lock", "1-1.box")]
    for path in others:
        path.write_text("mine")
        aged(path)
    link = tmp_path / "5-5.ring"
    link.symlink_to(others[0])
    sweep(tmp_path)
    assert unfinished.exists()  # perhaps it is being made just now
    aged(unfinished)
    sweep(tmp_path)
    assert not unfinished.exists()
    assert all(path.read_text() == "mine" for path in others)


def test_sockets_go_with_their_rings_and_without_listeners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has 107 bytes
    path = ring(tmp_path, ELSEWHERE)
    beside = [path.with_suffix(".sock"), tmp_path / "8-8-8.sock", tmp_path / "9-9-9.sock"]
    with socket.socket(socket.AF_UNIX) as listening:
        for place, asked in zip(beside, (None, None, listening), strict=True):
            with socket.socket(socket.AF_UNIX) as own:
                (asked or own).bind(place.name)
        listening.listen()
        plain = tmp_path / "4-4.sock"
        plain.write_text("no socket")
        sweep(tmp_path, grace_s=60)
        assert all(place.exists() for place in beside)
        sweep(tmp_path)
        assert [place.exists() for place in beside] == [False, False, True]
        assert plain.exists()


def test_files_of_agents_go_when_nothing_else_is_left_of_their_space(tmp_path: Path) -> None:
    gone, earlier = AgentFiles(tmp_path, ELSEWHERE.name), AgentFiles(tmp_path, EARLIER.name)
    own = AgentFiles(tmp_path, HERE.name)
    for files in (gone, earlier, own):
        for path in (files.lock, files.card, files.spawn, files.log):
            path.write_text("")
    (tmp_path / "agent-12-00000000.0123abcd.draft").write_text("")
    lock = Lock.take(earlier)
    assert lock is not None
    sweep(tmp_path, grace_s=60)
    assert gone.card.exists()
    for path in tmp_path.iterdir():
        aged(path)
    rest = ring(tmp_path, ELSEWHERE)
    sweep(tmp_path, grace_s=60)
    assert gone.card.exists()  # the ring may be waiting for its agent
    rest.unlink()
    sweep(tmp_path)
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {
        f"agent-{HERE.name}",
        f"agent-{EARLIER.name}",
    }
    lock.let_go()
