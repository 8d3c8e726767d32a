"""NCCL's settings of RAS, as a rank's environment has them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ENABLE: Final = "NCCL_RAS_ENABLE"
ADDRESS: Final = "NCCL_RAS_ADDR"
NAMES: Final = (ENABLE, ADDRESS)
DEFAULT_PORT: Final = 28028
LOOPBACK: Final = ("::1", "127.0.0.1")
"""What `localhost` may be; NCCL takes the first that the host's resolver names."""


@dataclass(frozen=True, slots=True)
class RasSettings:
    """Where RAS listens by its settings.

    `hosts` are addresses to try, without a look-up of names: () for a name, which only the kernel's
    table of listeners can resolve. `problem` says why the settings cannot be followed.
    """

    enabled: bool = True
    hosts: tuple[str, ...] = LOOPBACK
    port: int = DEFAULT_PORT
    problem: str = ""


def parse_settings(environment: Mapping[str, str]) -> RasSettings:
    """Parses the two variables as NCCL does: an integer of any base, and `host:port`."""
    enabled = _is_on(environment.get(ENABLE, ""))
    address = environment.get(ADDRESS, "")
    if not address:
        return RasSettings(enabled)
    host, _, port_text = address.rpartition(":")
    if not host or not port_text.isascii() or not port_text.isdecimal() or len(port_text) > 5:
        return RasSettings(enabled, problem=f"{ADDRESS}={address[:80]!r} is no address and port")
    port = int(port_text)
    if not 0 < port < 65536:
        return RasSettings(enabled, problem=f"{ADDRESS}={address[:80]!r} has no port")
    return RasSettings(enabled, _hosts(host), port)


def _is_on(text: str) -> bool:
    """Whether RAS is on: anything but a number 0 leaves it on, which is the default."""
    try:
        return int(text.strip(), 0) != 0
    except ValueError:
        return True


def _hosts(host: str) -> tuple[str, ...]:
    bare = host.removeprefix("[").removesuffix("]").partition("%")[0]
    if bare == "localhost":
        return LOOPBACK
    try:
        return (str(ipaddress.ip_address(bare)),)
    except ValueError:
        return ()
