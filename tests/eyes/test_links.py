"""Dead connections are told from the kernel's tables, of the very process that has them."""

from __future__ import annotations

import os
import socket
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.eyes.links import AGAIN, Tables, parse
from zoo.packet_filter import drop_incoming

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"


def word(address: str) -> str:
    """An address as the kernel writes it: in the machine's own order of bytes."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}"


def line(
    remote: str, *, state: str = "01", queued: int = 96, timer: str = "01", again: int = 4
) -> str:
    return (
        f"   3: {word('10.77.0.12')}:9393 {remote} {state} {queued:08X}:00000000"
        f" {timer}:000000DC {again:08X}     0        0 2990148 2 00000000a862e8f3 20 4 1 138 -1"
    )


def test_what_is_never_acknowledged_is_read() -> None:
    _, (row,) = parse([HEAD, line(f"{word('10.77.0.13')}:BC8E")])
    assert (row.local, row.local_port) == ("10.77.0.12", 0x9393)
    assert (row.remote, row.remote_port) == ("10.77.0.13", 0xBC8E)
    assert (row.queued, row.again, row.inode) == (96, 4, 2990148)


def test_a_mapped_address_is_the_one_it_maps() -> None:
    prefix = "0" * 16 + word("0.0.255.255")
    _, (row,) = parse([line(f"{prefix}{word('10.77.0.13')}:BC8E")])
    assert row.remote == "10.77.0.13"


def test_a_receiver_that_does_not_read_is_no_dead_link() -> None:
    """Its window is closed: the kernel probes it (timer 4), and is answered."""
    assert parse([line(f"{word('10.77.0.13')}:BC8E", timer="04", again=9)])[1] == ()


def test_of_sound_connections_only_the_own_address_is_told() -> None:
    sound = [line(f"{n:08X}:BC8E", timer="00", again=0) for n in range(1000)]
    once = line(f"{word('10.77.0.13')}:BC8E", again=AGAIN - 1)
    acknowledged = line(f"{word('10.77.0.13')}:BC8E", queued=0)
    assert parse([*sound, once, acknowledged]) == ({"10.77.0.12"}, ())


def test_only_established_connections_count() -> None:
    others = [line("00000000:0000", state="0A"), line("00000000:0000", state="06")]
    assert parse(others) == (set(), ())


@given(st.lists(st.text(max_size=120), max_size=5))
def test_nonsense_is_skipped(lines: list[str]) -> None:
    parse(lines)


@given(
    st.lists(
        st.sampled_from(["01", "", ":", "1:1", "zz:1", "FFFFFFFF:F", "-0000001:1", "F" * 32 + ":0"])
    )
)
def test_nonsense_in_a_field_is_skipped(fields: list[str]) -> None:
    parse([" ".join(fields), " ".join(["0:", *fields[:2], "01", *fields[2:], *["01"] * 9])])


def test_a_process_with_sound_connections_has_no_dead_ones() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0],
    ):
        near.sendall(b"x")
        links, addresses = Tables().of(os.getpid())
    assert links == ()
    assert "127.0.0.1" not in addresses


def test_a_connection_whose_other_side_hears_nothing_is_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        server.accept()[0] as far,
    ):
        drop_incoming(far)
        near.sendall(b"x" * 96)
        end = time.monotonic() + 20
        while not (links := Tables().of(os.getpid())[0]):
            assert time.monotonic() < end
            time.sleep(0.1)
        (link,) = links
        assert link.local == f"127.0.0.1:{near.getsockname()[1]}"
        assert link.remote == f"127.0.0.1:{far.getsockname()[1]}"
        assert link.queued == 96
        assert link.again >= AGAIN


def test_a_process_that_is_gone_has_none() -> None:
    assert Tables().of(2**30) == ((), ())
