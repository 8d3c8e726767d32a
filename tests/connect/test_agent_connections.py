"""Connections to real agents: established, refused, and to services that are no agents."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from connect.conftest import Start
from free_port import free_port
from frtop_probe import keys, wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
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
from frtop_tui.errors import Unreachable, WrongKey
from waiting import wait_for

Event = TypeVar("Event", bound=ConnectionEvent)
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(48)
"""Of ZeroMQ's protocol."""


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announcement]:
    """An agent for all tests here, whose key is that of `pair`."""
    home = tmp_path_factory.mktemp("owner")
    folder = home / "frtop"
    folder.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRTOP_DIR", str(folder))
        patch.setenv("FRTOP_KEY_FILE", str(home / "key"))
        patch.setenv("FRTOP_BIND", "127.0.0.1")
        patch.setenv("FRTOP_AGENT_WITH", str(os.getpid()))
        keys.load(create=True)
        agent = subprocess.Popen([sys.executable, "-m", "frtop_probe.agent"])
        try:
            yield wait_for(lambda: announcement.find_agent(folder), "the agent announces itself")
        finally:
            agent.terminate()
            agent.wait(60)


@pytest.fixture
def pair(owner: Announcement) -> keys.KeyPair:
    return keys.load(create=False)


@pytest.fixture
def endpoint(owner: Announcement) -> Endpoint:
    return Endpoint("node0", owner.address, owner.pub, owner.ask)


@pytest.fixture
def connections(pair: keys.KeyPair) -> Iterator[AgentConnections]:
    one = AgentConnections(pair)
    yield one
    one.close()


def wait_for_event(
    connections: AgentConnections,
    kind: type[Event],
    wanted: Callable[[Event], bool] = lambda _: True,
) -> Event:
    """Returns the first event of this kind that `wanted` accepts."""
    seen: list[ConnectionEvent] = []

    def found() -> Event | None:
        for event in connections.wait(50):
            seen.append(event)
            if isinstance(event, kind) and wanted(event):
                return event
        return None

    return wait_for(found, lambda: f"such an event; there were: {seen}", pause_s=0)


def test_a_state_is_received_and_updates_follow(
    endpoint: Endpoint, connections: AgentConnections, pair: keys.KeyPair
) -> None:
    connections.connect(endpoint)
    connected = wait_for_event(connections, Connected)
    assert (connected.host, connected.key, connected.whose) == ("node0", pair.public, "own")
    assert connections.send("node0", wire.StateRequest(7))
    received = wait_for_event(connections, ResponseReceived)
    assert isinstance(received.response, wire.StateResponse)
    assert (received.host, received.response.id) == ("node0", 7)
    updated = wait_for_event(connections, UpdateReceived)
    assert updated.update.instance == received.response.update.instance
    assert updated.key == pair.public
    assert updated.update.number > received.response.update.number
    connections.disconnect(endpoint)
    assert not connections.is_up("node0")


def written(file: Path, *lines: str) -> None:
    file.write_text("\n".join((*lines, "")))
    file.chmod(0o600)


def test_another_key_is_told_from_absence_and_is_used_once_both_sides_know_each_other(
    endpoint: Endpoint, pair: keys.KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "REREAD_S", 0.0)
    monkeypatch.setattr(agent_connections, "RECONNECT_S", 0.2)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "key"))
    stranger = keys.load(create=True)
    connections = AgentConnections(stranger)
    try:
        connections.connect(endpoint)
        failed = wait_for_event(connections, ConnectionFailed)
        assert isinstance(failed.error, WrongKey)
        assert "FRTOP_KEY_FILE" in failed.error.next_step
        assert "frtop key trust" in failed.error.next_step

        known = (zmq.curve_keypair()[0], pair.public)  # they are tried one after the other
        written(tmp_path / keys.TRUSTED, *map(keys.format_public, known))
        failed = wait_for_event(
            connections, ConnectionFailed, lambda one: "does not admit our key" in one.error.text
        )
        assert f"frtop key admit {stranger.shown}" in failed.error.next_step

        admitted = f"{keys.format_public(stranger.public)} read"
        written(pair.path.with_name(keys.AUTHORIZED), admitted)
        connected = wait_for_event(connections, Connected)
        assert (connected.key, connected.whose) == (pair.public, "other")
        assert connections.send("node0", wire.StateRequest(1))
        response = wait_for_event(connections, ResponseReceived).response
        assert isinstance(response, wire.StateResponse)
        assert not response.may_act
        assert wait_for_event(connections, UpdateReceived).key == pair.public
    finally:
        connections.close()


@pytest.mark.parametrize(
    ("announced", "error", "says"),
    [(True, Unreachable, "ended while frtop connected"), (False, WrongKey, "is not ours")],
)
def test_an_agent_that_is_killed_in_the_handshake_is_not_taken_for_one_with_another_key(
    connections: AgentConnections,
    pair: keys.KeyPair,
    announced: bool,
    error: type[Exception],
    says: str,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dying:
        port = dying.getsockname()[1]
        key = pair.public if announced else b""
        connections.connect(Endpoint("node0", "127.0.0.1", free_port(), port, key))
        connection = dying.accept()[0]
        wait_for(lambda: connection.recv(1, socket.MSG_PEEK), "it greets")
        connection.sendall(GREETING)
        connection.close()  # unread: a reset, as of a process that is killed
        failed = wait_for_event(connections, ConnectionFailed)
    assert isinstance(failed.error, error)
    assert says in str(failed.error)


def test_hosts_wait_while_too_many_are_being_connected_to(
    endpoint: Endpoint, pair: keys.KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AT_ONCE", "LEAST_AT_ONCE", "MOST_AT_ONCE"):
        monkeypatch.setattr(agent_connections, name, 1)
    monkeypatch.setattr(agent_connections, "HANDSHAKE_MS", 300)
    connections = AgentConnections(pair)
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            connections.connect(Endpoint("silent", "127.0.0.1", free_port(), port))
            waiting = Endpoint("waiting", "127.0.0.1", free_port(), free_port())
            connections.connect(waiting)
            connections.connect(endpoint)
            connections.disconnect(waiting)  # before its turn
            seen: list[str] = []

            def connected() -> bool:
                kinds = (Connected, ConnectionFailed)
                seen.extend(one.host for one in connections.wait(50) if isinstance(one, kinds))
                return connections.is_up("node0")

            wait_for(connected, lambda: f"the agent's turn comes; there were: {seen}", pause_s=0)
        assert seen[0] == "silent"
        assert "waiting" not in seen
    finally:
        connections.close()


def test_fewer_hosts_are_connected_to_at_once_while_most_do_not_answer(
    connections: AgentConnections,
) -> None:
    def at_once(connected: int, timed_out: int) -> int:
        connections._connected_lately, connections._timed_out_lately = connected, timed_out
        connections._adapted_at = -agent_connections.HANDSHAKE_MS / 1000
        connections._adapt()
        return connections._at_once

    assert at_once(0, 9) == agent_connections.AT_ONCE // 2
    assert [at_once(9, 10) for _ in range(9)][-1] == agent_connections.LEAST_AT_ONCE
    assert at_once(100, 10) == 2 * agent_connections.LEAST_AT_ONCE  # some hosts may hang
    assert [at_once(0, 0) for _ in range(9)][-1] == agent_connections.MOST_AT_ONCE


def test_a_stopped_agent_is_named_here_and_elsewhere_not_taken_for_one_with_another_key(
    endpoint: Endpoint,
    owner: Announcement,
    pair: keys.KeyPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_connections, "HANDSHAKE_MS", 300)
    connections, elsewhere = AgentConnections(pair), AgentConnections(pair)
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        connections.connect(endpoint)
        error = wait_for_event(connections, ConnectionFailed).error
        assert not isinstance(error, WrongKey)
        assert f"(pid {owner.pid}) is stopped by a signal" in error.text
        assert f"kill -CONT {owner.pid}" in error.next_step
        with monkeypatch.context() as patched:
            patched.setenv("FRTOP_DIR", str(tmp_path / "elsewhere"))  # as on another host: no card
            elsewhere.connect(endpoint)
            error = wait_for_event(elsewhere, ConnectionFailed).error
        assert not isinstance(error, WrongKey)
        assert "accepts connections but does not answer: it hangs or is stopped" in error.text
        assert "on that host" in error.next_step
        os.kill(owner.pid, signal.SIGCONT)
        wait_for_event(connections, Connected)
    finally:
        os.kill(owner.pid, signal.SIGCONT)
        connections.close()
        elsewhere.close()


def test_a_closed_port_is_reported(connections: AgentConnections) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    connections.connect(Endpoint("node9", "127.0.0.1", port, port))
    error = wait_for_event(connections, ConnectionFailed).error
    assert isinstance(error, Unreachable)
    assert "frtop agent" in error.next_step


def test_another_service_at_the_port_and_then_an_agent_that_comes_back(
    start_agent: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connections, "RECONNECT_S", 0.2)
    # Ports that nobody else takes meanwhile, as other agents on this host do of the usual ones.
    port = random.randrange(20_000, 30_000, 2)
    monkeypatch.setenv("FRTOP_PORT", str(port))
    connections = AgentConnections(keys.load(create=True))
    try:
        with socket.create_server(("127.0.0.1", port + 1)) as other:
            connections.connect(Endpoint("node9", "127.0.0.1", port, port + 1))
            accepted, _ = other.accept()
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)
            failed = wait_for_event(connections, ConnectionFailed)
            accepted.close()
        assert "is not a frtop agent" in str(failed.error)
        card = start_agent()
        wait_for_event(connections, Connected)
        os.kill(card.pid, signal.SIGTERM)
        wait_for_event(connections, ConnectionFailed)
        assert not connections.send("node9", wire.StateRequest(1))
        start_agent()
        wait_for_event(connections, Connected)
        assert connections.send("node9", wire.StateRequest(2))
        assert wait_for_event(connections, ResponseReceived).response.id == 2
    finally:
        connections.close()
