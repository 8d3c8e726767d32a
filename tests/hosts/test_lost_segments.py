"""What is lost between hosts shows in what the sender's TCP sends again, and in no interface."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.network import Network, obstacle

SINK = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv(1 << 20):
    pass
"""
SENDER = """
import json, socket, sys, time
from pathlib import Path
from frtop_probe.gauges.host.network import NicSource
from frtop_probe.gauges.host.figures import TcpSource
tcp, nics = TcpSource(Path("/proc")), NicSource(Path("/sys"))
tcp.read(time.monotonic_ns())
connection = socket.create_connection((sys.argv[1], 7000))
until = time.monotonic() + 20
found = {}
while not found and time.monotonic() < until:
    for _ in range(20):
        connection.sendall(bytes(1 << 16))
    found = tcp.read(time.monotonic_ns())
errors = [one.values.get("errors") for one in nics.read(time.monotonic_ns())]
print(json.dumps([found, errors]))
"""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Network]:
    if why := obstacle():
        pytest.skip(why)
    network = Network(tmp_path, ("node0", "node1"), (0, 0))
    try:
        yield network
    finally:
        network.close()


def sent_again(pair: Network) -> tuple[int, list[int | None]]:
    """Permille of the segments that node0 sends again to node1, and errors of its interfaces."""
    there = pair.hosts["node1"]
    with subprocess.Popen(
        there.inside(sys.executable, "-c", SINK), stdout=subprocess.PIPE, text=True
    ) as sink:
        assert sink.stdout is not None
        assert sink.stdout.readline() == "ready\n"
        said = pair.hosts["node0"].run(sys.executable, "-c", SENDER, there.address)
        sink.kill()
    found, errors = json.loads(said)
    return found["retransmits"], errors


def test_lost_segments_are_seen_by_the_sender(pair: Network) -> None:
    assert sent_again(pair)[0] < 10
    with pair.lossy("node1", "20mbit"):
        permille, errors = sent_again(pair)
    assert permille > 20
    assert not any(errors)
