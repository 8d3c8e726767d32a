"""Real agents whose ports are reached through a shell; here it is one of this host."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from frtop_probe import daemon_thread, keys, wire
from frtop_probe.agent import announcement
from frtop_probe.pipe.start_script import start_script
from frtop_tui.errors import UnknownHost, Unreachable, WrongKey
from frtop_tui.sources import agent_connections
from frtop_tui.sources.agent_connections import AgentConnections
from frtop_tui.sources.connection_events import (
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    Progressed,
    ResponseReceived,
    UpdateReceived,
)
from frtop_tui.sources.endpoints import ForwardedEndpoint
from frtop_tui.sources.forwarding import carrier
from frtop_tui.sources.forwarding.connections import ForwardedConnections
from frtop_tui.sources.forwarding.local_port import LocalPort
from frtop_tui.sources.pipes import failures
from sources.conftest import Start
from waiting import wait_for

CLEAN = ("env", "-i", f"PATH={os.environ['PATH']}", "sh")


class Operator:
    """The connections, and all that has happened."""

    def __init__(self, pair: keys.KeyPair) -> None:
        script = start_script(program="forwarder")
        self.connections = ForwardedConnections(AgentConnections(pair), script)
        self.events: list[ConnectionEvent] = []

    def reach(
        self, host: str, port: int, address: str = "127.0.0.1", command: tuple[str, ...] = CLEAN
    ) -> ForwardedEndpoint:
        endpoint = ForwardedEndpoint(host, address, port, port + 1, "bastion", command)
        self.connections.connect(endpoint)
        return endpoint

    def step(self) -> None:
        self.events += self.connections.wait(20)

    def await_event(self, event: ConnectionEvent) -> None:
        def has_come() -> bool:
            self.step()
            return event in self.events

        wait_for(has_come, lambda: f"{event} among {self.events[-5:]}", pause_s=0)

    def await_failure(self, host: str) -> ConnectionFailed:
        def failed() -> list[ConnectionFailed]:
            self.step()
            found = [one for one in self.events if isinstance(one, ConnectionFailed)]
            return [one for one in found if one.host == host]

        return wait_for(failed, lambda: f"{host} fails; {self.events[-5:]}", pause_s=0)[-1]

    def ask(self, host: str, number: int) -> wire.Response:
        def responses() -> list[wire.Response]:
            self.step()
            found = [one for one in self.events if isinstance(one, ResponseReceived)]
            return [one.response for one in found if (one.host, one.response.id) == (host, number)]

        assert self.connections.send(host, wire.StateRequest(number))
        return wait_for(responses, f"a response of {host}", pause_s=0)[0]


@pytest.fixture
def agent(start_agent: Start, monkeypatch: pytest.MonkeyPatch) -> announcement.Announcement:
    # Others take the usual ports, and one that has ended would be missed for another.
    monkeypatch.setenv("FRTOP_PORT", str(random.randrange(20_000, 30_000, 2)))
    return start_agent()


@pytest.fixture
def operator(folder: Path) -> Iterator[Operator]:
    one = Operator(keys.load(create=True))
    yield one
    one.connections.close()
    assert not shells(), "nothing is left behind"


def shells() -> list[psutil.Process]:
    """Our processes that carry."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "frtop on the way" in " ".join(one.cmdline()[:5]):
                found.append(one)
    return found


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_agents_on_the_other_side_share_one_connection(
    operator: Operator, agent: announcement.Announcement, start_agent: Start, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        second = tmp_path / "second"
        second.mkdir(mode=0o700)
        patch.setenv("FRTOP_DIR", str(second))
        other = start_agent(second)
    operator.reach("node0", agent.pub)
    operator.reach("node1", other.pub)
    for host in ("node0", "node1"):
        operator.await_event(Connected(host))
    assert len(shells()) == 1
    instances = set()
    for number, host in enumerate(("node0", "node1"), 1):
        state = operator.ask(host, number)
        assert isinstance(state, wire.StateResponse)
        instances.add(state.update.instance)
    assert instances == {agent.instance, other.instance}

    def updated() -> bool:
        operator.step()
        updates = [one.update for one in operator.events if isinstance(one, UpdateReceived)]
        return {one.instance for one in updates} == instances

    wait_for(updated, "updates of both", pause_s=0)
    words = [one.text for one in operator.events if isinstance(one, Progressed)]
    assert words[:2] == ["reaching bastion", "reaching bastion"]
    assert not [one for one in operator.events if isinstance(one, ConnectionFailed)]


def test_hosts_that_cannot_be_reached_from_there_say_why(
    operator: Operator, agent: announcement.Announcement
) -> None:
    operator.reach("empty", closed_port())
    operator.reach("nowhere", 7677, "no-such-host.invalid")
    operator.reach("node0", agent.pub)
    refused = operator.await_failure("empty").error
    assert isinstance(refused, Unreachable)
    assert "nobody listens on 127.0.0.1, ports " in refused.text
    assert refused.text.endswith("says bastion")
    assert "--ssh 127.0.0.1 --through bastion" in refused.next_step
    unknown = operator.await_failure("nowhere").error
    assert isinstance(unknown, UnknownHost)
    assert "'no-such-host.invalid' does not resolve on bastion" in unknown.text
    operator.await_event(Connected("node0"))


def test_who_does_not_answer_there_is_not_taken_for_a_stopped_agent(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_connections, "HANDSHAKE_MS", 300)
    operator.connections.close()
    operator.connections = Operator(keys.load(create=False)).connections
    operator.reach("far", 7677, "192.0.2.1")  # of nobody, by RFC 5737
    text = str(operator.await_failure("far").error)
    assert "192.0.2.1" in text
    assert "bastion" in text
    assert "stopped" not in text


def test_keys_are_between_operator_and_agent(
    agent: announcement.Announcement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "elsewhere" / "key"))
    stranger = Operator(keys.load(create=True))
    try:
        stranger.reach("node0", agent.pub)
        error = stranger.await_failure("node0").error
    finally:
        stranger.connections.close()
    assert isinstance(error, WrongKey)
    assert "another key than ours" in error.text


def test_another_service_at_the_port_is_named(operator: Operator) -> None:
    def answer() -> None:
        accepted, _ = other.accept()
        with accepted:
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 3)
            answered.wait(20)

    answered = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = daemon_thread.start(answer, "service")
        operator.reach("web", other.getsockname()[1] - 1)
        error = operator.await_failure("web").error
        answered.set()
        thread.join(20)
    assert "is not a frtop agent" in error.text


def test_an_agent_that_ends_is_missed_and_found_again(
    operator: Operator,
    agent: announcement.Announcement,
    start_agent: Start,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_connections, "RECONNECT_S", 0.2)
    operator.reach("node0", agent.pub)
    operator.await_event(Connected("node0"))
    operator.events.clear()
    os.kill(agent.pid, signal.SIGKILL)
    assert "node0 went away" in operator.await_failure("node0").error.text

    def is_told() -> bool:
        operator.events.clear()
        return "nobody listens" in operator.await_failure("node0").error.text

    wait_for(is_told, "nobody listens there", pause_s=0)
    wait_for(lambda: announcement.find_agent(folder) is None, "its card is void")
    monkeypatch.setenv("FRTOP_PORT", str(agent.pub))
    start_agent(folder)
    operator.await_event(Connected("node0"))
    assert isinstance(operator.ask("node0", 3), wire.StateResponse)


def test_a_connection_that_breaks_off_is_made_anew(
    operator: Operator, agent: announcement.Announcement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "QUICK_S", 0.2)
    operator.reach("node0", agent.pub)
    operator.await_event(Connected("node0"))
    operator.events.clear()
    (carrying,) = shells()
    carrying.kill()
    error = operator.await_failure("node0").error
    assert error.text.startswith("on the way to node0: the connection to bastion broke off")
    assert not operator.connections.is_up("node0")
    operator.await_event(Connected("node0"))
    assert isinstance(operator.ask("node0", 4), wire.StateResponse)


def test_a_host_on_the_way_without_a_shell_or_python_is_told(operator: Operator) -> None:
    operator.reach("a", 7677, command=("sh", "-c", "echo This account is not available; exit 1"))
    operator.reach("b", 7677, command=("no-such-program",))
    assert "on the way to a: " in operator.await_failure("a").error.text
    assert "This account is not available" in operator.await_failure("a").error.text
    assert "no-such-program is not installed" in operator.await_failure("b").error.text


def test_what_is_no_frame_ends_it(operator: Operator) -> None:
    fake = "echo 'frtop-forward {}'; head -c 100000 /dev/zero; cat >/dev/null"
    operator.reach("node0", 7677, command=("sh", "-c", fake))
    assert "what is no line and no frame of frtop" in operator.await_failure("node0").error.text


def test_a_host_on_the_way_that_falls_silent_is_given_up(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrier, "SILENT_S", 1.0)
    monkeypatch.setattr(carrier, "PING_S", 0.2)
    silent = "echo 'frtop-forward {}'; cat >/dev/null"
    operator.reach("node0", 7677, command=("sh", "-c", silent))

    def is_told() -> bool:
        operator.events.clear()
        return "nothing was heard for 1 s" in operator.await_failure("node0").error.text

    wait_for(is_told, "its silence", pause_s=0)


def test_an_endpoint_that_is_given_up_is_closed_at_both_ends(
    operator: Operator, agent: announcement.Announcement
) -> None:
    endpoint = operator.reach("node0", agent.pub)
    operator.await_event(Connected("node0"))
    (carrying,) = shells()

    def connected() -> list[object]:
        return [one for one in carrying.net_connections() if one.status == "ESTABLISHED"]

    assert len(connected()) == 2
    operator.connections.disconnect(endpoint)
    wait_for(lambda: not connected(), "both connections are closed")
    assert not operator.connections.is_up("node0")
    operator.reach("node0", agent.pub)
    operator.events.clear()
    operator.await_event(Connected("node0"))


def test_only_this_process_gets_at_an_agent_by_our_end() -> None:
    port = LocalPort("node0", "node0", 7678, is_ask=True)
    name = port.url.removeprefix("ipc://@")
    program = (
        "import socket, sys\n"
        "one = socket.socket(socket.AF_UNIX)\n"
        f"one.connect('\\0{name}')\n"
        "print('connected', flush=True)\n"
        "print(one.recv(9))"
    )
    try:
        other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "connected\n"
        assert port.accept() is None
        assert other.communicate(timeout=15)[0] == "b''\n"
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(f"\0{name}")
            accepted = port.accept()
            assert accepted is not None
            accepted.close()
    finally:
        port.close()


def test_nothing_is_left_of_an_operator_who_was_killed(agent: announcement.Announcement) -> None:
    program = (
        "from frtop_probe import keys\n"
        "from frtop_probe.pipe.start_script import start_script\n"
        "from frtop_tui.sources.agent_connections import AgentConnections\n"
        "from frtop_tui.sources.endpoints import ForwardedEndpoint\n"
        "from frtop_tui.sources.forwarding.connections import ForwardedConnections\n"
        "one = ForwardedConnections(AgentConnections(keys.load(create=False)),"
        " start_script(program='forwarder'))\n"
        f"one.connect(ForwardedEndpoint('node0', '127.0.0.1', {agent.pub}, {agent.ask}, 'way',"
        f" {CLEAN!r}))\n"
        "while True:\n"
        "    for event in one.wait(50):\n"
        "        print(type(event).__name__, flush=True)\n"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert "Connected\n" in killed.stdout
    carrying = shells()
    assert len(carrying) == 1
    killed.kill()
    killed.communicate()
    wait_for(lambda: not any(one.is_running() for one in carrying), "it has ended")
