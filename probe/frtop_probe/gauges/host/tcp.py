"""What TCP had to send again: /proc/net/snmp, of the network namespace of whoever reads it.

Interfaces count what they themselves lose. What is lost on the way, by a switch or a cable beyond
the next one, shows only in what the sender's TCP repeats. RDMA has no part in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.host.subjects import known
from frtop_probe.proc.kernel_files import number, read_text

MIN_SEGMENTS: Final = 500
"""Of fewer that were sent since the last reading, a few that were lost make no share."""


def parse_snmp(text: str) -> dict[str, int]:
    """The counters of TCP by their names: of two lines that begin with `Tcp:`, one has these."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2:
        return {}
    values = (number(word) for word in lines[1])
    return {name: v for name, v in zip(lines[0], values, strict=False) if v is not None}


class TcpSource:
    """The share of segments that were sent again since the last reading."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._rates = Rates()

    def read(self, now_ns: int) -> dict[str, int]:
        """Gauges of the host, in permille; none where too little was sent to tell."""
        counters = parse_snmp(read_text(self._proc / "net/snmp"))
        sent, again = (
            self._rates.rise(name, counters.get(name), now_ns)
            for name in ("OutSegs", "RetransSegs")
        )
        if sent is None or again is None or sent[0] + again[0] < MIN_SEGMENTS:
            return {}
        return known(retransmits=1000 * again[0] // (sent[0] + again[0]))
