"""A host for tests: a folder, ranks, real agents, and an operator's sockets to them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq

from frtop_probe import keys, wire
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from frtop_probe.ring.folder import AgentFiles

RANK_PROGRAM = Path(__file__).with_name("rank_program.py")
DEADLINE = 20.0
Found = TypeVar("Found")


def until(condition: Callable[[], Found | None], what: str, seconds: float = DEADLINE) -> Found:
    """Waits for a condition; fails with `what` when it does not come true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"did not happen within {seconds} s: {what}")


class Rank:
    """A running `rank_program.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def order(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # with its children
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


class Operator:
    """SUB and DEALER to one agent; keeps what it hears by number."""

    def __init__(self, card: Announcement, pair: keys.KeyPair) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.server = card.public_key.encode()
        self.pair = pair
        self.subscriber = self.socket(zmq.SUB)
        self.subscriber.subscribe(wire.PROTOCOL)
        self.subscriber.connect(f"tcp://{card.address}:{card.pub}")
        self.dealer = self.socket(zmq.DEALER)
        self.dealer.connect(f"tcp://{card.address}:{card.ask}")
        self.asked = 0

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger = 0
        socket.rcvtimeo = int(DEADLINE * 1000)
        socket.curve_publickey = self.pair.public
        socket.curve_secretkey = self.pair.secret
        socket.curve_serverkey = self.server
        return socket

    def ask(self, question: wire.Request) -> wire.Response:
        self.dealer.send(wire.packed(question))
        while True:
            answer = wire.decode_response(wire.unpacked(self.dealer.recv()))
            if answer.id == question.id:
                return answer

    def state(self) -> wire.Update:
        self.asked += 1
        answer = self.ask(wire.StateRequest(self.asked))
        assert isinstance(answer, wire.StateResponse)
        return answer.update

    def look(self, *ranks: int, **more: Any) -> tuple[wire.Snapshot, ...]:
        self.asked += 1
        answer = self.ask(wire.SnapshotRequest(self.asked, ranks, **more))
        assert isinstance(answer, wire.SnapshotResponse), answer
        return answer.snapshots

    def update(self) -> wire.Update:
        frame = self.subscriber.recv()
        assert not self.subscriber.rcvmore  # see wire: several frames can end the receiver
        return wire.decode_update(wire.unpacked(frame))

    def rank_updates(self, key: int) -> Iterator[wire.RankUpdate]:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            yield from (rank for rank in self.update().ranks if rank.key == key)
        pytest.fail("the awaited update did not come")

    def ending(self, key: int) -> wire.ExitInfo:
        return next(rank.exit_info for rank in self.rank_updates(key) if rank.exit_info is not None)

    def close(self) -> None:
        self.context.destroy(linger=0)


class Host:
    """Everything in one temporary folder; all processes end with it."""

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
            "FRTOP_PORT": str(self.port),
        }
        monkeypatch.setenv("FRTOP_DIR", str(self.folder))
        monkeypatch.setenv("FRTOP_KEY_FILE", str(self.key_file))
        keys.load(create=True)
        self.ranks: list[Rank] = []
        self.agents: list[subprocess.Popen[str]] = []
        self.operators: list[Operator] = []

    def rank(self, *arguments: str, rank: int = 0) -> Rank:
        process = subprocess.Popen(
            [sys.executable, str(RANK_PROGRAM), *arguments],
            env={**self.environment, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.ranks.append(Rank(process))
        return self.ranks[-1]

    def spawn(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """An agent that may or may not stay."""
        agent = subprocess.Popen(
            [sys.executable, "-m", "frtop_probe.agent", *arguments],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.agents.append(agent)
        return agent

    def agent(self, *arguments: str, **environment: str) -> Announcement:
        """An agent that is up."""
        agent = self.spawn(*arguments, **environment)

        def up() -> Announcement | None:
            assert agent.poll() is None, agent.communicate()
            card = announcement.read(self.folder)
            return card if card is not None and card.pid == agent.pid else None

        return until(up, "the agent announces itself")

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
                _, complaint = agent.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.communicate()
                raise
            assert "Traceback" not in complaint, complaint
