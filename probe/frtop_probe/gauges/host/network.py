"""Network interfaces (/sys/class/net), and ports of InfiniBand and RoCE (/sys/class/infiniband).

/sys shows the network namespace in which it was mounted. A read of its counters may make a driver
wait for its device or firmware: see `hanging`. The code for InfiniBand follows the kernel's
Documentation/ABI/stable/sysfs-class-infiniband; nobody has tried it on such a device yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.readings import SubjectReading, known
from frtop_probe.proc.kernel_files import names_in, number, printable, read_number, read_text

MAX_NICS: Final = 16
_ERRORS: Final = ("rx_errors", "tx_errors")
_DROPS: Final = ("rx_dropped", "tx_dropped")
_MEGABIT: Final = 125_000
NO_INFINIBAND: Final = "no InfiniBand"
MAX_PORTS: Final = 32
_PORT_ERRORS: Final = (
    "symbol_error",
    "port_rcv_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
_WORD: Final = 4
"""The data counters count octets divided by 4."""
_RATE: Final = re.compile(r"(\d{1,5})(\.\d)? Gb/sec")
_STATE: Final = re.compile(r"(\d{1,2}): ([A-Z_]{1,20})")


class NicSource:
    """Interfaces that are up and have carried a byte, except the loopback."""

    def __init__(self, sys: Path) -> None:
        self._folder = sys / "class/net"
        self._rates = Rates()

    def read(self, now_ns: int) -> tuple[SubjectReading, ...]:
        """Returns a subject per interface: devices first, then virtual ones such as bonds."""
        names = [name for name in names_in(self._folder) if name != "lo"]
        names.sort(key=lambda name: not (self._folder / name / "device").exists())
        return tuple(self._interfaces(names, now_ns))[:MAX_NICS]

    def _interfaces(self, names: list[str], now_ns: int) -> Iterator[SubjectReading]:
        for name in names:
            folder = self._folder / name
            counters = folder / "statistics"
            came, went = (read_number(counters / f"{way}_bytes") for way in ("rx", "tx"))
            state = read_text(folder / "operstate", 64).strip()
            if not (came or went) or state in ("down", "notpresent", "lowerlayerdown"):
                continue
            speed = read_number(folder / "speed")  # -1 or an error if it has no speed
            yield SubjectReading(
                "nic",
                printable(name),
                known(
                    speed=speed * _MEGABIT if speed else None,
                    received=self._rates.per_second((name, "in"), came, now_ns),
                    sent=self._rates.per_second((name, "out"), went, now_ns),
                    errors=_sum(counters, _ERRORS),
                    drops=_sum(counters, _DROPS),
                ),
            )


def _sum(folder: Path, names: tuple[str, ...]) -> int | None:
    values = [read_number(folder / name) for name in names]
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def parse_rate(text: str) -> int | None:
    """Parses a line like `400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)` into bytes per second."""
    found = _RATE.match(text)
    if found is None:
        return None
    tenths = int(found[1]) * 10 + int((found[2] or ".0")[1:])
    return tenths * 100_000_000 // 8


def parse_state(text: str) -> tuple[int | None, str]:
    """Returns the number and the word of a line like `4: ACTIVE`."""
    found = _STATE.match(text)
    return (int(found[1]), found[2]) if found is not None else (None, "")


class InfinibandSource:
    """All ports of all devices."""

    def __init__(self, sys: Path) -> None:
        self._folder = sys / "class/infiniband"
        self._rates = Rates()

    def read(self, now_ns: int) -> tuple[SubjectReading, ...]:
        """Returns a subject per port; none if there is no device."""
        return tuple(self._ports(now_ns))

    def _ports(self, now_ns: int) -> Iterator[SubjectReading]:
        left = MAX_PORTS
        for device in names_in(self._folder):
            for port in names_in(self._folder / device / "ports"):
                if number(port) is None or not left:
                    continue
                left -= 1
                yield self._port(device, port, now_ns)

    def _port(self, device: str, port: str, now_ns: int) -> SubjectReading:
        folder = self._folder / device / "ports" / port
        counters = folder / "counters"
        came, went = (read_number(counters / f"port_{way}_data") for way in ("rcv", "xmit"))
        state, word = parse_state(read_text(folder / "state", 64))
        key = f"{device}:{port}"
        layer = read_text(folder / "link_layer", 64).strip()
        return SubjectReading(
            "infiniband",
            printable(key),
            known(
                state=state,
                speed=parse_rate(read_text(folder / "rate", 64)),
                received=self._rates.per_second((key, "in"), came, now_ns, times=_WORD),
                sent=self._rates.per_second((key, "out"), went, now_ns, times=_WORD),
                errors=_sum(counters, _PORT_ERRORS),
                link_downed=read_number(counters / "link_downed"),
                discards=read_number(counters / "port_xmit_discards"),
                waits=self._rates.per_second(
                    (key, "wait"), read_number(counters / "port_xmit_wait"), now_ns
                ),
            ),
            detail=printable(" ".join(filter(None, (layer, word)))),
        )  # fmt: skip
