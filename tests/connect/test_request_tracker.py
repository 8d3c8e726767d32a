"""Every request ends exactly once: with the agent's response, or with an error of ours."""

from __future__ import annotations

from typing import get_args

import pytest

from connect.fakes import FakeConnections, S
from frtop_probe import wire
from frtop_tui.connect.request_tracker import (
    BUSY_RETRY_NS,
    MAX_RESPONSE_NS,
    RESPONSE_NS,
    RequestTracker,
)

TIMEOUT_NS = round(wire.RankRequest.timeout_s * 1e9)


class Scene:
    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.responses: list[wire.Response] = []

    def record(self, response: wire.Response, _now: int) -> None:
        self.responses.append(response)

    def request(self, agent: int | None = None, *, once: bool = False) -> int:
        request = wire.NativeStacksRequest(0, 7) if once else wire.HistoryRequest(0, 7)
        return self.tracker.request("n", request, self.record, S, agent=agent)

    def request_now(self, now: int = S) -> int:
        return self.tracker.request_now("n", wire.StateRequest(0), self.record, now)

    def error(self) -> wire.Error:
        (response,) = self.responses
        assert isinstance(response, wire.Error)
        return response


@pytest.fixture
def scene() -> Scene:
    return Scene()


def history(number: int) -> wire.HistoryResponse:
    return wire.HistoryResponse(number, "n", 7, wire.History())


def test_a_response_is_handed_over_once(scene: Scene) -> None:
    response = history(scene.request())
    for _ in range(2):
        scene.tracker.receive("n", response, 2 * S)
    scene.tracker.update(99 * S)
    assert scene.responses == [response]


def test_only_what_was_asked_for_is_a_response(scene: Scene) -> None:
    number = scene.request()  # the history of rank 7
    update = wire.Update("n", "x", 1, S, S)
    others: list[wire.Response] = [
        wire.StateResponse(number, update), wire.TensorsResponse(number, "n", 7, S),
        wire.HistoryResponse(number, "n", 8, wire.History()), history(number + 1),
    ]  # fmt: skip
    for other in others:
        assert not scene.tracker.asked("n", other)
        scene.tracker.receive("n", other, 2 * S)
    assert not scene.tracker.asked("m", history(number))
    scene.tracker.receive("m", history(number), 2 * S)
    assert not scene.responses
    assert scene.tracker.asked("n", history(number))
    scene.tracker.receive("n", history(number), 2 * S)
    assert scene.responses == [history(number)]


def test_each_request_has_a_response_of_its_own_kind() -> None:
    def tags(kinds: object) -> set[object]:
        return {one.__struct_config__.tag for one in get_args(kinds)}

    assert tags(wire.Request) == tags(wire.Response) - {"refusal"}


def test_a_late_response_is_still_one_to_what_was_asked_once(scene: Scene) -> None:
    number = scene.request()
    scene.tracker.update(S + TIMEOUT_NS)
    assert scene.error().reason == "deadline"
    assert scene.tracker.asked("n", history(number))
    assert not scene.tracker.asked("n", history(number))


def test_an_error_of_the_agent_is_a_response(scene: Scene) -> None:
    error = wire.Error(scene.request(), "no such rank", "gone")
    scene.tracker.receive("n", error, 2 * S)
    assert scene.responses == [error]


def test_a_busy_agent_is_asked_again(scene: Scene) -> None:
    number = scene.request()
    scene.tracker.receive("n", wire.Error(number, "busy", "busy"), 2 * S)
    scene.tracker.update(2 * S + BUSY_RETRY_NS)
    assert [request.id for _, request in scene.connections.sent] == [number, number]
    assert not scene.responses


def test_a_request_is_sent_again_after_a_lost_connection(scene: Scene) -> None:
    scene.request()
    scene.tracker.disconnected("n", 2 * S)
    scene.tracker.identified("n", same=True)
    scene.connections.up = False
    scene.tracker.update(2 * S)
    scene.connections.up = True
    scene.tracker.update(3 * S)
    scene.tracker.update(4 * S)
    assert len(scene.connections.sent) == 2


@pytest.mark.parametrize("reason", ["busy", "words"])
def test_a_request_that_is_sent_once_ends_with_the_error(scene: Scene, reason: str) -> None:
    number = scene.request(once=True)
    error = wire.Error(number if reason == "busy" else 0, "no", reason)
    scene.tracker.receive("n", error, 2 * S)
    scene.tracker.update(3 * S)
    assert scene.responses == [error]
    assert len(scene.connections.sent) == 1


def test_a_request_that_is_sent_once_ends_with_the_connection(scene: Scene) -> None:
    scene.request(once=True)
    scene.tracker.disconnected("n", 2 * S)
    scene.tracker.identified("n", same=True)
    scene.tracker.update(3 * S)
    assert scene.error().reason == "lost"
    assert len(scene.connections.sent) == 1


@pytest.mark.parametrize(("up", "words"), [(True, "no response from n in 8 s"),
                                           (False, "n cannot be reached")])  # fmt: skip
def test_a_request_without_a_response_times_out(scene: Scene, up: bool, words: str) -> None:
    scene.connections.up = up
    scene.request()
    scene.tracker.update(S + TIMEOUT_NS - 1)
    assert not scene.responses
    scene.tracker.update(S + TIMEOUT_NS)
    assert scene.error().reason == "deadline"
    assert words in scene.error().text


def test_an_agent_that_cannot_read_the_request_ends_it(scene: Scene) -> None:
    scene.request()
    error = wire.Error(0, "older than the screen", "words")
    scene.tracker.receive("other", error, S)
    assert not scene.responses
    scene.tracker.receive("n", error, S)
    assert scene.responses == [error]


def test_a_dropped_request_has_no_end(scene: Scene) -> None:
    scene.tracker.drop(scene.request())
    scene.tracker.update(99 * S)
    assert not scene.responses


def test_a_request_with_keys_of_a_former_agent_is_never_sent(scene: Scene) -> None:
    scene.request()
    scene.connections.sent.clear()
    scene.tracker.disconnected("n", 2 * S)
    scene.tracker.update(2 * S)
    assert not scene.connections.sent  # which agent it is has not been said yet
    scene.tracker.identified("n", same=False)
    scene.tracker.update(3 * S)
    assert (scene.error().reason, scene.connections.sent) == ("gone", [])
    scene.request(agent=0)
    scene.tracker.update(4 * S)
    assert [type(response) for response in scene.responses] == [wire.Error] * 2
    scene.request(agent=scene.tracker.agent("n"))
    assert len(scene.connections.sent) == 1


def test_what_must_leave_now_is_refused_while_nothing_can_leave(scene: Scene) -> None:
    scene.connections.up = False
    assert scene.request_now() == 0
    scene.connections.up = True
    scene.tracker.update(2 * S)
    assert not scene.connections.sent
    assert not scene.responses


def test_a_request_that_names_no_rank_reaches_an_unknown_agent(scene: Scene) -> None:
    scene.tracker.disconnected("n", S)
    assert scene.request_now()
    assert scene.request()
    assert [type(request) for _, request in scene.connections.sent] == [wire.StateRequest]


def test_the_timeout_doubles_at_a_host_that_does_not_respond(scene: Scene) -> None:
    now, timeouts = S, []
    for _ in range(6):
        scene.request_now(now)
        timeouts.append(scene.tracker.timeout_ns("n"))
        now += timeouts[-1]
        scene.tracker.update(now - 1)
        scene.tracker.update(now)
    assert len(scene.responses) == 6
    assert timeouts == [3 * S, 6 * S, 12 * S, 24 * S, MAX_RESPONSE_NS, MAX_RESPONSE_NS]


def test_the_timeout_follows_what_responses_take(scene: Scene) -> None:
    number = scene.request_now()
    scene.tracker.finish(number, wire.StateResponse(1, wire.Update("n", "i", 1, 0, 0)), 3 * S)
    assert scene.tracker.timeout_ns("n") == 4 * S
    number = scene.request_now(3 * S)
    scene.tracker.finish(number, wire.StateResponse(1, wire.Update("n", "i", 1, 0, 0)), 4 * S)
    assert scene.tracker.timeout_ns("n") == RESPONSE_NS


@pytest.mark.parametrize("end", ["response", "deadline", "lost", "drop"])
def test_an_owner_sees_what_it_has_under_way_until_that_ends(scene: Scene, end: str) -> None:
    under_way: dict[str, int] = {}

    def ended(response: wire.Response, _now: int) -> None:
        assert not under_way  # so whoever is answered may ask again
        scene.responses.append(response)

    def ask() -> int:
        return scene.tracker.request_now(
            "n", wire.StateRequest(0), ended, S, under_way=under_way, about="state"
        )

    number = ask()
    assert under_way == {"state": number}
    assert ask() == 0  # one about the same is under way
    if end == "response":
        state = wire.StateResponse(number, wire.Update("n", "i", 1, 0, 0))
        scene.tracker.receive("n", state, 2 * S)
    elif end == "deadline":
        scene.tracker.update(99 * S)
    elif end == "lost":
        scene.tracker.disconnected("n", 2 * S)
        assert scene.error().reason == "lost"
    else:
        scene.tracker.drop(*under_way.values())
    assert (under_way, len(scene.responses)) == ({}, end != "drop")
    assert ask()
