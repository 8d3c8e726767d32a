"""Hosts are asked for their time a few times at once, then every few seconds."""

from __future__ import annotations

from connect.fakes import FakeConnections, S
from frtop_probe import wire
from frtop_tui.connect.agent_requests import (
    DOUBTED_INTERVAL_NS,
    FIRST,
    INTERVAL_NS,
    LOST_NS,
    ClockRequests,
)
from frtop_tui.connect.request_tracker import RequestTracker


class Scene:
    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.measured: list[tuple[int, int]] = []
        self.clocks = ClockRequests(self.tracker, self.on_time)
        self.clocks.begin("n", S)

    def on_time(self, host: str, sent_ns: int, now: int, _: wire.TimeResponse) -> None:
        assert host == "n"
        self.measured.append((sent_ns, now))

    def update(self, now: int) -> None:
        self.tracker.update(now)
        self.clocks.update(now)

    def sent(self) -> int:
        return len(self.connections.sent)

    def respond(self, now: int, number: int = -1) -> None:
        request = self.connections.sent[number][1]
        self.tracker.receive("n", wire.TimeResponse(request.id, 0, 0), now)


def test_a_few_at_once_then_every_few_seconds() -> None:
    scene = Scene()
    scene.update(S)
    for n in range(FIRST):
        assert scene.sent() == n + 1
        scene.respond(S + n + 1)
        assert scene.measured[-1] == (S + n, S + n + 1)
    assert scene.sent() == FIRST
    scene.update(S + INTERVAL_NS - 1)
    assert scene.sent() == FIRST
    scene.update(S + INTERVAL_NS + FIRST)
    assert scene.sent() == FIRST + 1
    assert all(isinstance(request, wire.TimeRequest) for _, request in scene.connections.sent)


def test_agents_are_told_soon_which_ranks_are_shown() -> None:
    scene = Scene()
    scene.update(S)
    for n in range(FIRST):
        scene.respond(S + n)
    scene.clocks.show({"n": (3, 4)}, S + FIRST)
    scene.update(S + FIRST)
    scene.respond(2 * S)
    scene.clocks.show({"n": (3, 4)}, 3 * S)
    scene.update(3 * S)  # nothing new
    scene.clocks.show({}, 3 * S + 1)
    scene.update(3 * S + 1)
    assert [getattr(request, "shown", None) for _, request in scene.connections.sent] == [
        *[()] * FIRST, (3, 4), (),
    ]  # fmt: skip


def test_no_second_request_while_one_is_under_way() -> None:
    scene = Scene()
    scene.update(S)
    scene.update(S + LOST_NS - 1)
    assert scene.sent() == 1
    scene.update(S + LOST_NS)
    assert scene.sent() == 2


def test_a_response_after_the_timeout_is_no_measurement() -> None:
    scene = Scene()
    scene.update(S)
    scene.update(S + LOST_NS)
    scene.respond(S + LOST_NS, number=0)
    assert not scene.measured


def test_a_doubted_clock_is_asked_soon_but_not_all_the_time() -> None:
    scene = Scene()
    scene.update(S)
    for n in range(FIRST):
        scene.respond(S + n)
    before = scene.sent()
    for tenth in range(20):
        now = 2 * S + tenth * S // 10
        scene.clocks.hasten("n", now)
        scene.update(now)
        scene.respond(now)
    assert scene.sent() - before == 2 * S // DOUBTED_INTERVAL_NS


def test_a_forgotten_host_is_not_asked() -> None:
    scene = Scene()
    scene.clocks.forget("n")
    scene.clocks.hasten("n", S)
    scene.update(99 * S)
    assert not scene.connections.sent
