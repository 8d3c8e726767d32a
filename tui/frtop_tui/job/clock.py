"""A host's clocks against ours: how far apart they are, and how sure that is.

Two things are known. An update cannot arrive before it was sent, so every one is an upper
bound of the offset. A question and its answer are a bound on both sides: the host read its
clock between the moment we asked and the moment we heard. The best such pair stays in use,
and grows less sure as clocks drift; one that contradicts it says that a clock jumped: a
virtual machine was moved, a laptop slept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DRIFT: Final = 50e-6
"""By so much of the time that passes may two clocks come apart that nobody disciplines."""
STEP_NS: Final = 200_000
"""Offsets move in steps, so that views need not be rebuilt for every microsecond."""
DOUBT_NS: Final = 1_000_000_000
"""An update that seems to have taken so long may be one of a clock that stood still."""
GUESS_WINDOW_NS: Final = 5_000_000_000
"""Some updates of these seconds came without much delay."""
_GUESS_STEP_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between these lies the offset, as of `at_ns` on our clock."""

    low: int
    high: int
    at_ns: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def slack(self, now_ns: int) -> int:
        """How far the clocks may have drifted apart since."""
        return int(max(0, now_ns - self.at_ns) * DRIFT)

    def error(self, now_ns: int) -> int:
        """Half of what was between question and answer, and the drift since."""
        return (self.high - self.low + 1) // 2 + self.slack(now_ns)

    def contradicts(self, other: Bounds) -> bool:
        """Whether no drift explains `other`, which is newer."""
        slack = self.slack(other.at_ns)
        return other.low > self.high + slack or other.high < self.low - slack


@dataclass(slots=True)
class _Guess:
    """The least delayed update of late: an offset for as long as nobody has answered."""

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
    """What a rank needs to know of its host's clock; shared by all ranks of the host.

    `offset` added to the host's monotonic times gives ours.
    """

    offset: int = 0
    last_ns: int = 0  # the host's own time of its last update
    heard_ns: int = 0  # the operator's time of it
    silent: bool = False
    doubted: bool = False  # the host should be asked for its time now
    anchor_ns: int = 0  # of the host: its wall clock minus its monotonic one
    _known: bool = False
    _guess: _Guess | None = field(default=None, repr=False)
    _best: Bounds | None = field(default=None, repr=False)

    def hear(self, monotonic_ns: int, now_ns: int) -> None:
        """An update of the host's `monotonic_ns` has come in at our `now_ns`."""
        self.last_ns = max(self.last_ns, monotonic_ns)
        self.heard_ns = max(self.heard_ns, now_ns)
        seen = now_ns - monotonic_ns
        if self._best is not None and seen < self._best.low - self._best.slack(now_ns):
            self._best = self._guess = None  # it came before it was sent: a clock jumped
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
        """The host read `host_ns` between our `sent_ns` and `received_ns`."""
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
        """By so much `offset` may be wrong; None when it was only guessed."""
        if self._best is None:
            return None
        return self._best.error(now_ns) + abs(self.offset - self._best.middle)

    def wall_offset(self, now_ns: int, wall_ns: int) -> int:
        """What added to the host's wall clock gives ours."""
        return self.offset + (wall_ns - now_ns) - self.anchor_ns

    def forget(self) -> None:
        """Another agent instance may be another boot: nothing of the old clock holds."""
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
