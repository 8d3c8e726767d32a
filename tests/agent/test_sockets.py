"""Who may connect, and on which ports."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import zmq

from agent.agent_host import DEADLINE, Host, handshake
from frtop_probe import keys
from waiting import wait_for


def test_only_listed_keys_connect(host: Host) -> None:
    card = host.agent()
    pair = keys.load(create=False)
    admitted = pair.public, pair.secret
    for port in (card.ask, card.pub):
        assert handshake(card, admitted, port) == zmq.Event.HANDSHAKE_SUCCEEDED
        assert handshake(card, zmq.curve_keypair(), port) == zmq.Event.HANDSHAKE_FAILED_AUTH
        assert handshake(card, None, port) in (
            zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
            zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
        )
    assert host.operator(card).state().full


def occupy(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port))
    listener.listen(1)
    return listener


def test_a_used_default_port_gives_the_next_pair_which_is_free_afterwards(host: Host) -> None:
    with occupy(host.port + 1):
        card = host.agent()
    assert (card.pub, card.ask) == (host.port + 2, host.port + 3)
    host.agents[-1].terminate()
    assert host.agents[-1].wait(DEADLINE) == 0

    def bindable() -> bool:
        with occupy(card.pub), occupy(card.ask):
            return True

    assert wait_for(bindable, "both ports are free")


def test_an_address_of_another_host_is_an_error(host: Host) -> None:
    agent = host.spawn(FRTOP_BIND="192.0.2.7")
    _, errors = agent.communicate(timeout=DEADLINE)
    assert agent.returncode == 1
    assert "192.0.2.7 is not an address of this host" in errors
    assert "FRTOP_BIND" in errors


@pytest.mark.parametrize(("variable", "value"), [("FRTOP_PORT", "x"), ("FRTOP_AGENT_LINGER", "-1"),
                                                ("FRTOP_GAUGES", "0.5")])  # fmt: skip
def test_an_invalid_option_is_named(host: Host, variable: str, value: str) -> None:
    environment: dict[str, Any] = {variable: value}
    agent = host.spawn(**environment)
    _, errors = agent.communicate(timeout=DEADLINE)
    assert agent.returncode == 2
    assert f"{variable}={value}" in errors
