"""Which histories are asked for to follow ops, and what is told of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from connect.fakes import FakeConnections, S, frame_of, rank_view
from frtop_probe import wire
from frtop_tui.connect import history_follower, op_follower
from frtop_tui.connect.history_follower import INTERVAL_NS
from frtop_tui.connect.op_follower import FollowedOps, OpFollower, OpOutlet
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank
from history_rows import HistoryRow, packed

GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-1")


class Ring:
    """Ops of one rank, as its agent gives them; each of them is one slot."""

    def __init__(self, issued: int = 0, slots: int = 100_000, first: int = 1) -> None:
        self.slots = slots
        self.first = first  # sequence; those of a Flight Recorder's ring are negative, and even
        self.step = 2 if first < 0 else 1
        self.group = 1
        self.took: list[int] = []  # 0: pending
        self.issue(issued)

    def issue(self, count: int, took: int = 5) -> None:
        self.took += [took] * count

    def history(self, limit: int) -> wire.History:
        rows = [
            HistoryRow(self.first + (n - 1) * self.step, self.group, n, 1, 0, 1000 * n, took, 7)
            for n, took in enumerate(self.took, 1)
            if n > len(self.took) - min(limit or self.slots, self.slots)
        ]
        return wire.History((wire.Signature("all_reduce", "sum"),), (), packed(rows))


class Following:
    """A follower of the ranks that `rings` has, by key; its agents answer at once."""

    def __init__(self, **rings: Ring) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.outlet = OpOutlet()
        self.follower = OpFollower(self.tracker, self.outlet)
        self.follower.follow(None)
        self.rings = {int(name[1:]): ring for name, ring in rings.items()}
        self.limits: list[int] = []
        self.now = S
        self.fields: dict[str, Any] = {}

    def views(self) -> list[JudgedRank]:
        return [
            rank_view(
                rank, "node0", groups={1: GROUP}, status=wire.RankStatus(2, 1, len(ring.took)),
                **self.fields,
            )
            for rank, ring in self.rings.items()
        ]  # fmt: skip

    def look(self, times: int = 1) -> list[FollowedOps]:
        """Lets time pass, so that each rank is asked, and takes what came of it."""
        for _ in range(times * len(self.rings)):
            self.now += INTERVAL_NS
            self.follower.update(frame_of(*self.views()), self.now)
            self.connections.respond(self.tracker.receive, self.answer, self.now)
        taken, lost = self.outlet.take()
        assert lost == 0
        return taken

    def answer(self, _: str, request: wire.Request) -> wire.Response:
        assert isinstance(request, wire.HistoryRequest)
        self.limits.append(request.limit)
        return wire.HistoryResponse(
            request.id, "node0", request.key, self.rings[request.key - 1].history(request.limit)
        )


def numbers(told: list[FollowedOps], what: str = "issued") -> list[int]:
    return [op.number for one in told for op in getattr(one, what)]


def test_what_was_over_before_is_not_told_and_what_is_pending_is() -> None:
    ring = Ring(10)
    ring.issue(1, took=0)
    following = Following(r0=ring)
    told = following.look()
    assert numbers(told) == [11]
    assert numbers(told, "ended") == []


def test_each_op_is_told_once_and_again_when_it_ends() -> None:
    ring = Ring(3)
    following = Following(r0=ring)
    assert numbers(following.look()) == []
    ring.issue(4)
    ring.issue(1, took=0)
    told = following.look()
    assert numbers(told) == [4, 5, 6, 7, 8]
    assert numbers(told, "ended") == [4, 5, 6, 7]
    assert following.look() == []
    ring.took[-1] = 9
    told = following.look()
    assert (numbers(told), numbers(told, "ended")) == ([], [8])


def test_nothing_is_remembered_of_groups_that_came_and_went() -> None:
    ring = Ring(3)
    following = Following(r0=ring)
    for number in range(2, 50):
        ring.group = number
        ring.issue(1)
        following.look()
    (known,) = following.follower._ranks.values()
    assert known.numbers.keys() == {(49, False)}


def test_a_rank_that_issues_nothing_is_asked_once() -> None:
    ring = Ring(3)
    following = Following(r0=ring)
    following.look(5)
    assert len(following.limits) == 1


def test_few_ops_are_asked_for_while_few_are_issued() -> None:
    ring = Ring(50_000)
    following = Following(r0=ring)
    for _ in range(5):
        ring.issue(100)
        following.look()
    assert max(following.limits) < 400


@pytest.mark.parametrize("first", [1, -(2**40)])
def test_more_than_was_expected_is_asked_for_again_and_nothing_is_lost(first: int) -> None:
    ring = Ring(100, first=first)
    following = Following(r0=ring)
    following.look()
    issued = len(ring.took)
    ring.issue(3000)
    # The frame is older than the ring: it says that a single op was issued.
    following.views = lambda: [  # type: ignore[method-assign]
        rank_view(0, "node0", groups={1: GROUP}, status=wire.RankStatus(2, 1, issued + 1))
    ]
    told = following.look(4)
    assert numbers(told) == list(range(101, 3101))
    assert [one.lost for one in told] == [0]


@pytest.mark.parametrize("first", [1, -(2**40)])
def test_ops_that_the_ring_no_longer_has_are_counted(first: int) -> None:
    ring = Ring(100, slots=1000, first=first)
    following = Following(r0=ring)
    following.look()
    ring.issue(5000)
    (told,) = following.look(3)
    assert told.lost == 4000
    assert len(told.issued) == 1000
    assert "overwritten" in told.text


def test_a_pending_op_that_is_far_back_ends_when_it_is_no_longer_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (op_follower, history_follower):
        monkeypatch.setattr(module, "MOST", most := 256)
    ring = Ring()
    ring.issue(1, took=0)
    pending = wire.Op(1, 1, 1, None, None, 1000)
    following = Following(r0=ring)
    following.fields = {"pending": (pending,)}
    assert numbers(following.look()) == [1]
    ring.issue(most + 100)
    assert numbers(following.look(8), "ended")[0] > 1
    assert max(following.limits) == most
    following.fields = {}
    told = following.look(8)
    assert numbers(told, "ended") == [1]
    assert told[0].ended[0].pending, "nobody knows when it ended"


def test_another_agent_of_the_host_goes_on_where_the_one_before_ended() -> None:
    ring = Ring(10)
    following = Following(r0=ring)
    following.look()
    following.tracker.identified("node0", same=False)
    ring.issue(5)
    told = following.look(2)
    assert numbers(told) == list(range(11, 16))
    assert [one.lost for one in told] == [0]


@pytest.mark.parametrize("first", [1, -(2**40)])
def test_a_rank_that_was_not_seen_for_a_while_goes_on_and_what_it_lost_is_counted(
    first: int,
) -> None:
    ring = Ring(10, slots=5, first=first)
    following = Following(r0=ring)
    following.fields = {"identity": structs.replace(UNPREPARED, prepared=first > 0)}
    following.look()
    following.tracker.identified("node0", same=False)
    views, following.views = following.views, list  # type: ignore[method-assign]
    assert following.look(20) == []
    following.views = views  # type: ignore[method-assign]
    ring.issue(20)
    found = following.look(4)
    assert numbers(found) == list(range(26, 31))
    assert sum(one.lost for one in found) == 15


def test_who_is_not_seen_for_long_is_forgotten() -> None:
    following = Following(r0=Ring(10))
    following.look()
    following.views = list  # type: ignore[method-assign]
    following.look()
    assert len(following.follower._unseen) == 1
    following.now += OpFollower.REMEMBER_NS
    following.look()
    assert not following.follower._unseen


@pytest.mark.parametrize("group", [0, 1])
def test_what_a_flight_recorder_has_overwritten_is_counted_in_groups_that_nobody_knows(
    group: int,
) -> None:
    ring = Ring(100, slots=1000, first=-(2**40))
    ring.group = group
    following = Following(r0=ring)
    following.look()
    ring.issue(5000)
    (told,) = following.look(3)
    assert (told.lost, len(told.issued)) == (4000, 1000)


UNPREPARED = structs.replace(rank_view(0, "node0").identity, prepared=False)
OTHER = wire.Group(1, "1", "other", "gloo", "0-1")


@pytest.mark.parametrize(
    ("slots", "told", "lost"), [(100_000, list(range(11, 31)), 0), (5, list(range(26, 31)), 15)]
)
def test_another_agent_goes_on_in_a_flight_recorder_and_counts_what_was_overwritten(
    slots: int, told: list[int], lost: int
) -> None:
    """It has numbered the rank's groups in another order, and at first it knows none."""
    ring = Ring(9, first=-(2**40), slots=slots)
    ring.issue(1, took=0)
    following = Following(r0=ring)
    groups = {1: GROUP}
    following.views = lambda: [  # type: ignore[method-assign]
        rank_view(0, "node0", groups=groups, identity=UNPREPARED)
    ]
    assert numbers(following.look()) == [10]
    following.tracker.identified("node0", same=False)
    ring.took[-1] = 5
    ring.issue(20)
    groups = {}
    assert following.look() == []
    groups, ring.group = {1: OTHER, 2: structs.replace(GROUP, id=2)}, 2
    found = following.look(3)
    assert numbers(found) == told
    assert sum(one.lost for one in found) == lost


def test_another_agent_that_cannot_read_groups_goes_on_in_a_flight_recorder() -> None:
    ring = Ring(10, first=-(2**40))
    following = Following(r0=ring)
    following.fields = {"identity": UNPREPARED}
    following.look()
    following.tracker.identified("node0", same=False)
    ring.issue(2)
    ring.group = 0
    following.views = lambda: [  # type: ignore[method-assign]
        rank_view(0, "node0", identity=structs.replace(UNPREPARED, c10d_readable=False))
    ]
    assert numbers(following.look()) == [11, 12]


def test_another_agent_numbers_ops_of_a_rank_without_a_flight_recorder_anew() -> None:
    ring = Ring(10)
    following = Following(r0=ring)
    following.views = lambda: [  # type: ignore[method-assign]
        rank_view(
            0, "node0", groups={1: GROUP}, identity=UNPREPARED,
            group_progress={1: wire.GroupProgress(1, len(ring.took), 0, 1)},
        )
    ]  # fmt: skip
    following.look()
    following.tracker.identified("node0", same=False)
    ring.took = [5] * 3
    assert numbers(following.look()) == []
    ring.issue(2)
    assert numbers(following.look(2)) == [4, 5]


def test_a_host_has_one_request_at_a_time_and_its_ranks_take_turns() -> None:
    following = Following(r0=Ring(2), r1=Ring(2), r2=Ring(2))
    asked = []
    for _ in range(3):
        following.now += INTERVAL_NS
        following.follower.update(frame_of(*following.views()), following.now)
        following.follower.update(frame_of(*following.views()), following.now)
        (sent,) = following.connections.sent
        assert isinstance(sent[1], wire.HistoryRequest)
        asked.append(sent[1].key)
        following.connections.respond(following.tracker.receive, following.answer, following.now)
    assert sorted(asked) == [1, 2, 3]


@pytest.mark.parametrize("reason", ["unprepared", "gone", "busy"])
def test_a_refusal_is_told_once_and_the_rank_is_asked_again(reason: str) -> None:
    ring = Ring(2)
    following = Following(r0=ring)
    answer = following.answer
    following.answer = lambda _, request: wire.Error(  # type: ignore[method-assign]
        request.id, "no Flight Recorder", reason
    )
    assert [one.text for one in following.look(3)] == ["no Flight Recorder"]
    following.answer = answer  # type: ignore[method-assign]
    following.look()
    ring.issue(1)
    assert numbers(following.look()) == [3]


def test_what_nobody_takes_is_bounded_and_counted() -> None:
    outlet, view = OpOutlet(), rank_view(0, "node0")
    ops = tuple(wire.Op(n, 1, n, None, None, n) for n in range(30_000))
    for _ in range(4):
        outlet.put(FollowedOps(view, ops))
    taken, lost = outlet.take()
    assert (len(taken), lost) == (3, 30_000)
    assert outlet.take() == ([], 0)
