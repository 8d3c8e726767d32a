"""A host for tests: a folder, rank processes, real agents, and operators connected to them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from frtop_probe import keys, wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import AgentFiles
from waiting import DEADLINE_S, wait_for

RANK_PROGRAM = Path(__file__).with_name("rank_program.py")
DEADLINE = DEADLINE_S
_HANDSHAKE_EVENTS = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_SUCCEEDED
)


class RankProcess:
    """A running `rank_program.py`, or another program that takes commands."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        word, _, pid = self.read_line().partition(" ")
        assert word == "ready", process.communicate()
        self.own_pid = int(pid or self.pid)
        """In its own namespace."""

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send_command(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def do(self, text: str) -> None:
        self.send_command(text)
        assert self.read_line() == "done"

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # with its children
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


class Operator:
    """SUB and DEALER to one agent; counts its requests."""

    def __init__(self, card: Announcement, pair: keys.KeyPair) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.server = card.public_key.encode()
        self.pair = pair
        self.subscriber = self.socket(zmq.SUB)
        self.subscriber.subscribe(wire.PROTOCOL)
        self.subscriber.connect(f"tcp://{card.address}:{card.pub}")
        self.dealer = self.socket(zmq.DEALER)
        self.dealer.connect(f"tcp://{card.address}:{card.ask}")
        self.requests_sent = 0

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger = 0
        socket.rcvtimeo = int(DEADLINE * 1000)
        socket.curve_publickey = self.pair.public
        socket.curve_secretkey = self.pair.secret
        socket.curve_serverkey = self.server
        return socket

    def request(self, message: wire.Request) -> wire.Response:
        self.dealer.send(wire.to_frame(message))
        while True:
            response = wire.decode_response(wire.from_frame(self.dealer.recv()))
            if response.id == message.id:
                return response

    def state(self) -> wire.Update:
        self.requests_sent += 1
        response = self.request(wire.StateRequest(self.requests_sent))
        assert isinstance(response, wire.StateResponse)
        return response.update

    def ranks(self) -> tuple[wire.RankUpdate, ...]:
        return wait_for(lambda: self.state().ranks, "the agent tracks a rank")

    def snapshots(self, *ranks: int, **more: Any) -> tuple[wire.Snapshot, ...]:
        self.requests_sent += 1
        response = self.request(wire.SnapshotRequest(self.requests_sent, ranks, **more))
        assert isinstance(response, wire.SnapshotResponse), response
        return response.snapshots

    def update(self) -> wire.Update:
        frame = self.subscriber.recv()
        assert not self.subscriber.rcvmore  # `wire` says why messages have one frame
        return wire.decode_update(wire.from_frame(frame))

    def rank_updates(self, key: int) -> Iterator[wire.RankUpdate]:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            yield from (rank for rank in self.update().ranks if rank.key == key)
        pytest.fail("no further update of this rank")

    def exit_info(self, key: int) -> wire.ExitInfo:
        return next(rank.exit_info for rank in self.rank_updates(key) if rank.exit_info is not None)

    def close(self) -> None:
        self.context.destroy(linger=0)


class Host:
    """One host in a temporary folder; `close` ends all its processes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "frtop"
        self.folder.mkdir(mode=0o700)
        self.files = AgentFiles.here(self.folder)
        self.key_file = folder / "key"
        self.port = 20_000 + 2 * random.randrange(6_000)
        self.environment = {
            **os.environ,
            "FRTOP_DIR": str(self.folder),
            "FRTOP_KEY_FILE": str(self.key_file),
            "FRTOP_BIND": "127.0.0.1",
            "FRTOP_UNPREPARED": "0",  # other tests' jobs run on this host
            "FRTOP_PORT": str(self.port),
        }
        monkeypatch.setenv("FRTOP_DIR", str(self.folder))
        monkeypatch.setenv("FRTOP_KEY_FILE", str(self.key_file))
        keys.load(create=True)
        self.ranks: list[RankProcess] = []
        self.agents: list[subprocess.Popen[str]] = []
        self.operators: list[Operator] = []

    def rank(
        self,
        *arguments: str,
        rank: int = 0,
        program: Path = RANK_PROGRAM,
        within: Sequence[str] = (),
    ) -> RankProcess:
        """Starts a program through `within`, such as `unshare`."""
        process = subprocess.Popen(
            [*within, sys.executable, str(program), *arguments],
            env={**self.environment, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.ranks.append(RankProcess(process))
        return self.ranks[-1]

    def spawn(
        self,
        *arguments: str,
        program: tuple[str, str] = ("-m", "frtop_probe.agent"),
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Starts an agent, which may leave at once."""
        agent = subprocess.Popen(
            [sys.executable, *program, *arguments],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.agents.append(agent)
        return agent

    def agent(self, *arguments: str, **more: Any) -> Announcement:
        """Starts an agent and waits until it has announced itself."""
        agent = self.spawn(*arguments, **more)

        def up() -> Announcement | None:
            assert agent.poll() is None, agent.communicate()
            card = announcement.find_agent(self.folder)
            return card if card is not None and card.pid == agent.pid else None

        return wait_for(up, "the agent announces itself")

    def operator(self, card: Announcement) -> Operator:
        self.operators.append(Operator(card, keys.load(create=False)))
        return self.operators[-1]

    def close(self) -> None:
        for operator in self.operators:
            operator.close()
        for rank in self.ranks:
            rank.kill()
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()
            try:
                _, errors = agent.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.communicate()
                raise
            assert "Traceback" not in errors, errors


def handshake(card: Announcement, pair: tuple[bytes, bytes] | None, port: int) -> zmq.Event:
    """The outcome of a handshake with these keys."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    client = context.socket(zmq.SUB if port == card.pub else zmq.DEALER)
    monitor = client.get_monitor_socket(_HANDSHAKE_EVENTS)
    try:
        client.linger = 0
        if pair is not None:
            client.curve_publickey, client.curve_secretkey = pair
            client.curve_serverkey = card.public_key.encode()
        client.connect(f"tcp://{card.address}:{port}")
        assert monitor.poll(int(DEADLINE * 1000))
        event = zmq.Event(recv_monitor_message(monitor)["event"])
        client.disable_monitor()
        return event
    finally:
        client.close()
        monitor.close()
        context.destroy(linger=0)
