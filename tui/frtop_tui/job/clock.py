"""Offsets between the clocks of hosts and ours, with their errors; and timers.

An update cannot arrive before it was sent, so each one bounds the offset from above. A time request
gives both bounds: the host read its clock between our sending and receiving.
The best pair of bounds stays in use and widens as clocks drift. A pair that contradicts it
shows that a clock jumped: a virtual machine was moved, a laptop slept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

DRIFT: Final = 50e-6
"""Largest relative drift between two clocks without synchronisation."""
STEP_NS: Final = 200_000
"""Offsets change in steps, so that views are not rebuilt for every microsecond."""
DOUBT_NS: Final = 1_000_000_000
"""If an update seems to have taken this long, the host's clock may have stopped."""
GUESS_WINDOW_NS: Final = 5_000_000_000
"""Within this time some updates come with little delay."""
_GUESS_STEP_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the offset at `at_ns` on our clock."""

    low: int
    high: int
    at_ns: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def slack(self, now_ns: int) -> int:
        """The possible drift since then, in ns."""
        return int(max(0, now_ns - self.at_ns) * DRIFT)

    def error(self, now_ns: int) -> int:
        """Half the width of the bounds, plus the possible drift since, in ns."""
        return (self.high - self.low + 1) // 2 + self.slack(now_ns)

    def contradicts(self, other: Bounds) -> bool:
        """Whether the newer `other` cannot be explained by drift."""
        slack = self.slack(other.at_ns)
        return other.low > self.high + slack or other.high < self.low - slack


@dataclass(slots=True)
class _Guess:
    """The offset from the least delayed recent update, until a time request is answered."""

    offset_ns: int
    least_ns: int
    since_ns: int

    def hear(self, seen: int, now_ns: int) -> None:
        self.least_ns = min(self.least_ns, seen)
        over = now_ns - self.since_ns >= GUESS_WINDOW_NS
        if (over or self.least_ns < self.offset_ns) and (
            abs(self.least_ns - self.offset_ns) > _GUESS_STEP_NS
        ):
            self.offset_ns = self.least_ns
        if over:
            self.least_ns, self.since_ns = seen, now_ns


@dataclass(slots=True)
class HostClock:
    """A host's clock, shared by all records of its ranks.

    `offset` added to the host's monotonic times gives ours, in ns.
    """

    offset: int = 0
    last_ns: int = 0  # the host's own time of its last update
    reported_ns: int = 0  # when it arrived, on the operator's clock
    as_of_ns: int = 0  # when it was sent, on the operator's clock; if unknown, when it arrived
    silent: bool = False
    doubted: bool = False  # the host should be asked for its time now
    anchor_ns: int = 0  # the host's wall clock minus its monotonic clock
    _known: bool = False
    _guess: _Guess | None = field(default=None, repr=False)
    _best: Bounds | None = field(default=None, repr=False)

    def hear(self, monotonic_ns: int, now_ns: int) -> None:
        """Takes in an update sent at the host's `monotonic_ns` and received at our `now_ns`."""
        self._bound(monotonic_ns, now_ns)
        sent_ns = monotonic_ns + self.offset if self._best is not None else now_ns
        self.as_of_ns = max(self.as_of_ns, min(sent_ns, now_ns))

    def _bound(self, monotonic_ns: int, now_ns: int) -> None:
        self.last_ns = max(self.last_ns, monotonic_ns)
        self.reported_ns = max(self.reported_ns, now_ns)
        seen = now_ns - monotonic_ns
        if self._best is not None and seen < self._best.low - self._best.slack(now_ns):
            self._best = self._guess = None  # received before it was sent: a clock jumped
            self._known = False
            self.doubted = True
        if self._guess is None:
            self._guess = _Guess(seen, seen, now_ns)
        self._guess.hear(seen, now_ns)
        if self._best is None:
            self.offset, self._known = self._guess.offset_ns, True
            return
        if seen < self._best.high:
            self._best = Bounds(self._best.low, max(seen, self._best.low), self._best.at_ns)
            self._settle()
        if seen - self.offset > DOUBT_NS:
            self.doubted = True

    def measure(self, sent_ns: int, received_ns: int, host_ns: int) -> None:
        """Takes in a measurement: the host read `host_ns` between `sent_ns` and `received_ns`."""
        new = Bounds(sent_ns - host_ns, received_ns - host_ns, received_ns)
        best = self._best
        self.doubted = False
        if (
            best is not None
            and not best.contradicts(new)
            and best.error(received_ns) < new.error(received_ns)
        ):
            return
        self._best = new
        self._settle()

    def error(self, now_ns: int) -> int | None:
        """Largest error of `offset` in ns; None when it was never measured."""
        if self._best is None:
            return None
        return self._best.error(now_ns) + abs(self.offset - self._best.middle)

    def wall_offset(self, now_ns: int, wall_ns: int) -> int:
        """Added to the host's wall clock this gives ours, in ns."""
        return self.offset + (wall_ns - now_ns) - self.anchor_ns

    def forget(self) -> None:
        """Forgets the offset: another agent instance may mean a reboot."""
        self._guess = self._best = None
        self._known = False
        self.offset = self.last_ns = 0

    def _settle(self) -> None:
        best = self._best
        if best is None:
            return
        inside = best.low <= self.offset <= best.high
        if not (self._known and inside and abs(best.middle - self.offset) <= STEP_NS):
            self.offset, self._known = best.middle, True


class Timers:
    """Times at which something changes without a message, one per key.

    Firing early or twice is harmless: the key is merely checked again. Only timers that fire cost
    time, not those that are set.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._set: dict[int, int] = {}

    def set(self, key: int, at_ns: int) -> None:
        """Fires `key` at `at_ns`, or at an earlier time that was set before."""
        known = self._set.get(key)
        if known is None or at_ns < known:
            self._set[key] = at_ns
            heappush(self._heap, (at_ns, key))

    def due(self, now_ns: int) -> list[int]:
        """Removes and returns the keys whose time has come."""
        due = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, key = heappop(self._heap)
            if self._set.get(key) == at_ns:
                del self._set[key]
                due.append(key)
        return due

    def clear(self) -> None:
        self._heap.clear()
        self._set.clear()
