"""Only stale files of our own naming are removed from a folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

import pytest

from agent.ring_builder import RingBuilder
from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.agent.stale_files import StaleFiles
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace

HERE = PidNamespace.here()
ELSEWHERE = PidNamespace(HERE.boot, 12)
EARLIER = PidNamespace(bytes(16), HERE.inode)


def ring(folder: Path, space: PidNamespace, number: int = 1) -> Path:
    """A ring whose last heartbeat is recent."""
    builder = RingBuilder(folder, start_ticks=number, namespace=space.inode, boot_id=space.boot)
    builder.heartbeat()
    return builder.path


def make_old(path: Path) -> Path:
    os.utime(path, (1, 1), follow_symlinks=False)
    return path


def sweep(folder: Path, grace_s: float = 0.0) -> str:
    return StaleFiles([folder], HERE, grace_s).sweep()


@pytest.mark.parametrize(("space", "stays"), [(ELSEWHERE, False), (EARLIER, False), (HERE, True)])
def test_rings_of_ended_containers_and_boots_are_removed_later(
    tmp_path: Path, space: PidNamespace, stays: bool
) -> None:
    path = ring(tmp_path, space)
    sweep(tmp_path, grace_s=60)
    assert path.exists()
    sweep(tmp_path)
    assert path.exists() is stays


def test_rings_stay_while_their_agent_runs(tmp_path: Path) -> None:
    path = ring(tmp_path, ELSEWHERE)
    lock = AgentLock.take(AgentFiles(tmp_path, ELSEWHERE.name))
    assert lock is not None
    sweep(tmp_path)
    assert path.exists()
    lock.release()
    sweep(tmp_path)
    assert not path.exists()


def test_the_ring_of_a_living_rank_stays_and_gives_a_note(tmp_path: Path) -> None:
    path = ring(tmp_path, ELSEWHERE)
    reading, writing = os.pipe()
    child = os.fork()  # a lock of our own process would not conflict
    if not child:
        descriptor = os.open(path, os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1)
        os.write(writing, b"locked")
        time.sleep(600)
        os._exit(0)
    try:
        os.read(reading, 6)
        stale_files = StaleFiles([tmp_path], HERE, 0)
        assert stale_files.sweep() == ""  # its agent may be starting
        assert "no agent: run `frtop agent` there" in stale_files.sweep()
        assert path.exists()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
    sweep(tmp_path)
    assert not path.exists()


def test_unreadable_files_with_our_names_are_removed_later(tmp_path: Path) -> None:
    unfinished = tmp_path / "77-88-99.ring"
    unfinished.write_bytes(bytes(4096))
    others = [tmp_path / name for name in ("notes.ring", "7-7.ring.bak", "agent-x.lock", "1-1.box")]
    for path in others:
        path.write_text("mine")
        make_old(path)
    link = tmp_path / "5-5.ring"
    link.symlink_to(others[0])
    sweep(tmp_path)
    assert unfinished.exists()  # it may still be in the making
    make_old(unfinished)
    sweep(tmp_path)
    assert not unfinished.exists()
    assert all(path.read_text() == "mine" for path in others)


def test_sockets_are_removed_with_their_rings_and_without_listeners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is limited to 107 bytes
    path = ring(tmp_path, ELSEWHERE)
    beside = [path.with_suffix(".sock"), tmp_path / "8-8-8.sock", tmp_path / "9-9-9.sock"]
    with socket.socket(socket.AF_UNIX) as listening:
        for path_of_socket, bound in zip(beside, (None, None, listening), strict=True):
            with socket.socket(socket.AF_UNIX) as own:
                (bound or own).bind(path_of_socket.name)
        listening.listen()
        plain = tmp_path / "4-4.sock"
        plain.write_text("no socket")
        sweep(tmp_path, grace_s=60)
        assert all(path_of_socket.exists() for path_of_socket in beside)
        sweep(tmp_path)
        assert [path_of_socket.exists() for path_of_socket in beside] == [False, False, True]
        assert plain.exists()


def test_files_of_agents_are_removed_with_the_last_ring(tmp_path: Path) -> None:
    ended, earlier = AgentFiles(tmp_path, ELSEWHERE.name), AgentFiles(tmp_path, EARLIER.name)
    own = AgentFiles(tmp_path, HERE.name)
    for files in (ended, earlier, own):
        for path in (files.lock, files.card, files.spawn, files.log):
            path.write_text("")
    (tmp_path / "agent-12-00000000.0123abcd.draft").write_text("")
    lock = AgentLock.take(earlier)
    assert lock is not None
    sweep(tmp_path, grace_s=60)
    assert ended.card.exists()
    for path in tmp_path.iterdir():
        make_old(path)
    rest = ring(tmp_path, ELSEWHERE)
    sweep(tmp_path, grace_s=60)
    assert ended.card.exists()  # an agent for the ring may be starting
    rest.unlink()
    sweep(tmp_path)
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {
        f"agent-{HERE.name}",
        f"agent-{EARLIER.name}",
    }
    lock.close()
