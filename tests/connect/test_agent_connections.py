"""Connections to real agents: established, refused, and to services that are no agents."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from connect.conftest import Start
from frtop_probe import keys, wire
from frtop_probe.agent import announcement
from frtop_tui.connect import agent_connections, handshake
from frtop_tui.connect.agent_connections import AgentConnections
from frtop_tui.connect.connection_events import (
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    ResponseReceived,
    UpdateReceived,
)
from frtop_tui.connect.endpoints import Endpoint
from frtop_tui.errors import FrtopError, Unreachable, WrongKey
from waiting import wait_for


@pytest.fixture
def endpoint(start_agent: Start) -> Endpoint:
    card = start_agent()
    return Endpoint("node0", card.address, card.pub, card.ask)


@pytest.fixture
def connections(endpoint: Endpoint) -> Iterator[AgentConnections]:
    one = AgentConnections(keys.load(create=False))
    yield one
    one.close()


def wait_for_event(
    connections: AgentConnections, wanted: Callable[[ConnectionEvent], bool]
) -> ConnectionEvent:
    """Returns the first event that `wanted` accepts."""
    seen: list[ConnectionEvent] = []

    def is_found() -> bool:
        for event in connections.wait(50):
            seen.append(event)
            if wanted(event):
                return True
        return False

    wait_for(is_found, lambda: f"such an event; there were: {seen}", pause_s=0)
    return seen[-1]


def test_a_state_is_received_and_updates_follow(
    endpoint: Endpoint, connections: AgentConnections
) -> None:
    connections.connect(endpoint)
    connected = wait_for_event(connections, lambda e: isinstance(e, Connected))
    assert isinstance(connected, Connected)
    own = keys.load(create=False).public
    assert (connected.host, connected.key, connected.whose) == ("node0", own, "own")
    assert connections.send("node0", wire.StateRequest(7))
    received = wait_for_event(connections, lambda e: isinstance(e, ResponseReceived))
    assert isinstance(received, ResponseReceived)
    assert isinstance(received.response, wire.StateResponse)
    assert (received.host, received.response.id) == ("node0", 7)
    updated = wait_for_event(connections, lambda e: isinstance(e, UpdateReceived))
    assert isinstance(updated, UpdateReceived)
    assert updated.update.instance == received.response.update.instance
    assert updated.key == own
    assert updated.update.number > received.response.update.number


@pytest.fixture
def stranger(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[keys.KeyPair]:
    """Returns another user's key pair, which the agent does not know."""
    owner = keys.load(create=False)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "elsewhere" / "key"))
    yield keys.load(create=True)
    assert owner.public != keys.load(create=False).public


def test_another_key_is_distinguished_from_absence(
    endpoint: Endpoint, stranger: keys.KeyPair
) -> None:
    connections = AgentConnections(stranger)
    try:
        connections.connect(endpoint)
        failed = wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
    finally:
        connections.close()
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, WrongKey)
    assert "FRTOP_KEY_FILE" in failed.error.next_step
    assert "frtop key trust" in failed.error.next_step


def trust(pair: keys.KeyPair, *others: bytes) -> None:
    lines = [keys.format_public(other) for other in others]
    file = pair.path.with_name(keys.TRUSTED)
    file.write_text("\n".join(lines))
    file.chmod(0o600)


def test_a_trusted_agent_that_does_not_admit_us_is_distinguished_from_a_stranger(
    endpoint: Endpoint, stranger: keys.KeyPair, tmp_path: Path
) -> None:
    trust(stranger, announced(tmp_path).encode())
    connections = AgentConnections(stranger)
    try:
        connections.connect(endpoint)
        failed = wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
    finally:
        connections.close()
    assert isinstance(failed, ConnectionFailed)
    assert "does not admit our key" in failed.error.text
    assert f"frtop key admit {stranger.shown}" in failed.error.next_step


def announced(tmp_path: Path) -> str:
    card = announcement.find_agent(tmp_path / "frtop")
    assert card is not None
    return card.public_key


def admit(tmp_path: Path, somebody: keys.KeyPair) -> None:
    admitted = tmp_path / keys.AUTHORIZED  # beside the owner's key file
    admitted.write_text(f"{keys.format_public(somebody.public)} read\n")
    admitted.chmod(0o600)


def test_trusted_keys_are_tried_one_after_the_other(
    endpoint: Endpoint, stranger: keys.KeyPair, tmp_path: Path
) -> None:
    owners = announced(tmp_path).encode()
    admit(tmp_path, stranger)
    trust(stranger, zmq.curve_keypair()[0], owners)
    connections = AgentConnections(stranger)
    try:
        connections.connect(endpoint)
        connected = wait_for_event(connections, lambda e: isinstance(e, Connected))
        assert isinstance(connected, Connected)
        assert (connected.key, connected.whose) == (owners, "other")
        assert connections.send("node0", wire.StateRequest(1))
        received = wait_for_event(connections, lambda e: isinstance(e, ResponseReceived))
        assert isinstance(received, ResponseReceived)
        assert isinstance(received.response, wire.StateResponse)
        assert not received.response.may_act
        updated = wait_for_event(connections, lambda e: isinstance(e, UpdateReceived))
        assert isinstance(updated, UpdateReceived)
        assert updated.key == owners
    finally:
        connections.close()


def test_keys_that_are_trusted_and_admitted_later_are_used(
    endpoint: Endpoint, stranger: keys.KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "REREAD_S", 0.0)
    monkeypatch.setattr(agent_connections, "RECONNECT_S", 0.2)
    connections = AgentConnections(stranger)
    try:
        connections.connect(endpoint)
        wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
        trust(stranger, announced(tmp_path).encode())
        wait_for_event(
            connections,
            lambda e: isinstance(e, ConnectionFailed) and "does not admit" in e.error.text,
        )
        admit(tmp_path, stranger)
        wait_for_event(connections, lambda e: e == Connected("node0"))
        wait_for_event(connections, lambda e: isinstance(e, UpdateReceived))
    finally:
        connections.close()


def failure_of_stopped_agent(endpoint: Endpoint, pid: int) -> FrtopError:
    """What is said of a real agent that is stopped before anybody connects."""
    os.kill(pid, signal.SIGSTOP)
    connections = AgentConnections(keys.load(create=False))
    try:
        connections.connect(endpoint)
        failed = wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
        assert isinstance(failed, ConnectionFailed)
        os.kill(pid, signal.SIGCONT)
        wait_for_event(connections, lambda e: e == Connected("node0"))
    finally:
        os.kill(pid, signal.SIGCONT)
        connections.close()
    return failed.error


def test_a_stopped_agent_of_this_host_is_named_and_how_it_runs_on(
    endpoint: Endpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connections, "HANDSHAKE_MS", 300)
    card = announcement.find_agent(folder)
    assert card is not None
    error = failure_of_stopped_agent(endpoint, card.pid)
    assert not isinstance(error, WrongKey)
    assert f"(pid {card.pid}) is stopped by a signal" in error.text
    assert f"kill -CONT {card.pid}" in error.next_step


def test_a_stopped_agent_elsewhere_is_not_taken_for_one_with_another_key(
    endpoint: Endpoint, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connections, "HANDSHAKE_MS", 300)
    card = announcement.find_agent(folder)
    assert card is not None
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path / "elsewhere"))  # as on another host: no card
    error = failure_of_stopped_agent(endpoint, card.pid)
    assert not isinstance(error, WrongKey)
    assert "accepts connections but does not answer: it hangs or is stopped" in error.text
    assert "on that host" in error.next_step


def test_a_closed_port_is_reported(connections: AgentConnections) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    connections.connect(Endpoint("node9", "127.0.0.1", port, port))
    failed = wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
    assert isinstance(failed, ConnectionFailed)
    assert isinstance(failed.error, Unreachable)
    assert "frtop agent" in failed.error.next_step


def test_another_service_at_the_port_and_then_an_agent(
    connections: AgentConnections,
    start_agent: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_connections, "RECONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        connections.connect(Endpoint("node9", "127.0.0.1", port - 1, port))
        accepted, _ = other.accept()
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)
        failed = wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
        accepted.close()
    assert isinstance(failed, ConnectionFailed)
    assert "is not a frtop agent" in str(failed.error)
    second = tmp_path / "second"
    second.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(second))
    monkeypatch.setenv("FRTOP_PORT", str(port - 1))
    start_agent(second)
    wait_for_event(connections, lambda e: e == Connected("node9"))


@pytest.fixture
def own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports that nobody else takes meanwhile, as other agents on this host do of the usual ones."""
    monkeypatch.setenv("FRTOP_PORT", str(random.randrange(20_000, 30_000, 2)))


@pytest.mark.usefixtures("own_ports")
def test_an_agent_that_comes_back_is_reconnected(
    endpoint: Endpoint,
    connections: AgentConnections,
    start_agent: Start,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections.connect(endpoint)
    wait_for_event(connections, lambda e: e == Connected("node0"))
    card = announcement.find_agent(folder)
    assert card is not None
    os.kill(card.pid, signal.SIGTERM)
    wait_for_event(connections, lambda e: isinstance(e, ConnectionFailed))
    assert not connections.send("node0", wire.StateRequest(1))
    monkeypatch.setenv("FRTOP_PORT", str(endpoint.pub))
    start_agent()
    wait_for_event(connections, lambda e: e == Connected("node0"))
    assert connections.send("node0", wire.StateRequest(2))
    wait_for_event(connections, lambda e: isinstance(e, ResponseReceived) and e.response.id == 2)
