"""Which slices of time are asked for, of whom, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from connect.fakes import FakeConnections, S, frame_of, rank_view
from frtop_probe import wire
from frtop_probe.statistics.rank_summary import Window
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.connect.statistics_follower import (
    INTERVAL_NS,
    LAG_NS,
    PIECES,
    StatisticsFollower,
    interval_ns,
)
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.statistics.wanted import StatisticsWanted
from job_statistics.ranks import MS, answer, group, op

GROUP = group(1, "0-3")
ALL = StatisticsWanted(60.0, calls=True)


class Following:
    """Four ranks on two hosts, whose clocks differ; each issues ten ops a second, for ever."""

    def __init__(self) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.told: list[JobStatistics | None] = []
        self.shown: list[JobStatistics | None] = []
        self.follower = StatisticsFollower(self.tracker, self.tell)
        self.now = 1000 * S
        self.asked: list[tuple[str, wire.StatisticsRequest]] = []
        self.most = 9  # ranks in one answer
        self.refusing: Sequence[str] = ()
        self.every_ns = S // 10  # an op of each rank

    def tell(self, _: wire.Job, found: JobStatistics | None, shown: JobStatistics | None) -> None:
        self.told.append(found)
        self.shown.append(shown)

    @property
    def newest(self) -> JobStatistics:
        found = self.told[-1]
        assert found is not None
        return found

    @property
    def newest_shown(self) -> JobStatistics:
        found = self.shown[-1]
        assert found is not None
        return found

    def clock(self, host: str) -> int:
        return 500 * S if host == "node1" else 0

    def views(self) -> list[JudgedRank]:
        return [
            replace(rank_view(rank, host, groups={1: GROUP}), clock_ns=self.clock(host))
            for rank, host in enumerate(("node0", "node0", "node1", "node1"))
        ]

    def go_on(self, seconds: float = 0.1) -> None:
        self.now += round(seconds * S)
        frame = frame_of(*self.views())
        for _ in range(8):  # each answer lets the next question go
            self.follower.update(frame, self.now)
            self.connections.respond(self.tracker.receive, self.answer, self.now)
        self.tracker.update(self.now)
        self.follower.update(frame, self.now)

    def answer(self, host: str, request: wire.Request) -> wire.Response | None:
        assert isinstance(request, wire.StatisticsRequest)
        self.asked.append((host, request))
        if host in self.refusing:
            return wire.Error(request.id, "not understood", "words")
        since, until = request.since_ns, request.until_ns
        window = Window(since, until, request.calls, request.samples, request.steps)
        first = -(-(since + self.clock(host)) // self.every_ns)
        last = -(-(until + self.clock(host)) // self.every_ns)
        ranks: list[wire.RankStatistics] = []
        sites: tuple[wire.Site, ...] = ()
        for key in request.keys[: self.most]:
            ops = [op(n, n * self.every_ns - self.clock(host), MS) for n in range(first, last)]
            one = answer(key, ops, window)
            ranks.append(one.statistics)
            sites = tuple(one.sites)
        return wire.StatisticsResponse(request.id, host, since, until, tuple(ranks), sites)


@pytest.fixture
def following() -> Following:
    return Following()


def test_nobody_is_asked_while_nobody_wants_to_know(following: Following) -> None:
    following.go_on(10)
    assert following.asked == []
    following.follower.want(ALL)
    following.go_on()
    assert following.asked
    following.follower.want(None)
    assert following.told[-1] is None
    count = len(following.asked)
    following.go_on(10)
    assert len(following.asked) == count


def test_slices_follow_each_other_on_the_clock_of_each_host(following: Following) -> None:
    following.follower.want(ALL)
    following.go_on()
    first = following.now
    for _ in range(3):
        following.go_on(5)
    for host in ("node0", "node1"):
        spans = [(one.since_ns + following.clock(host), one.until_ns + following.clock(host))
                 for name, one in following.asked if name == host]  # fmt: skip
        assert spans[0][0] == first - LAG_NS - 60 * S
        assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]]
        assert spans[-1][1] == following.now - LAG_NS
        assert len(spans) == PIECES + 3


def test_a_window_is_what_its_slices_have(following: Following) -> None:
    following.follower.want(ALL)
    following.go_on()
    found = following.newest
    assert (len(following.told), found.ranks, found.missing) == (1, (0, 1, 2, 3), ())
    (row,) = found.calls
    assert row.count == pytest.approx(4 * 600, abs=4)
    assert row.rate == pytest.approx(40, rel=0.01)
    assert row.skew_ns == 0
    for _ in range(30):
        following.go_on(5)
    later = following.newest
    assert later.calls[0].count == pytest.approx(4 * 600, abs=4 * 52)
    assert later.seconds == pytest.approx(60, abs=5.5)
    assert later.calls[0].rate == pytest.approx(40, rel=0.01)


def test_verdicts_on_long_steps_are_made_of_more_than_a_minute(following: Following) -> None:
    following.every_ns = 10 * S
    following.follower.want(StatisticsWanted(), "verdicts")
    following.follower.want(StatisticsWanted(120.0), "screen")
    following.go_on()
    following.go_on()
    found, shown = following.newest, following.newest_shown
    assert found.seconds == pytest.approx(600, abs=5.5)
    assert shown.seconds == pytest.approx(120, abs=5.5)
    assert len(found.groups[0].arrivals) == pytest.approx(60, abs=1)
    following.every_ns = S // 10
    for _ in range(3):
        following.go_on(5)
    quick = following.newest
    assert quick.seconds < 125


def test_answers_say_whether_calls_were_asked_for(following: Following) -> None:
    """A screen that asks for them shows none of the answers from before."""
    following.follower.want(StatisticsWanted(), "verdicts")
    following.go_on()
    following.follower.want(ALL, "screen")
    following.go_on()
    assert [one is not None and one.with_calls for one in following.told] == [False, True]


def test_ranks_that_an_answer_left_out_are_asked_for_again(following: Following) -> None:
    following.most = 1
    following.follower.want(StatisticsWanted(5.0, calls=True))
    following.go_on()
    found = following.newest
    assert found.ranks == (0, 1, 2, 3)
    assert found.calls[0].count == 4 * 50


def test_an_agent_that_does_not_know_the_question_is_named_once(following: Following) -> None:
    following.refusing = ("node1",)
    following.follower.want(ALL)
    for _ in range(3):
        following.go_on(5)
    assert sum(host == "node1" for host, _ in following.asked) == 1
    found = following.newest
    assert found.missing == (2, 3)
    assert "node1" in found.notes[0]


def test_a_host_that_does_not_answer_holds_nobody_up(following: Following) -> None:
    following.follower.want(StatisticsWanted(5.0))
    respond = following.answer

    def deaf(host: str, request: wire.Request) -> wire.Response | None:
        return None if host == "node1" else respond(host, request)

    following.answer = deaf  # type: ignore[method-assign]
    for _ in range(9):
        following.go_on(2.5)
    found = following.newest
    assert found.missing == (2, 3)
    following.answer = respond  # type: ignore[method-assign]
    for _ in range(8):
        following.go_on(5)
    assert following.newest.missing == ()


def test_another_job_begins_anew(following: Following) -> None:
    following.follower.want(ALL)
    following.go_on()
    other = wire.Job("node0", 29501, 4, "run", 0, "m", "train.py")
    following.now += INTERVAL_NS
    following.follower.update(frame_of(*following.views(), job=other), following.now)
    (host, request), *_ = following.connections.sent
    assert host == "node0"
    assert isinstance(request, wire.StatisticsRequest)
    assert request.until_ns - request.since_ns == 15 * S


def test_rows_of_many_ranks_are_asked_for_less_often() -> None:
    for ranks, times in ((64, 1), (2048, 2), (10_000, 4)):
        assert interval_ns(StatisticsWanted(calls=True), ranks) == times * INTERVAL_NS
        assert interval_ns(StatisticsWanted(), ranks) == INTERVAL_NS


def test_a_screen_has_a_window_of_its_own_beside_that_of_the_verdicts(following: Following) -> None:
    following.follower.want(StatisticsWanted(), "verdicts")
    following.follower.want(ALL, "screen")
    following.go_on()
    assert following.newest
    assert following.shown[-1] is None  # the same window
    asked = len(following.asked)
    following.follower.want(replace(ALL, window_s=10.0), "screen")
    following.go_on()
    assert len(following.asked) == asked  # what is known is put together anew
    for _ in range(4):
        following.go_on(5.0)
    whole, shown = following.newest, following.newest_shown
    assert whole.seconds == pytest.approx(60, abs=16)
    assert shown.seconds == pytest.approx(10, abs=1)
    assert shown.calls[0].count == pytest.approx(4 * 10 * 10, abs=40)
    assert sum(len(one.arrivals) for one in whole.groups) > len(shown.groups[0].arrivals)
    following.follower.want(replace(ALL, window_s=3600.0), "screen")
    for _ in range(3):
        following.go_on(5.0)
    whole, shown = following.newest, following.newest_shown
    assert 60 <= whole.seconds <= 75  # as the pieces of the time before are
    assert shown.seconds > 3600
