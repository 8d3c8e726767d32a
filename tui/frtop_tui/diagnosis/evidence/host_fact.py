"""One fact about a host that is out of the ordinary, and since when: by its gauges.

A fact is no verdict: a host may be starved, and its ranks be as fast as the others. It says what
could explain a rank that is slow, or an op that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges

FactKind = Literal[
    "cpu pressure",  # tasks wait for a processor, which are all busy
    "cpu stolen",  # the machine below this virtual one gives its processors to others
    "memory pressure",
    "io pressure",
    "memory grows",  # that of a rank, without a pause
    "held back",  # a cgroup has used its share of processors in some of its periods
    "out of memory",  # the kernel has killed for want of memory
    "disk full",
    "disk silent",  # a file system does not answer
    "nic saturated",
    "retransmits",  # of what is sent over TCP much is lost
    "link errors",
    "link down",
    "gpu slow",  # its clocks are held down
    "gpu shared",  # somebody else computes on it
    "gpu error",  # an XID, or it cannot be read
]
CAUSES: Final[dict[FactKind, str]] = {
    "cpu pressure": "starved",
    "cpu stolen": "starved",
    "memory pressure": "starved",
    "io pressure": "data",
    "held back": "starved",
    "disk silent": "data",
    "nic saturated": "network",
    "retransmits": "network",
    "link errors": "network",
    "link down": "network",
    "gpu slow": "throttled",
    "gpu shared": "neighbour",
}
"""The cause of *slow* that a fact would be evidence of; some are of none."""
SHARES: Final[frozenset[FactKind]] = frozenset({
    "cpu pressure", "cpu stolen", "held back", "memory pressure", "io pressure",
})  # fmt: skip
"""Facts whose value is a share of the time, in permille."""


class HostFact(Struct, frozen=True):
    """What is out of the ordinary about one subject.

    `keys` are those of the ranks it concerns, none for all of the host. `since_ns` is by the host's
    clock, 0 where no history is known; with `at_least` it was so already when that begins.
    `value` is compared with `limit`; their unit goes with the kind. `bits` are NVML's reasons.
    """

    kind: FactKind
    subject: str
    keys: tuple[int, ...] = ()
    value: int = 0
    limit: int = 0
    since_ns: int = 0
    at_least: bool = False
    bits: int = 0
    text: str = ""  # what the subject says of it, in its own words

    @property
    def most(self) -> float:
        """At most which share of the time it can cost; 1 where its value says nothing of that."""
        return self.value / 1000 if self.kind in SHARES else 1.0

    @property
    def cause(self) -> str:
        """The cause of *slow* that it is evidence of, "" for none."""
        return CAUSES.get(self.kind, "")


def since(
    gauges: HostGauges, subject: GaugedSubject, gauge: str, holds: Callable[[int], bool]
) -> tuple[int, bool]:
    """Since when a gauge has been so, and whether it was already when the history begins.

    A gap in the history, in which it was not known, ends what is known to have been so.
    """
    values, times = gauges.past(subject, gauge), gauges.past_times()
    if len(values) != len(times):
        return 0, False
    begin = 0
    for value, at_ns in zip(reversed(values), reversed(times), strict=True):
        if value == UNKNOWN or not holds(value):
            return begin, False
        begin = at_ns
    return begin, bool(begin)


def risen(gauges: HostGauges, subject: GaugedSubject, gauge: str) -> tuple[int, int]:
    """By how much a counter rose within the history, and when it last did; (0, 0) if it did not."""
    values, times = gauges.past(subject, gauge), gauges.past_times()
    if len(values) != len(times):
        return 0, 0
    by = last_ns = 0
    before: int | None = None
    for value, at_ns in zip(values, times, strict=True):
        if value == UNKNOWN:
            continue
        if before is not None and value > before:
            by, last_ns = by + value - before, at_ns
        before = value
    newest = subject.values.get(gauge)
    if before is not None and newest is not None and newest > before:
        by, last_ns = by + newest - before, gauges.at_ns
    return by, last_ns
