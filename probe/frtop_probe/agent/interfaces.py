"""What an agent's service is put together from: how it is reached, who may do what, black boxes.

Two channels have this form: ZeroMQ (`sockets`), and a pipe (`frtop_probe.pipe`), whose agent has
no keys, no files and no black boxes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from frtop_probe import wire


@dataclass(frozen=True, slots=True)
class Operator:
    """The sender of a request: a connection, and the key that its handshake has proved.

    On a pipe there is one connection and no key: both are "".
    """

    connection: bytes
    key: bytes


class Rights(Protocol):
    """Who may look, and who may act."""

    @property
    def read_only(self) -> bool:
        """Whether nobody may act, whatever their right."""

    @property
    def notes(self) -> tuple[str, ...]: ...

    def take_notes_changed(self) -> bool:
        """Whether `notes` have changed since the last call."""

    def is_owner(self, key: bytes) -> bool: ...

    async def right(self, key: bytes) -> Literal["read", "act"] | None:
        """The right of a key as of now; None if it is not admitted."""

    def set_read_only(self, connection: bytes, key: bytes) -> None:
        """From now on this connection may only read."""

    def is_read_only(self, connection: bytes, key: bytes) -> bool: ...

    def admit_command(self, key: bytes) -> str:
        """What the jobs' owner types to give this key more rights."""


class OperatorChannel(Protocol):
    """Updates to all operators, requests from and responses to each. Frames as in `wire`."""

    @property
    def admission(self) -> Rights: ...

    @property
    def last_sign(self) -> float:
        """When an operator last gave a sign other than a request, on the monotonic clock."""

    def publish(self, frame: bytes) -> None:
        """Sends an update, or drops it: it never waits."""

    async def receive(self) -> tuple[Operator, bytes]:
        """Waits for a request, of a sender who may connect."""

    async def send(self, operator: Operator, frame: bytes) -> None:
        """Sends a response; one to an operator that has left is lost."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks of this host, in ns: monotonic to order events, wall time for people."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def now(cls) -> ClockReading:
        return cls(time.monotonic_ns(), time.time_ns())


MakeUpdate = Callable[[tuple[wire.RankUpdate, ...], ClockReading | None], wire.Update]
"""Makes a full update of these ranks, as of a given time or of the last tick."""


class Boxes(Protocol):
    """Writes black boxes."""

    gauge_history: Callable[[], wire.GaugeHistory] | None
    """What they have of the host's gauges."""

    def tick(self, now_ns: int) -> None: ...

    async def finish(self, tick: Callable[[], None], end: float) -> None:
        """Completes boxes before the agent leaves, until `end` on the monotonic clock."""
