"""Network interfaces: /sys/class/net, which is of the network namespace of whoever mounted it.

A driver may wait for its device when it is asked for its counters: see `hanging`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.host.subjects import SubjectReading, known, printable
from frtop_probe.proc.kernel_files import names_in, read_number, read_text

MAX_NICS: Final = 16
_ERRORS: Final = ("rx_errors", "tx_errors")
_DROPS: Final = ("rx_dropped", "tx_dropped")
_MEGABIT: Final = 125_000


class NicSource:
    """Interfaces that are up and have ever carried a byte, but for the loopback."""

    def __init__(self, sys: Path) -> None:
        self._folder = sys / "class/net"
        self._rates = Rates()

    def read(self, now_ns: int) -> tuple[SubjectReading, ...]:
        """A subject per interface, those of a device before those that are made of others."""
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
            speed = read_number(folder / "speed")  # -1, or an error, where there is none
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
