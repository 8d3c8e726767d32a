"""Interfaces between the parts of an agent: its channel, clocks, log and black boxes.

Two channels have this form: ZeroMQ (`sockets`), and a pipe (`frtop_probe.pipe`), whose agent has
no keys, files or black boxes.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from frtop_probe import wire
from frtop_probe.agent.rights import Operator, Rights
from frtop_probe.proc.kernel_files import printable

MAX_LINE: Final = 4000
"""Bytes of a line in the log: if a pipe has room at all, it has room for 4,096."""


class OperatorChannel(Protocol):
    """Sends updates to all operators; exchanges requests and responses with each, as in `wire`."""

    @property
    def rights(self) -> Rights: ...

    @property
    def last_sign(self) -> float:
        """When an operator last sent something other than a request, on the monotonic clock."""

    def publish(self, frame: bytes) -> None:
        """Sends an update, or drops it: it never waits."""

    async def receive(self) -> tuple[Operator, bytes]:
        """Waits for a request from a sender that may connect."""

    async def send(self, operator: Operator, frame: bytes) -> None:
        """Sends a response; if the operator has left, it is lost."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks of this host, in ns: monotonic to order events, wall time for people."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def now(cls) -> ClockReading:
        return cls(time.monotonic_ns(), time.time_ns())


MakeUpdate = Callable[[tuple[wire.RankUpdate, ...], ClockReading | None], wire.Update]
"""Makes a full update of these ranks, at a given time or that of the last tick."""


class Boxes(Protocol):
    """Writes black boxes."""

    gauge_history: Callable[[], wire.GaugeHistory] | None
    """Returns the history of the host's gauges."""
    gauge_minutes: Callable[[int], wire.GaugeHistory | None]
    """Returns the gauges of each minute from a time on."""

    def tick(self, now_ns: int) -> None: ...

    async def finish(self, tick: Callable[[], None], end: float) -> None:
        """Completes boxes before the agent leaves, until `end` on the monotonic clock."""


def log(text: str) -> None:
    """Writes a line to the agent's log, which is standard error; drops it if nobody reads that."""
    with suppress(OSError, ValueError):
        line = printable(text, MAX_LINE).encode("ascii", "backslashreplace")[:MAX_LINE].decode()
        if _has_room():
            sys.stderr.write(f"frtop agent: {line}\n")
            sys.stderr.flush()


def _has_room() -> bool:
    """Whether a line fits into standard error now, so that writing does not wait."""
    try:
        return bool(select.select((), (sys.stderr,), (), 0)[1])
    except (OSError, ValueError):  # not a file
        return True
