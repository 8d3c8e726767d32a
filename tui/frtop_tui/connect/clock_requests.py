"""Asks hosts for their time: a few times at once, then every few seconds.

The same requests tell the agents which ranks are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker

FIRST: Final = 3
"""Requests in a row at first: one of them gets through quickly, as a rule."""
INTERVAL_NS: Final = 5_000_000_000
DOUBTED_INTERVAL_NS: Final = 500_000_000
"""Between two requests to a host whose clock may have jumped."""
LOST_NS: Final = 15_000_000_000

NOTHING: Final[Mapping[str, tuple[int, ...]]] = {}

OnTime = Callable[[str, int, int, wire.TimeResponse], None]
"""Takes the host, our time before and after, and what the host's clocks said."""


@dataclass(slots=True)
class _Clock:
    burst: int = FIRST  # requests that still follow at once
    under_way: int = 0  # id of the request, 0 for none
    sent_ns: int = 0
    due_ns: int = 0


class ClockRequests:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker, on_time: OnTime) -> None:
        self._tracker = tracker
        self._on_time = on_time
        self._clocks: dict[str, _Clock] = {}
        self._shown: Mapping[str, tuple[int, ...]] = NOTHING

    def begin(self, host: str, now: int) -> None:
        """Starts to measure the clock of a host that was just connected."""
        self.forget(host)
        self._clocks[host] = _Clock(due_ns=now)

    def forget(self, host: str) -> None:
        """Stops to measure a host."""
        if (clock := self._clocks.pop(host, None)) is not None:
            self._tracker.drop(clock.under_way)

    def hasten(self, host: str, now: int) -> None:
        """Asks soon: the host's clock is doubted."""
        clock = self._clocks.get(host)
        if clock is not None:
            clock.due_ns = min(clock.due_ns, max(now, clock.sent_ns + DOUBTED_INTERVAL_NS))

    def show(self, shown: Mapping[str, tuple[int, ...]], now: int) -> None:
        """Takes the keys of the ranks that are shown now, by host; tells who is concerned."""
        before, self._shown = self._shown, shown
        for host in before.keys() | shown.keys():
            clock = self._clocks.get(host)
            if clock is not None and before.get(host, ()) != shown.get(host, ()):
                clock.due_ns = min(clock.due_ns, now)  # at once: the job may be about to end

    def update(self, now: int) -> None:
        """Asks every host whose turn it is."""
        for host, clock in self._clocks.items():
            if now >= clock.due_ns and not clock.under_way:
                self._ask(host, clock, now)

    def _ask(self, host: str, clock: _Clock, now: int) -> None:
        received = partial(self._received, host, clock)
        request = wire.TimeRequest(0, self._shown.get(host, ()))
        number = self._tracker.request_now(host, request, received, now, timeout_ns=LOST_NS)
        if number:
            clock.under_way, clock.sent_ns, clock.due_ns = number, now, now + INTERVAL_NS
            clock.burst = max(0, clock.burst - 1)

    def _received(self, host: str, clock: _Clock, response: wire.Response, now: int) -> None:
        clock.under_way = 0
        if not isinstance(response, wire.TimeResponse):
            return
        self._on_time(host, clock.sent_ns, now, response)
        if clock.burst:
            self._ask(host, clock, now)
