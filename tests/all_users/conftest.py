"""A host with two other users, each with a prepared rank, and root's agent of all users."""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

import frtop_probe
from frtop_probe import keys, wire
from frtop_probe.agent import public_card
from frtop_probe.agent.public_card import PublicCard
from frtop_probe.ring.folder import SHARED_MEMORY
from waiting import DEADLINE_S, wait_for

PATIENCE_S = 60.0
"""Three Pythons start one after the other until a rank is shown; on a busy host that takes long."""
TESTS = Path(__file__).parents[1]
RANK_PROGRAM = TESTS / "agent" / "rank_program.py"
PATH = os.pathsep.join(
    [str(Path(frtop_probe.__file__).parents[1]), str(Path(msgspec.__file__).parents[1])]
)


def python_for_all() -> str:
    """A Python that other users can run, with this one's packages; "" if there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        with suppress(PermissionError):
            if python and not subprocess.run(
                [python, "-c", "import zmq, msgspec, psutil, frtop_probe.agent.service"],
                user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True,
                env={"PYTHONPATH": PATH}, check=False,
            ).returncode:  # fmt: skip
                return python
    return ""


@pytest.fixture(scope="session")
def python() -> str:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes users")
    if shutil.which("useradd") is None:
        pytest.skip("needs useradd")
    found = python_for_all()
    if not found:
        pytest.skip("no Python of this version that other users can run")
    return found


@pytest.fixture(scope="session")
def users(python: str) -> Iterator[tuple[str, str]]:
    """Two users of this host, for as long as the tests run."""
    del python
    names = f"frtopa{os.getpid()}", f"frtopb{os.getpid()}"
    for name in names:
        subprocess.run(
            ["useradd", "--no-create-home", "--shell", "/bin/false", name], check=True,
            capture_output=True,
        )  # fmt: skip
    try:
        yield names
    finally:
        for name in names:
            folder = SHARED_MEMORY / f"frtop-{pwd.getpwnam(name).pw_uid}"
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(["userdel", name], check=True, capture_output=True)


class Screen:
    """An operator with a key of their own: a connection for requests, one for what is published."""

    def __init__(
        self, card: PublicCard, public: bytes, pair: tuple[bytes, bytes], routing_id: bytes = b""
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._server, self._pair, self._number = public, pair, 0
        self.asking = self._socket(zmq.DEALER, card.port + 1, routing_id)
        self.published = self._socket(zmq.SUB, card.port)
        self.published.subscribe(b"")
        self.updates: list[wire.Update] = []

    def _socket(self, kind: int, port: int, routing_id: bytes = b"") -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        if routing_id:
            socket.routing_id = routing_id
        socket.linger = 0
        socket.rcvtimeo = int(DEADLINE_S * 1000)
        socket.curve_publickey, socket.curve_secretkey = self._pair
        socket.curve_serverkey = self._server
        socket.connect(f"tcp://127.0.0.1:{port}")
        return socket

    def ask(self, request: wire.Request) -> wire.Response:
        """The response; keeps the updates that come before it."""
        self._number += 1
        self.asking.send(wire.to_frame(msgspec.structs.replace(request, id=self._number)))
        while (response := self.receive()).id != self._number:
            pass
        return response

    def receive(self) -> wire.Response:
        response = wire.decode_response(wire.from_frame(self.asking.recv()))
        if isinstance(response, wire.UpdateMessage):
            self.updates.append(response.update)
        return response

    def state(self, **more: Any) -> wire.Update:
        response = self.ask(wire.StateRequest(0, follow=True, **more))
        assert isinstance(response, wire.StateResponse), response
        return response.update

    def users_ranks(self, count: int) -> dict[int, int]:
        """Keys of ranks by pid, once so many are shown."""

        def shown() -> dict[int, int] | None:
            found = {rank.identity.pid: rank.key for rank in self.state().ranks if rank.identity}
            return found if len(found) >= count else None

        return wait_for(shown, f"{count} ranks", seconds=PATIENCE_S, pause_s=0.1)

    def close(self) -> None:
        self.context.destroy(linger=0)


@dataclass
class AllUsersHost:
    """The agent, its files, and a rank per user."""

    folder: Path
    users: tuple[str, str]
    python: str
    stack: ExitStack = field(default_factory=ExitStack)
    pids: dict[str, int] = field(default_factory=dict)
    agent: subprocess.Popen[str] | None = None

    def start_rank(self, user: str, *, number: int = 0) -> int:
        uid = pwd.getpwnam(user).pw_uid
        rings = SHARED_MEMORY / f"frtop-{uid}"
        rings.mkdir(mode=0o700, exist_ok=True)
        os.chown(rings, uid, uid)
        self.stack.callback(shutil.rmtree, rings, ignore_errors=True)
        process = subprocess.Popen(
            [self.python, str(RANK_PROGRAM), "busy", "1"], user=uid, group=uid, extra_groups=[],
            env={"FRTOP_DIR": str(rings), "PYTHONPATH": PATH, "RANK": str(number)},
            stdout=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        assert process.stdout is not None
        for undo in (process.stdout.close, process.wait, process.kill):  # the last one first
            self.stack.callback(undo)
        assert process.stdout.readline() == "ready\n"
        self.pids[user] = process.pid
        return process.pid

    def start_agent(self, *more: str, outside: bool = False) -> None:
        self.agent = self.spawn_agent(*more, outside=outside)
        self.stack.callback(self.stop_agent)
        wait_for(public_card.read, "the card", seconds=PATIENCE_S)

    def spawn_agent(self, *more: str, outside: bool = False) -> subprocess.Popen[str]:
        """Starts an agent, which may end at once."""
        port = 20_000 + 2 * random.randrange(6_000)
        return subprocess.Popen(
            [sys.executable, "-m", "frtop_tui", "agent", "--all-users", "--config",
             str(self.folder / "etc"), "--audit", str(self.folder / "log" / "audit.jsonl"),
             "--bind", "127.0.0.1", "--port", str(port), *more],
            env={**os.environ, "FRTOP_RUN_DIR": str(self.folder / "run"),
                 "FRTOP_OUTSIDE": str(int(outside)), "FRTOP_AGENT_PYTHON": self.python,
                 "PYTHONPATH": f"{PATH}:{_of_tui()}"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def stop_agent(self) -> None:
        if self.agent is not None:
            self.agent.terminate()
            _, errors = self.agent.communicate(timeout=20)
            assert "Traceback" not in errors, errors
            self.agent = None

    def admit(self, *lines: str) -> None:
        file = self.folder / "etc" / "admitted"
        file.touch(0o600)
        file.write_text("".join(f"{line}\n" for line in lines))

    def screen(self, pair: tuple[bytes, bytes], routing_id: bytes = b"") -> Screen:
        card = public_card.read()
        assert card is not None
        public = keys.parse_public(card.public)
        assert public is not None
        screen = Screen(card, public, pair, routing_id)
        self.stack.callback(screen.close)
        return screen

    def logger(self) -> socket.socket:
        """A socket as /dev/log is, on which the audit may arrive."""
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.stack.callback(one.close)
        one.settimeout(DEADLINE_S)
        one.bind(str(self.folder / "logger"))
        return one

    def audited(self) -> list[dict[str, Any]]:
        text = (self.folder / "log" / "audit.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def _of_tui() -> str:
    import frtop_tui  # noqa: PLC0415 - only for its place

    assert frtop_tui.__file__ is not None
    return str(Path(frtop_tui.__file__).parents[1])


@pytest.fixture
def all_users(
    tmp_path: Path, users: tuple[str, str], python: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AllUsersHost]:
    for name in ("etc", "log", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv(public_card.FOLDER, str(tmp_path / "run"))
    one = AllUsersHost(tmp_path, users, python)
    with one.stack:
        yield one
