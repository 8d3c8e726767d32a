"""A port for a job's store: the one implementation for all tests."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

PORTS = range(12_000, 32_000)
"""Below those that the kernel gives to sockets that ask for none: between our look and the start
of the store gloo takes dozens of these."""


def free_port() -> int:
    """Returns a port on which nobody listens now."""
    choose = random.SystemRandom()
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = choose.choice(PORTS)
            probe.bind(("127.0.0.1", port))
            return port
