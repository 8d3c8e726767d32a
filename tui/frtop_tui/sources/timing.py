"""When hosts are asked for their time: a few times at once, then every few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.sources.line import Line

FIRST: Final = 3
"""Of so many in a row one came through quickly, as a rule."""
EVERY_NS: Final = 5_000_000_000
SOON_NS: Final = 500_000_000
"""Between two questions to a host whose clock is doubted."""
LOST_NS: Final = 15_000_000_000


@dataclass(slots=True)
class _Clock:
    left: int = FIRST  # still to be asked at once
    number: int = 0  # of the question under way, 0: none
    sent_ns: int = 0
    due_ns: int = 0


class Timing:
    """Belongs to the source's thread."""

    def __init__(self, line: Line, ids: Iterator[int]) -> None:
        self._line = line
        self._ids = ids
        self._clocks: dict[str, _Clock] = {}

    def begin(self, place: str, now: int) -> None:
        """An agent is there to be asked."""
        self._clocks[place] = _Clock(due_ns=now)

    def forget(self, place: str) -> None:
        self._clocks.pop(place, None)

    def hasten(self, place: str, now: int) -> None:
        """Its clock is doubted: asks soon."""
        clock = self._clocks.get(place)
        if clock is not None:
            clock.due_ns = min(clock.due_ns, max(now, clock.sent_ns + SOON_NS))

    def turn(self, now: int) -> None:
        for place, clock in self._clocks.items():
            under_way = clock.number and now - clock.sent_ns < LOST_NS
            if now >= clock.due_ns and not under_way:
                self._ask(place, clock, now)

    def heard(self, place: str, number: int, now: int) -> int | None:
        """An answer came: when it was asked for; None when it was not, or long ago."""
        clock = self._clocks.get(place)
        if clock is None or not number or clock.number != number:
            return None
        clock.number = 0
        sent = clock.sent_ns
        if clock.left:
            self._ask(place, clock, now)
        return sent

    def _ask(self, place: str, clock: _Clock, now: int) -> None:
        number = next(self._ids)
        if self._line.ask(place, wire.TimeRequest(number)):
            clock.number, clock.sent_ns, clock.due_ns = number, now, now + EVERY_NS
            clock.left = max(0, clock.left - 1)
