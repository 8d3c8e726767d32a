"""What a host on the way to agents does: it opens connections and carries their bytes."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from frtop_probe.pipe import forwarder
from frtop_probe.pipe.forwarder import (
    COUNT,
    CREDIT,
    DATA,
    END,
    OPEN,
    PIECE,
    PING,
    WINDOW,
    Frames,
    frame,
)
from frtop_probe.pipe.start_script import start_script
from waiting import wait_for

OPENED = COUNT.pack(WINDOW)


class Way:
    """A running one."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", forwarder.__file__], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"frtop-forward {")
        self._frames = Frames()
        self._seen: list[tuple[bytes, int, bytes]] = []

    def send(self, kind: bytes, number: int = 0, payload: bytes = b"") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame(kind, number, payload))

    def open(self, number: int, host: str, port: int) -> None:
        self.send(OPEN, number, json.dumps([host, port]).encode())

    def next(self, seconds: float = 15) -> tuple[bytes, int, bytes]:
        """The next frame, which has to come."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while not self._seen:
            fd = self.process.stdout.fileno()
            assert select.select([fd], [], [], max(0, end - time.monotonic()))[0], "nothing came"
            piece = os.read(fd, 65536)
            assert piece, "its output has ended"
            self._seen += self._frames.feed(piece)
        return self._seen.pop(0)

    def is_silent(self, seconds: float = 0.5) -> bool:
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout.fileno()], [], [], seconds)[0]
        return not self._seen and not ready

    def data(self, number: int, size: int) -> bytes:
        """So many bytes of a stream, which come next."""
        found = b""
        while len(found) < size:
            kind, of, payload = self.next()
            assert (kind, of) == (DATA, number)
            found += payload
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert end is not None
            end.close()


@pytest.fixture
def way() -> Iterator[Way]:
    one = Way()
    yield one
    one.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        one.settimeout(15)
        yield one


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return port_of(one)


def opened(way: Way, number: int, server: socket.socket) -> socket.socket:
    way.open(number, "127.0.0.1", port_of(server))
    far, _ = server.accept()
    far.settimeout(15)
    assert way.next() == (CREDIT, number, OPENED)
    return far


def test_bytes_go_both_ways_and_each_end_can_hang_up(way: Way, server: socket.socket) -> None:
    with opened(way, 1, server) as one, opened(way, 2, server) as two:
        way.send(DATA, 2, b"to two")
        way.send(DATA, 1, b"to one")
        assert one.recv(99) == b"to one"
        assert two.recv(99) == b"to two"
        one.sendall(b"from one")
        assert way.data(1, 8) == b"from one"
        two.sendall(b"last words")
        two.close()
        assert way.data(2, 10) == b"last words"
        assert way.next() == (END, 2, b"")
        way.send(DATA, 1, b"the end")
        way.send(END, 1)
        assert one.recv(99) == b"the end"
        assert one.recv(99) == b""
    way.send(DATA, 1, b"late")
    way.send(PING)
    assert way.next() == (PING, 0, b"")


@pytest.mark.parametrize(
    ("host", "why"),
    [("127.0.0.1", "refused"), ("no-such-host.invalid", "unknown"), ("x" * 300, "unknown")],
)
def test_what_cannot_be_opened_has_its_reason(way: Way, host: str, why: str) -> None:
    way.open(7, host, closed_port())
    kind, number, payload = way.next()
    assert (kind, number) == (END, 7)
    assert json.loads(payload)["why"] == why
    assert json.loads(payload)["text"]


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port that answers nobody: its queue is full, so the kernel drops who knocks."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield port_of(full)


def test_who_never_answers_holds_up_nobody(way: Way, server: socket.socket, full_port: int) -> None:
    way.open(1, "127.0.0.1", full_port)
    with opened(way, 2, server) as far:
        way.send(END, 1)
        far.sendall(b"here")
        assert way.data(2, 4) == b"here"


def test_nobody_sends_more_than_the_other_end_takes(way: Way, server: socket.socket) -> None:
    with opened(way, 1, server) as one, opened(way, 2, server) as two:
        one.settimeout(0.5)
        with pytest.raises(TimeoutError):
            one.sendall(b"x" * (64 * WINDOW))
        assert way.data(1, WINDOW) == b"x" * WINDOW
        assert way.is_silent()
        two.sendall(b"goes on")
        assert way.data(2, 7) == b"goes on"
        way.send(CREDIT, 1, COUNT.pack(1000))
        assert way.data(1, 1000) == b"x" * 1000
        assert way.is_silent(0.2)


def test_it_says_how_much_was_taken_of_it(way: Way, server: socket.socket) -> None:
    with opened(way, 1, server) as far:
        for _ in range(WINDOW // PIECE):
            way.send(DATA, 1, b"y" * PIECE)
        got, told = 0, 0
        while got < WINDOW:
            got += len(far.recv(1 << 20))
        while told < WINDOW // 2:
            kind, number, payload = way.next()
            assert (kind, number) == (CREDIT, 1)
            told += COUNT.unpack(payload)[0]


def test_an_operator_that_sends_more_than_it_may_is_left(way: Way, server: socket.socket) -> None:
    with opened(way, 1, server):
        with suppress(BrokenPipeError):
            for _ in range(2000):
                way.send(DATA, 1, b"z" * PIECE)
        wait_for(lambda: way.process.poll() == 1, "it gives up")


def test_nothing_is_left_when_the_operator_is_gone(way: Way, server: socket.socket) -> None:
    with opened(way, 1, server) as far:
        way.open(2, "192.0.2.1", 7678)
        assert way.process.stdin is not None
        way.process.stdin.close()
        assert way.process.wait(5) == 0
        assert far.recv(99) == b""


def test_it_ends_when_nothing_is_said_for_too_long(way: Way) -> None:
    """An alarm does it, also while the program waits for somebody to read."""
    way.send(PING)
    assert way.next()[0] == PING
    status = Path(f"/proc/{way.process.pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) & 1 << 13  # SIGALRM
    os.kill(way.process.pid, 14)
    wait_for(lambda: way.process.poll() is not None, "it ends by an alarm")


def test_frames_may_come_in_any_pieces() -> None:
    data = frame(DATA, 5, b"abc") + frame(END, 6) + frame(CREDIT, 7, OPENED)
    wanted = [(DATA, 5, b"abc"), (END, 6, b""), (CREDIT, 7, OPENED)]
    for size in range(1, len(data)):
        frames = Frames()
        found = [
            one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])
        ]
        assert found == wanted


def test_it_starts_as_any_program_of_the_pipe_does() -> None:
    script = start_script(program="forwarder")
    done = subprocess.run(["sh"], input=script, capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"frtop-forward {")
