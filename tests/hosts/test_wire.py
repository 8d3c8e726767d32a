"""The cable that delays, reorders and loses, as a connection over it sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hosts.network import Network, obstacle

pytestmark = pytest.mark.long
ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(1 << 16):
        connection.sendall(data)
"""
ASKS = """
import json, socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
took = []
for _ in range(20):
    begin = time.monotonic()
    connection.sendall(b"x")
    connection.recv(1)
    took.append(time.monotonic() - begin)
sent = bytes(range(256)) * 1024
connection.sendall(sent)
got = b""
while len(got) < len(sent):
    got += connection.recv(1 << 16)
lines = open("/proc/net/snmp").read().splitlines()
names, values = (line.split() for line in lines if line.startswith("Tcp:"))
retransmitted = int(values[names.index("RetransSegs")])
print(json.dumps([sorted(took)[10], got == sent, retransmitted]))
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


def test_what_goes_through_is_late_or_lost_and_all_is_as_before_afterwards(pair: Network) -> None:
    there = pair.hosts["node1"]
    with subprocess.Popen(
        there.inside(sys.executable, "-c", ECHO), stdout=subprocess.PIPE, text=True
    ) as echo:
        assert echo.stdout is not None
        assert echo.stdout.readline() == "ready\n"

        def asked() -> tuple[float, bool, int]:
            said = pair.hosts["node0"].run(sys.executable, "-c", ASKS, there.address)
            found: Any = json.loads(said)
            return found[0], found[1], found[2]

        assert asked()[1:] == (True, 0)
        with pair.poor("node1", 20, 0, 0):
            median_s, is_whole, _ = asked()
        assert median_s >= 0.04
        assert is_whole
        before = asked()[2]
        with pair.poor("node1", 1, 1, 0.2):
            _, is_whole, again = asked()
        assert is_whole
        assert again > before
        assert asked()[0] < 0.04
        echo.kill()
