"""Whom an operator asks for ten minutes of gauges: hosts on the screen, and hosts in trouble."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.connect.gauge_histories import (
    AGAIN_NS,
    MOST_TROUBLED,
    POINTS,
    ROW_GAUGES,
    SEARCH_NS,
    SEARCHED,
    TROUBLED_AGAIN_NS,
    GaugeHistories,
)
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame
from screens.gauge_scenes import measured

NOW = 10**12


class Asker:
    """Histories with a tracker whose requests are answered at once, or never."""

    def __init__(self, *, answers: bool = True) -> None:
        self.sent: list[tuple[str, wire.Request]] = []
        self.answers = answers
        self.tracker = RequestTracker(self._send)
        self.histories = GaugeHistories(self.tracker)

    def _send(self, host: str, request: wire.Request) -> bool:
        self.sent.append((host, request))
        return True

    def update(self, frame: Frame, now: int) -> list[str]:
        """The hosts that were asked."""
        self.sent.clear()
        self.histories.update(frame, now)
        for host, request in list(self.sent) if self.answers else ():
            response = wire.GaugeHistoryResponse(request.id, host, wire.GaugeHistory())
            self.tracker.receive(host, response, now)
        return [host for host, _ in self.sent]


def test_hosts_on_the_screen_are_asked_again_and_again() -> None:
    asker, frame = Asker(), measured()
    assert asker.update(frame, NOW) == []
    asker.histories.show(("node2", "node9"))
    assert asker.update(frame, NOW) == ["node2"]  # there is no node9
    (_, request) = asker.sent[0]
    assert request == wire.GaugeHistoryRequest(request.id, points=POINTS)
    asker.histories.show(("node2", "node3"))
    assert asker.update(frame, NOW + 1) == ["node3"]
    (_, request) = asker.sent[0]
    assert request == wire.GaugeHistoryRequest(request.id, ROW_GAUGES, POINTS)
    asker.histories.show(("node3", "node2"))  # the cursor has moved
    assert asker.update(frame, NOW + 2) == ["node3", "node2"]
    asker.histories.show(("node2",))
    assert asker.update(frame, NOW + 3) == ["node2"]
    assert asker.update(frame, NOW + 4) == []
    assert asker.update(frame, NOW + 3 + AGAIN_NS) == ["node2"]
    asker.histories.show(())
    assert asker.update(frame, NOW + 9 * AGAIN_NS) == []


def test_a_host_in_trouble_is_asked_since_when_though_nobody_looks() -> None:
    asker, frame = Asker(), measured(5)
    assert asker.update(frame, NOW) == ["node5"]
    assert asker.update(frame, NOW + AGAIN_NS) == []
    assert asker.update(frame, NOW + TROUBLED_AGAIN_NS) == ["node5"]
    many = measured(*range(100), hosts=100)
    assert len(Asker().update(many, NOW)) == MOST_TROUBLED


def test_of_thousands_of_hosts_all_are_searched_in_turn() -> None:
    world = 2 * SEARCHED + 2
    last = measured(world - 1, hosts=world)
    asker = Asker()
    assert asker.update(last, NOW) == []
    assert asker.update(last, NOW + SEARCH_NS - 1) == asker.update(last, NOW + SEARCH_NS) == []
    assert asker.update(last, NOW + 2 * SEARCH_NS) == [f"node{world - 1}"]
    well = measured(hosts=world)
    for turn in range(3, 6):
        asker.update(well, NOW + turn * SEARCH_NS)
    assert asker.update(last, NOW + 2 * TROUBLED_AGAIN_NS) == []  # it was well when seen last


def test_who_does_not_answer_or_has_no_gauges_is_not_asked_twice() -> None:
    asker, frame = Asker(answers=False), measured()
    asker.histories.show(("node1", "node2"))
    older = replace(frame.hosts[2], gauges=None)
    frame = replace(frame, hosts=(frame.hosts[1], older))
    assert asker.update(frame, NOW) == ["node1"]
    assert asker.update(frame, NOW + 5 * AGAIN_NS) == []
    asker.tracker.update(NOW + 5 * AGAIN_NS)  # the deadline
    assert asker.update(frame, NOW + 5 * AGAIN_NS) == ["node1"]
