"""Asks hosts for the last ten minutes of their gauges: hosts on the screen, and hosts in trouble.

The newest figures come with updates. A history costs some kilobytes, so we fetch it only if
somebody looks at it, or if a fact needs it to say when it began.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker, in_state_already
from frtop_tui.diagnosis.evidence.host_facts import FACT_GAUGES, facts_of_host
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import HostView

POINTS: Final = 60
"""One point per ten seconds: as many as a graph has cells."""
SEARCH_NS: Final = 500_000_000
SEARCHED: Final = 128
"""Hosts that are searched for trouble each time: there may be thousands, and each takes 0.3 ms."""
AGAIN_NS: Final = 10_000_000_000
"""Between two requests to a host that is on the screen."""
TROUBLED_AGAIN_NS: Final = 30_000_000_000
"""The same for a host in trouble that is not on the screen."""
ROW_GAUGES: Final = ("cpu", *FACT_GAUGES)
"""The gauges for a row of the table. The first host shown has all gauges."""
MOST_SHOWN: Final = 64
MOST_TROUBLED: Final = 16
"""Number of hosts in trouble with fresh histories; for the others, screens show only the facts."""


class GaugeHistories:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._shown: tuple[str, ...] = ()
        self._asked: dict[tuple[str, bool], int] = {}
        """When each host was asked last, for all of its gauges or for some."""
        self._under_way: dict[str, int] = {}
        self._frame: Frame | None = None
        self._reported: dict[str, HostView] = {}  # in it, with gauges
        self._troubled: dict[str, None] = {}
        self._search_ns = self._place = 0

    def show(self, hosts: Iterable[str]) -> None:
        """Keeps these hosts' histories fresh: all gauges of the first, a row's of the others."""
        self._shown = tuple(hosts)[:MOST_SHOWN]

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks each host whose turn it is. An agent without gauges is never asked."""
        if frame is None:
            return
        if frame is not self._frame:
            self._frame = frame
            self._reported = {
                h.name: h for h in frame.hosts if h.state == "reporting" and h.gauges is not None
            }
        for name in self._shown:
            if name in self._reported:
                self._ask(name, now, AGAIN_NS, in_full=name == self._shown[0])
        if now >= self._search_ns:
            self._search_ns = now + SEARCH_NS
            self._search()
        left = (one for one in self._troubled if one not in self._shown and one in self._reported)
        for name in islice(left, MOST_TROUBLED):
            self._ask(name, now, TROUBLED_AGAIN_NS, in_full=False)

    def _search(self) -> None:
        """Looks for trouble at the next hosts."""
        end = self._place + SEARCHED
        for name in islice(self._reported, self._place, end):
            self._troubled.pop(name, None)
            if facts_of_host(self._reported[name]):
                self._troubled[name] = None
        self._place = end if end < len(self._reported) else 0

    def _ask(self, host: str, now: int, again_ns: int, *, in_full: bool) -> None:
        asked = self._asked.get((host, in_full))
        if asked is not None and now - asked < again_ns:
            return
        request = wire.GaugeHistoryRequest(0, () if in_full else ROW_GAUGES, POINTS)
        if self._tracker.request_now(
            host, request, in_state_already, now, under_way=self._under_way, about=host
        ):
            self._asked[host, in_full] = now
            self._asked.pop((host, not in_full), None)
