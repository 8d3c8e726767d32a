"""Dead connections are found in the kernel's tables, for the process that owns them."""

from __future__ import annotations

import os
import socket
import sys

from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.proc.connections import DEAD_RETRANSMITS, ConnectionTables, parse
from waiting import wait_for
from zoo.packet_filter import drop_incoming

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"


def word(address: str) -> str:
    """An address as the kernel writes it, in native byte order."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}"


def line(
    remote: str, *, state: str = "01", queued: int = 96, timer: str = "01", retransmits: int = 4
) -> str:
    return (
        f"   3: {word('10.77.0.12')}:9393 {remote} {state} {queued:08X}:00000000"
        f" {timer}:000000DC {retransmits:08X}     0        0 2990148 2 00000000a862e8f3 20 4"
    )


def test_a_connection_without_acknowledgements_is_dead() -> None:
    _, (row,) = parse([HEAD, line(f"{word('10.77.0.13')}:BC8E")])
    assert (row.local, row.local_port) == ("10.77.0.12", 0x9393)
    assert (row.remote, row.remote_port) == ("10.77.0.13", 0xBC8E)
    assert (row.queued, row.retransmits, row.inode) == (96, 4, 2990148)


def test_an_ipv4_mapped_address_is_shown_as_ipv4() -> None:
    prefix = "0" * 16 + word("0.0.255.255")
    _, (row,) = parse([line(f"{prefix}{word('10.77.0.13')}:BC8E")])
    assert row.remote == "10.77.0.13"


def test_a_receiver_that_does_not_read_is_not_dead() -> None:
    """Its window is closed: the kernel sends probes (timer 4), and they are answered."""
    assert parse([line(f"{word('10.77.0.13')}:BC8E", timer="04", retransmits=9)])[1] == ()


def test_healthy_connections_give_only_their_local_address() -> None:
    healthy = [line(f"{n:08X}:BC8E", timer="00", retransmits=0) for n in range(1000)]
    once = line(f"{word('10.77.0.13')}:BC8E", retransmits=DEAD_RETRANSMITS - 1)
    acknowledged = line(f"{word('10.77.0.13')}:BC8E", queued=0)
    assert parse([*healthy, once, acknowledged]) == ({"10.77.0.12"}, ())


def test_only_established_connections_count() -> None:
    others = [line("00000000:0000", state="0A"), line("00000000:0000", state="06")]
    assert parse(others) == (set(), ())


@given(st.lists(st.text(max_size=120), max_size=5))
def test_malformed_lines_are_skipped(lines: list[str]) -> None:
    parse(lines)


@given(
    st.lists(
        st.sampled_from(["01", "", ":", "1:1", "zz:1", "FFFFFFFF:F", "-0000001:1", "F" * 32 + ":0"])
    )
)
def test_malformed_fields_are_skipped(fields: list[str]) -> None:
    parse([" ".join(fields), " ".join(["0:", *fields[:2], "01", *fields[2:], *["01"] * 9])])


def test_a_process_with_healthy_connections_has_no_dead_ones() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0],
    ):
        near.sendall(b"x")
        dead, addresses = ConnectionTables().find_dead(os.getpid())
    assert dead == ()
    assert "127.0.0.1" not in addresses


def test_a_connection_to_an_unreachable_peer_is_dead() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        drop_incoming(far)
        near.sendall(b"x" * 96)
        (dead,) = wait_for(
            lambda: ConnectionTables().find_dead(os.getpid())[0], "a dead connection", pause_s=0.1
        )
        assert dead.local == f"127.0.0.1:{near.getsockname()[1]}"
        assert dead.remote == f"127.0.0.1:{far.getsockname()[1]}"
        assert dead.queued == 96
        assert dead.retransmits >= DEAD_RETRANSMITS


def test_an_ended_process_has_no_connections() -> None:
    assert ConnectionTables().find_dead(2**30) == ((), ())
