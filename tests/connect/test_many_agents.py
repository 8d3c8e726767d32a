"""The live source on several agents, each with its own folder and ports."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.agent_host import Host
from connect.conftest import frame_with
from frtop_probe import keys
from frtop_tui.connect.live import LiveSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.job.model import Writing


class Pair:
    """Two hosts of one user, one rank of the same job on each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[Host] = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            host = Host(folder / name, monkeypatch)
            host.environment["FRTOP_KEY_FILE"] = str(folder / "key")
            self.hosts.append(host)
        monkeypatch.setenv("FRTOP_KEY_FILE", str(folder / "key"))
        keys.load(create=True)
        self.ranks = [host.rank("wait", rank=n) for n, host in enumerate(self.hosts)]
        self.cards = [host.agent() for host in self.hosts]
        self.names = [f"127.0.0.1:{card.pub}" for card in self.cards]

    def close(self) -> None:
        for host in self.hosts:
            host.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        one = Pair(tmp_path_factory.mktemp("pair"), monkeypatch)
        yield one
        one.close()


@pytest.fixture
def source(pair: Pair) -> Iterator[LiveSource]:
    one = LiveSource(pair.names)
    yield one
    one.close()


def states(frame: Frame) -> dict[str, str]:
    return {host.name: host.state for host in frame.hosts}


def file(frame: Frame, kind: str) -> Writing | None:
    return next((one for one in frame.writings if one.kind == kind), None)


def test_both_hosts_are_reported_and_their_clocks_measured(pair: Pair, source: LiveSource) -> None:
    frame = frame_with(source, lambda f: len(f.ranks) == 2)
    assert [frame.ranks[n].host for n in (0, 1)] == pair.names
    assert [host.address for host in frame.hosts] == pair.names
    frame = frame_with(source, lambda f: all(host.clock_error_ns is not None for host in f.hosts))
    for host in frame.hosts:
        assert abs(host.clock_ns) <= (host.clock_error_ns or 0) + 5_000_000  # one machine


def test_ranks_of_hosts_that_are_not_connected_are_unreachable(pair: Pair) -> None:
    with closing(LiveSource(pair.names[:1])) as source:
        frame = frame_with(source, lambda f: f.ranks)
        assert (frame.coverage.reporting, frame.coverage.expected) == (1, 8)
        assert frame.coverage.unreachable == (1, 2, 3, 4, 5, 6, 7)


def test_a_capture_has_everything_of_all_ranks(
    pair: Pair, source: LiveSource, tmp_path: Path
) -> None:
    frame_with(source, lambda f: len(f.ranks) == 2)
    path = tmp_path / "job.cap"
    source.capture(path, automatic=True)
    source.capture(tmp_path / "second.cap")
    frame = frame_with(source, lambda f: (w := file(f, "capture")) and w.state == "written")
    writing = file(frame, "capture")
    assert writing is not None
    assert (writing.path, writing.done, writing.total) == (str(path), 2, 2)
    assert writing.automatic
    assert writing.size == path.stat().st_size
    assert not (tmp_path / "second.cap").exists()
    opened = capture.read(path)
    assert set(opened.ranks) == {0, 1}
    for view in opened.ranks.values():
        assert view.snapshot is not None
        assert view.snapshot.ops
        assert view.main_stack is not None, writing.problem


@pytest.mark.long  # connections to an agent that comes back are in every run
def test_a_host_that_comes_back_is_asked_again(pair: Pair, source: LiveSource) -> None:
    before = frame_with(source, lambda f: len(f.ranks) == 2)
    name, other = pair.names
    os.kill(pair.cards[0].pid, signal.SIGKILL)
    frame = frame_with(source, lambda f: states(f)[name] == "failed")
    assert states(frame)[other] == "reporting"
    assert "went away" in next(str(host.problem) for host in frame.hosts if host.name == name)
    again = pair.hosts[0].agent(FRTOP_PORT=str(pair.cards[0].pub))
    assert again.pub == pair.cards[0].pub
    pair.cards[0] = again
    frame = frame_with(source, lambda f: states(f)[name] == "reporting" and len(f.ranks) == 2)
    assert frame.ranks[0].identity.pid == before.ranks[0].identity.pid
    assert frame.ranks[0].state != "unreachable"
    (host,) = (host for host in frame.hosts if host.name == name)
    assert any("lost once in the last 10 minutes" in note for note in host.notes)
    frame_with(source, lambda f: all(host.clock_error_ns is not None for host in f.hosts))


def test_a_host_that_hangs_is_silent_and_does_not_delay_a_capture(
    pair: Pair, source: LiveSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_tui.connect.capture_collector.DEADLINE_NS", 3_000_000_000)
    frame_with(source, lambda f: len(f.ranks) == 2)
    os.kill(pair.cards[1].pid, signal.SIGSTOP)
    try:
        source.capture(tmp_path / "job.cap")
        # First, as a connection that is made again fails.
        frame = frame_with(source, lambda f: f.ranks[1].state == "unreachable")
        assert states(frame) == {pair.names[0]: "reporting", pair.names[1]: "silent"}
        frame = frame_with(source, lambda f: (w := file(f, "capture")) and w.state == "written")
        writing = file(frame, "capture")
        assert writing is not None
        assert "no history of rank 1: no response from 127.0.0.1:" in str(writing.problem)
    finally:
        os.kill(pair.cards[1].pid, signal.SIGCONT)
    frame = frame_with(source, lambda f: f.ranks[1].state != "unreachable")
    assert states(frame)[pair.names[1]] == "reporting"
