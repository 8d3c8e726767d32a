"""The line to real agents: who is there, who refuses us, who is no agent at all."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from frtop_probe import keys, wire
from frtop_probe.agent import announcement
from frtop_tui.errors import Unreachable, WrongKey
from frtop_tui.sources import line as line_module
from frtop_tui.sources import servers
from frtop_tui.sources.line import Answered, Down, Happening, Heard, Line, Up
from frtop_tui.sources.places import Place
from sources.conftest import Start


@pytest.fixture
def here(start_agent: Start) -> Place:
    card = start_agent()
    return Place("node0", card.address, card.pub, card.ask)


@pytest.fixture
def line(here: Place) -> Iterator[Line]:
    one = Line(keys.load(create=False))
    yield one
    one.close()


def until(line: Line, wanted: Callable[[Happening], bool], seconds: float = 15) -> Happening:
    end = time.monotonic() + seconds
    seen = []
    while time.monotonic() < end:
        for happening in line.wait(50):
            seen.append(happening)
            if wanted(happening):
                return happening
    pytest.fail(f"did not happen; what did: {seen}")


def test_state_is_asked_and_updates_follow(here: Place, line: Line) -> None:
    line.connect(here)
    until(line, lambda h: h == Up("node0"))
    assert line.ask("node0", wire.StateRequest(7))
    answered = until(line, lambda h: isinstance(h, Answered))
    assert isinstance(answered, Answered)
    assert isinstance(answered.answer, wire.StateResponse)
    assert (answered.place, answered.answer.id) == ("node0", 7)
    heard = until(line, lambda h: isinstance(h, Heard))
    assert isinstance(heard, Heard)
    assert heard.update.instance == answered.answer.update.instance
    assert heard.update.number > answered.answer.update.number


@pytest.fixture
def stranger(
    here: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[keys.KeyPair]:
    """Somebody else's pair, of whom the agent has never heard."""
    owner = keys.load(create=False)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "elsewhere" / "key"))
    yield keys.load(create=True)
    assert owner.public != keys.load(create=False).public


def test_another_key_is_told_from_absence(here: Place, stranger: keys.KeyPair) -> None:
    line = Line(stranger)
    try:
        line.connect(here)
        down = until(line, lambda h: isinstance(h, Down))
    finally:
        line.close()
    assert isinstance(down, Down)
    assert isinstance(down.error, WrongKey)
    assert "FRTOP_KEY_FILE" in down.error.next_step
    assert "frtop key trust" in down.error.next_step


def trust(pair: keys.KeyPair, *others: bytes) -> None:
    lines = [keys.format_public(other) for other in others]
    file = pair.path.with_name(keys.TRUSTED)
    file.write_text("\n".join(lines))
    file.chmod(0o600)


def test_one_whom_we_trust_and_who_does_not_admit_us_is_told_from_a_stranger(
    here: Place, stranger: keys.KeyPair, tmp_path: Path
) -> None:
    trust(stranger, announced(tmp_path).encode())
    line = Line(stranger)
    try:
        line.connect(here)
        down = until(line, lambda h: isinstance(h, Down))
    finally:
        line.close()
    assert isinstance(down, Down)
    assert "does not admit our key" in down.error.text
    assert f"frtop key admit {stranger.shown}" in down.error.next_step


def announced(tmp_path: Path) -> str:
    card = announcement.find_agent(tmp_path / "frtop")
    assert card is not None
    return card.public_key


def admit(tmp_path: Path, somebody: keys.KeyPair) -> None:
    admitted = tmp_path / keys.AUTHORIZED  # beside the owner's key file
    admitted.write_text(f"{keys.format_public(somebody.public)} read\n")
    admitted.chmod(0o600)


def test_trusted_keys_are_tried_one_after_the_other(
    here: Place, stranger: keys.KeyPair, tmp_path: Path
) -> None:
    owners = announced(tmp_path).encode()
    admit(tmp_path, stranger)
    trust(stranger, zmq.curve_keypair()[0], owners)
    line = Line(stranger)
    try:
        line.connect(here)
        until(line, lambda h: h == Up("node0"))
        assert line.ask("node0", wire.StateRequest(1))
        answered = until(line, lambda h: isinstance(h, Answered))
        assert isinstance(answered, Answered)
        assert isinstance(answered.answer, wire.StateResponse)
        assert not answered.answer.may_act
        until(line, lambda h: isinstance(h, Heard))  # updates come by the same key
    finally:
        line.close()


def test_keys_that_are_trusted_and_admitted_later_are_taken_up(
    here: Place, stranger: keys.KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "FRESH_S", 0.0)
    monkeypatch.setattr(line_module, "ROUND_S", 0.2)
    line = Line(stranger)
    try:
        line.connect(here)
        until(line, lambda h: isinstance(h, Down))
        trust(stranger, announced(tmp_path).encode())
        until(line, lambda h: isinstance(h, Down) and "does not admit" in h.error.text)
        admit(tmp_path, stranger)
        until(line, lambda h: h == Up("node0"))
        until(line, lambda h: isinstance(h, Heard))
    finally:
        line.close()


def test_nobody_there(line: Line) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line.connect(Place("node9", "127.0.0.1", port, port))
    down = until(line, lambda h: isinstance(h, Down))
    assert isinstance(down, Down)
    assert isinstance(down.error, Unreachable)
    assert "frtop agent" in down.error.next_step


def test_something_else_listens_there_and_then_an_agent(
    line: Line,
    start_agent: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_module, "ROUND_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line.connect(Place("node9", "127.0.0.1", port - 1, port))
        accepted, _ = other.accept()
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)
        down = until(line, lambda h: isinstance(h, Down))
        accepted.close()
    assert isinstance(down, Down)
    assert "is no frtop agent" in str(down.error)
    second = tmp_path / "second"
    second.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(second))
    monkeypatch.setenv("FRTOP_PORT", str(port - 1))
    start_agent(second)
    until(line, lambda h: h == Up("node9"))


def test_an_agent_that_comes_back_is_taken_up_again(
    here: Place, line: Line, start_agent: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.connect(here)
    until(line, lambda h: h == Up("node0"))
    card = announcement.find_agent(folder)
    assert card is not None
    os.kill(card.pid, signal.SIGTERM)
    until(line, lambda h: isinstance(h, Down))
    assert not line.ask("node0", wire.StateRequest(1))
    monkeypatch.setenv("FRTOP_PORT", str(here.pub))
    start_agent()
    until(line, lambda h: h == Up("node0"))
    assert line.ask("node0", wire.StateRequest(2))
    until(line, lambda h: isinstance(h, Answered) and h.answer.id == 2)
