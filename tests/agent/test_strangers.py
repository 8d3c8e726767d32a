"""Those who may not come in: malformed, recorded and countless connections, with real sockets."""

from __future__ import annotations

import functools
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import zmq

from agent.agent_host import DEADLINE, Host, Operator, handshake
from frtop_probe import keys, wire
from frtop_probe.agent.announcement import Announcement
from frtop_probe.agent.sockets import MAX_REQUEST
from frtop_probe.wire.recording import ChangeRecording
from waiting import wait_for

GREETING = 64
"""Bytes of a ZMTP 3 greeting: signature, version, mechanism, who is the server, filler."""


def greeting(mechanism: bytes = b"CURVE", version: bytes = b"\x03\x01", server: int = 0) -> bytes:
    signature = b"\xff" + bytes(8) + b"\x7f"
    return signature + version + mechanism.ljust(20, b"\0") + bytes([server]) + bytes(31)


def command(name: bytes, body: bytes, *, size: int | None = None) -> bytes:
    data = bytes([len(name)]) + name + body
    return b"\x06" + (len(data) if size is None else size).to_bytes(8, "big") + data


HELLO = b"\x01\x00" + bytes(72) + b"k" * 32 + bytes(8) + b"s" * 80
READY = b"\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
REQUEST = wire.to_frame(wire.StateRequest(1))
MESSAGE = b"\x02" + len(REQUEST).to_bytes(8, "big") + REQUEST
NO_HANDSHAKES = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: node3\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "noise": bytes(range(256)) * 300,
    "ZMTP 1.0": b"\x01\x00" + b"\x01\x7e" + bytes([len(REQUEST) + 1, 0]) + REQUEST,
    "ZMTP 2.0": b"\xff" + bytes(8) + b"\x7f" + b"\x01\x05" + b"\x00\x00" + MESSAGE,
    "a later version": greeting(version=b"\x09\x09"),
    "half a greeting": greeting()[:40],
    "no mechanism": greeting(b"NULL") + command(b"READY", READY) + MESSAGE,
    "a password": greeting(b"PLAIN") + command(b"HELLO", b"\x05admin\x05admin") + MESSAGE,
    "another mechanism": greeting(b"GSSAPI") + command(b"INITIATE", bytes(64)),
    "another server": greeting(server=1) + command(b"WELCOME", bytes(160)),
    "a greeting only": greeting(),
    "half a hello": greeting() + command(b"HELLO", HELLO)[:90],
    "a short hello": greeting() + command(b"HELLO", HELLO[:-1]),
    "a forged hello": greeting() + command(b"HELLO", HELLO),
    "a hello of another version": greeting() + command(b"HELLO", b"\x02" + HELLO[1:]),
    "a hello of 2^62 bytes": greeting() + command(b"HELLO", HELLO, size=1 << 62),
    "a hello of negative size": greeting() + command(b"HELLO", HELLO, size=(1 << 64) - 1),
    "initiate first": greeting() + command(b"INITIATE", bytes(300)),
    "ready first": greeting() + command(b"READY", READY) + MESSAGE,
    "a message first": greeting() + MESSAGE,
    "an encrypted message first": greeting() + command(b"MESSAGE", bytes(100)),
    "a ping first": greeting() + command(b"PING", bytes(20)),
    "a command without a name": greeting() + b"\x04\x01\x00",
    "a name longer than its command": greeting() + b"\x04\x02\xffH",
}


@pytest.fixture
def card(host: Host) -> Announcement:
    return host.agent()


def descriptors(card: Announcement) -> int:
    return len(list(Path(f"/proc/{card.pid}/fd").iterdir()))


def memory_mb(card: Announcement) -> float:
    pages = int(Path(f"/proc/{card.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def connect(card: Announcement, port: int) -> socket.socket:
    return socket.create_connection((card.address, port), timeout=DEADLINE)


def is_closed(connection: socket.socket) -> bool:
    """Whether the agent has closed it; reads what it said before."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def log_of(host: Host) -> list[str]:
    """The log of the last agent, which ends, but for who looked at all."""
    host.agents[-1].terminate()
    _, errors = host.agents[-1].communicate(timeout=DEADLINE)
    return [line for line in errors.splitlines() if "StateRequest of all" not in line]


def test_what_is_no_handshake_is_closed_unanswered_and_costs_nothing(
    host: Host, card: Announcement
) -> None:
    owner = host.operator(card)
    owner.state()
    before, memory = descriptors(card), memory_mb(card)
    with ExitStack() as stack:
        opened = {}
        for name, said in NO_HANDSHAKES.items():
            for port in (card.pub, card.ask):
                one = opened[name, port] = stack.enter_context(connect(card, port))
                with suppress(ConnectionError):  # closed before all was said
                    one.sendall(said)
        assert owner.state().full  # meanwhile
        left = dict(opened)

        def all_closed() -> bool:
            for key, connection in list(left.items()):
                if is_closed(connection):
                    del left[key]
            return not left

        wait_for(all_closed, lambda: f"these are closed: {list(left)}")
    assert owner.state().full
    wait_for(lambda: descriptors(card) <= before, "nothing of them is left")
    assert memory_mb(card) < memory + 16
    assert log_of(host) == []


class Tap:
    """Stands between an operator and an agent: records what the operator sends, or changes it."""

    def __init__(self, card: Announcement, change: Callable[[bytes], bytes] = bytes) -> None:
        self._card = card
        self._change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.said = b""
        self.broken = threading.Event()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            client, _ = self._listener.accept()
            self._listener.close()  # once: an operator connects again and again
            agent = connect(self._card, self._card.ask)
            agent.settimeout(None)
            self._ends += client, agent
            threading.Thread(target=self._answer, args=(agent, client), daemon=True).start()
            while piece := client.recv(1 << 16):
                self.said += piece
                agent.sendall(self._change(piece))

    def _answer(self, agent: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := agent.recv(1 << 16):
                client.sendall(piece)
        self.broken.set()

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            end.close()


def frames(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """Where each frame after the greeting begins, and the frame."""
    at = GREETING
    while at < len(stream):
        head = 9 if stream[at] & 2 else 2
        size = int.from_bytes(stream[at + 1 : at + head], "big")
        yield at, stream[at : at + head + size]
        at += head + size


def through(tap: Tap, host: Host, card: Announcement) -> Operator:
    owner = Operator(card, keys.load(create=False))
    host.operators.append(owner)
    owner.dealer.close()
    owner.dealer = owner.socket(zmq.DEALER)
    owner.dealer.connect(tap.address)
    return owner


def test_a_recorded_handshake_with_its_requests_is_refused(host: Host, card: Announcement) -> None:
    """On another connection as a whole and in part, and within its own connection."""
    rank = host.rank("wait")
    key = host.operator(card).ranks()[0].key
    tap = Tap(card)
    owner = through(tap, host, card)
    asked = owner.request(ChangeRecording(2, key, note="x"))
    assert not isinstance(asked, wire.Error)
    parts = list(frames(tap.said))
    assert [part[2:7] for _, part in parts[:1]] == [b"\x05HELL"]
    assert b"\x07MESSAGE" in parts[-1][1]
    assert b"note" not in tap.said
    whole, without_hello = tap.said, tap.said[:GREETING] + tap.said[parts[1][0] :]
    last_only = tap.said[:GREETING] + parts[-1][1]
    tap.close()
    for said in (whole, without_hello, last_only):
        with connect(card, card.ask) as replayed:
            with suppress(ConnectionError):
                replayed.sendall(said)
            wait_for(functools.partial(is_closed, replayed), "the agent closes it")

    def twice(piece: bytes) -> bytes:
        return piece * 2 if b"\x07MESSAGE" in piece[:12] else piece

    def flipped(piece: bytes) -> bytes:
        return piece[:-1] + bytes([piece[-1] ^ 1]) if b"\x07MESSAGE" in piece[:12] else piece

    for number, change in enumerate((twice, flipped), 3):
        tap = Tap(card, change)
        owner = through(tap, host, card)
        owner.dealer.send(wire.to_frame(ChangeRecording(number, key, note="x")))
        assert tap.broken.wait(DEADLINE)
        tap.close()
    log = "\n".join(log_of(host))
    done = re.findall(rf"ChangeRecording of process {rank.pid}, (.*), asked by|asked by", log)
    # Asked once by the first operator, and once of the doubled message; never of the flipped one.
    assert len(done) == 2, log
    assert done[1].startswith("1 more since")


def test_a_request_that_is_too_large_costs_its_sender_the_connection(
    host: Host, card: Announcement
) -> None:
    owner, other = host.operator(card), host.operator(card)
    other.state()
    owner.dealer.send(bytes(MAX_REQUEST + 1))
    owner.dealer.rcvtimeo = 500
    with pytest.raises(zmq.Again):
        owner.dealer.recv()
    assert other.state().full
    for said in (b"", b"\xff" * 1000, bytes(MAX_REQUEST - 100)):  # messages that are none
        other.dealer.send(said)
        answer = wire.decode_response(wire.from_frame(other.dealer.recv()))
        assert isinstance(answer, wire.Error)
        assert answer.reason == "words"
    assert other.state().full


def test_countless_connections_leave_the_agent_its_descriptors(
    host: Host, card: Announcement
) -> None:
    """Nobody proves a key on them. The agent reads its ranks, and answers who is in."""
    most = 512
    rank = host.rank("wait")
    owner = host.operator(card)
    key = owner.ranks()[0].key
    resource.prlimit(card.pid, resource.RLIMIT_NOFILE, (most, most))
    memory = memory_mb(card)
    with ExitStack() as stack:
        seen = 0
        for number in range(most + 100):
            one = stack.enter_context(connect(card, (card.pub, card.ask)[number % 2]))
            with suppress(ConnectionError):  # the agent has closed it
                one.sendall(greeting() if number % 4 else b"")
            if number % 50 == 0:
                assert owner.state().ranks
                seen = max(seen, descriptors(card))
        assert seen > most // 2  # it was a flood
        wait_for(lambda: descriptors(card) <= most * 3 // 4 + 20, "the rest is closed")
        (snapshot,) = owner.snapshots(key)
        assert [process.pid for process in snapshot.processes] == [rank.pid]
        assert [dump.error for dump in snapshot.dumps] == [""]
        state = owner.state()
        assert (state.notes, state.ranks[0].exit_info) == ((), None)
        assert memory_mb(card) < memory + 48
        # They are still there: their time ends, and others can come in.
        assert host.operator(card).state().full
    wait_for(lambda: descriptors(card) < 60, "nothing of them is left")
    assert all("SnapshotRequest" in line for line in log_of(host))


def test_a_stranger_who_tries_again_and_again_is_refused_each_time(
    host: Host, card: Announcement
) -> None:
    owner = host.operator(card)
    owner.state()
    before = descriptors(card)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        strangers = [context.socket(zmq.DEALER) for _ in range(8)]
        for one in strangers:
            one.linger, one.reconnect_ivl = 0, 1
            one.curve_publickey, one.curve_secretkey = zmq.curve_keypair()
            one.curve_serverkey = card.public_key.encode()
            one.connect(f"tcp://{card.address}:{card.ask}")
            one.send(wire.to_frame(ChangeRecording(1, 1, note="x")))
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert owner.state().full
            assert descriptors(card) < before + 40
    finally:
        context.destroy(linger=0)
    assert log_of(host) == []


def test_after_a_rotation_the_old_key_opens_nothing(host: Host) -> None:
    old_card = host.agent()
    old = keys.load(create=False)
    old.path.rename(old.path.with_name("leaked"))
    new = keys.load(create=True)
    # Until the agents have ended, the old key counts, as the page on security says.
    pair = old.public, old.secret
    assert handshake(old_card, pair, old_card.ask) == zmq.Event.HANDSHAKE_SUCCEEDED
    assert handshake(old_card, (new.public, new.secret), old_card.ask) == (
        zmq.Event.HANDSHAKE_FAILED_AUTH
    )
    host.agents[-1].terminate()
    assert host.agents[-1].wait(DEADLINE) == 0
    card = host.agent()
    assert card.public_key.encode() == new.public
    for port in (card.ask, card.pub):
        assert handshake(card, pair, port) == zmq.Event.HANDSHAKE_FAILED_AUTH
    assert host.operator(card).state().full
