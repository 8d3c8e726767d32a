"""Which histories are asked for to draw lanes: those in view, and as much as is in view."""

from __future__ import annotations

from connect.fakes import FakeConnections, S, frame_of, rank_view
from connect.test_op_follower import Ring
from frtop_probe import wire
from frtop_tui.connect.history_follower import INTERVAL_NS, MOST
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.features.timeline.follow import FIRST, LaneFollower
from frtop_tui.features.timeline.op_columns import OpColumns

GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-1")


class Lanes:
    """A follower whose agents answer at once."""

    def __init__(self, *rings: Ring) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.follower = LaneFollower(self.tracker)
        self.rings = rings
        self.asked: list[tuple[int, int]] = []
        self.refused = ""
        self.now = S

    def views(self) -> list[JudgedRank]:
        return [
            rank_view(
                rank, "node0", groups={1: GROUP}, status=wire.RankStatus(2, 1, len(ring.took))
            )
            for rank, ring in enumerate(self.rings)
        ]

    def look(self, times: int = 1) -> dict[int, OpColumns]:
        """Lets time pass, so that each rank is asked; what is known of them then."""
        for _ in range(times * len(self.rings)):
            self.now += INTERVAL_NS
            self.follower.update(frame_of(*self.views()), self.now)
            self.connections.respond(self.tracker.receive, self.answer, self.now)
        return dict(self.follower.histories.ops)

    def answer(self, _: str, request: wire.Request) -> wire.Response:
        assert isinstance(request, wire.HistoryRequest)
        self.asked.append((request.key - 1, request.limit))
        if self.refused:
            return wire.Error(request.id, self.refused)
        history = self.rings[request.key - 1].history(request.limit)
        return wire.HistoryResponse(request.id, "node0", request.key, history)


def ring(ops: int, pending: int = 0) -> Ring:
    made = Ring()
    made.issue(ops)
    made.issue(pending, took=0)
    return made


def test_only_ranks_in_view_are_asked_and_at_first_for_few_ops() -> None:
    lanes = Lanes(ring(5000), ring(5000), ring(5000))
    assert lanes.look() == {}
    lanes.follower.follow((1,), None)
    found = lanes.look(3)
    assert {rank for rank, _ in lanes.asked} == {1}
    assert len(found[1]) == FIRST
    assert found[1].known_from > 0
    lanes.follower.follow((), None)
    assert lanes.look() == {}


def test_new_ops_are_added_and_nothing_else_is_asked_for() -> None:
    rank = ring(5000)
    lanes = Lanes(rank)
    lanes.follower.follow((0,), None)
    lanes.look()
    rank.issue(40)
    rank.issue(1, took=0)
    found = lanes.look()
    assert found[0].number[-1] == 5041
    assert found[0].pending(len(found[0]) - 1)
    assert len(found[0]) == FIRST + 41
    rank.took[-1] = 9
    assert not lanes.look()[0].pending(FIRST + 40)
    assert max(limit for _, limit in lanes.asked[1:]) < FIRST


def test_a_rank_that_issues_nothing_is_not_asked_again_and_is_known_up_to_now() -> None:
    lanes = Lanes(ring(10))
    lanes.follower.follow((0,), None)
    before = lanes.look()[0].known_until
    after = lanes.look(4)[0].known_until
    assert len(lanes.asked) == 1
    assert after > before


def test_older_ops_are_fetched_when_they_come_into_view_and_no_more_than_there_are() -> None:
    lanes = Lanes(ring(3000))
    lanes.follower.follow((0,), None)
    issued = lanes.look()[0].issued[0]
    clock = lanes.views()[0].clock_ns
    lanes.follower.follow((0,), issued + clock - 600_000)
    found = lanes.look(2)
    assert found[0].issued[0] <= issued - 600_000
    assert len(found[0]) < 3000
    lanes.follower.follow((0,), 0)
    assert len(lanes.look(4)[0]) == 3000
    asked = len(lanes.asked)
    lanes.look(4)
    assert len(lanes.asked) == asked


def test_what_came_too_fast_is_asked_for_again_before_it_is_given_up() -> None:
    rank = ring(100)
    lanes = Lanes(rank)
    lanes.follower.follow((0,), None)
    lanes.look()
    rank.took += [5] * 2 * MOST  # none of them is counted in what was asked for
    found = lanes.look(6)
    assert max(limit for _, limit in lanes.asked) == MOST
    assert found[0].number[-1] == 2 * MOST + 100
    assert found[0].known_from > 0


def test_why_there_are_no_ops_is_said() -> None:
    lanes = Lanes(ring(10))
    lanes.refused = "this rank has no recorder"
    lanes.follower.follow((0,), None)
    assert lanes.look() == {}
    assert lanes.follower.histories.why_none == {0: "this rank has no recorder"}
