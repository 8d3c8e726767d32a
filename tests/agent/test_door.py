"""Who may come in, and on which ports."""

from __future__ import annotations

import socket

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from agent.host import DEADLINE, Host, until
from frtop_probe import keys, wire
from frtop_probe.agent.announcement import Announcement

_ENDS = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_SUCCEEDED
)


def knock(card: Announcement, pair: tuple[bytes, bytes] | None, port: int) -> zmq.Event:
    """How a handshake with these keys ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    door = context.socket(zmq.SUB if port == card.pub else zmq.DEALER)
    monitor = door.get_monitor_socket(_ENDS)
    try:
        door.linger = 0
        if pair is not None:
            door.curve_publickey, door.curve_secretkey = pair
            door.curve_serverkey = card.public_key.encode()
        door.connect(f"tcp://{card.address}:{port}")
        assert monitor.poll(int(DEADLINE * 1000))
        event = zmq.Event(recv_monitor_message(monitor)["event"])
        door.disable_monitor()
        return event
    finally:
        door.close()
        monitor.close()
        context.destroy(linger=0)


def test_only_listed_keys_come_in(host: Host) -> None:
    card = host.agent()
    pair = keys.load(create=False)
    friend = pair.public, pair.secret
    for port in (card.ask, card.pub):
        assert knock(card, friend, port) == zmq.Event.HANDSHAKE_SUCCEEDED
        assert knock(card, zmq.curve_keypair(), port) == zmq.Event.HANDSHAKE_FAILED_AUTH
        assert knock(card, None, port) in (
            zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
            zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
        )
    assert host.operator(card).state().full


def test_authorized_keys_come_in_too(host: Host) -> None:
    pair = keys.load(create=True)
    colleague = zmq.curve_keypair()
    listed = pair.path.with_name("authorized_keys")
    listed.write_text(f"# who is on call\n{colleague[0].decode()} ann@desk\n\n")
    card = host.agent()
    assert knock(card, colleague, card.ask) == zmq.Event.HANDSHAKE_SUCCEEDED


def test_a_stranger_gets_no_answer_and_no_update(host: Host) -> None:
    card = host.agent()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        public, secret = zmq.curve_keypair()
        for kind, port in ((zmq.SUB, card.pub), (zmq.DEALER, card.ask)):
            one = context.socket(kind)
            one.linger = 0
            one.rcvtimeo = 1200
            one.curve_publickey, one.curve_secretkey = public, secret
            one.curve_serverkey = card.public_key.encode()
            one.connect(f"tcp://{card.address}:{port}")
            if kind == zmq.SUB:
                one.subscribe(b"")
            else:
                one.send(wire.packed(wire.StateRequest(1)))
            with pytest.raises(zmq.Again):
                one.recv()
            one.close()
    finally:
        context.destroy(linger=0)


def taken(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port))
    listener.listen(1)
    return listener


def test_a_taken_default_port_gives_the_next_pair(host: Host) -> None:
    with taken(host.port + 1):
        card = host.agent()
    assert (card.pub, card.ask) == (host.port + 2, host.port + 3)


def test_a_taken_port_that_was_asked_for_is_an_error_with_a_next_step(host: Host) -> None:
    with taken(host.port):
        agent = host.spawn("--port", str(host.port))
        _, complaint = agent.communicate(timeout=DEADLINE)
    assert agent.returncode == 1
    assert f"port {host.port} or {host.port + 1} is taken" in complaint
    assert "ss -ltnp" in complaint
    assert not host.files.card.exists()


def test_an_address_of_another_host_is_an_error_with_a_next_step(host: Host) -> None:
    agent = host.spawn("--bind", "192.0.2.7")
    _, complaint = agent.communicate(timeout=DEADLINE)
    assert agent.returncode == 1
    assert "192.0.2.7 is no address of this host" in complaint
    assert "FRTOP_BIND" in complaint


def test_a_key_others_can_read_is_an_error_with_a_next_step(host: Host) -> None:
    keys.load(create=True)
    host.key_file.chmod(0o644)
    agent = host.spawn()
    _, complaint = agent.communicate(timeout=DEADLINE)
    assert agent.returncode == 1
    assert f"chmod 600 {host.key_file}" in complaint


@pytest.mark.parametrize(("variable", "value"), [("FRTOP_PORT", "x"), ("FRTOP_AGENT_LINGER", "-1")])
def test_an_option_nobody_understands_is_named(host: Host, variable: str, value: str) -> None:
    agent = host.spawn(**{variable: value})
    _, complaint = agent.communicate(timeout=DEADLINE)
    assert agent.returncode == 2
    assert f"{variable}={value}" in complaint


def test_ports_are_free_again_after_it_left(host: Host) -> None:
    card = host.agent()
    host.agents[-1].terminate()
    assert host.agents[-1].wait(DEADLINE) == 0

    def bindable() -> bool:
        with taken(card.pub), taken(card.ask):
            return True

    assert until(bindable, "both ports are free")
