"""How the steps of a live job are read: how far back, of how many ranks at a time."""

from __future__ import annotations

from msgspec.structs import replace

from connect.fakes import FakeConnections, S
from features.check.made_up_jobs import WORLD, Issued, frame, history, views
from frtop_probe import wire
from frtop_probe.history_columns import pack_rows, unpack
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.features.check.facts import FEWEST
from frtop_tui.features.check.follow import AT_ONCE, FEWEST_OPS, ReadSteps, StepsFollower


class Job:
    """Ranks whose rings have 300 steps of `each` ops."""

    def __init__(self, ranks: int, each: int = 6) -> None:
        self.connections = FakeConnections()
        self.tracker = RequestTracker(self.connections.send)
        self.follower = StepsFollower(self.tracker)
        self.views = views(ranks)
        self.history = history(0, lambda *_: [Issued(WORLD, ops=each)], steps=1800 // each)
        self.limits: list[int] = []
        self.most = 0

    def read(self) -> None:
        order = ReadSteps(tuple(view.rank for view in self.views))
        self.follower.take(order, frame(self.views, len(self.views)), S)
        while self.connections.sent:
            self.most = max(self.most, len(self.connections.sent))
            self.connections.respond(self.tracker.receive, self.answer, S)

    def answer(self, host: str, request: wire.Request) -> wire.Response:
        assert isinstance(request, wire.HistoryRequest)
        self.limits.append(request.limit)
        assert self.history.columns is not None
        newest = tuple(column[-request.limit :] for column in unpack(self.history.columns))
        found = replace(self.history, columns=pack_rows(newest))
        return wire.HistoryResponse(request.id, host, request.key, found)


def test_only_as_many_ops_are_read_as_some_steps_have() -> None:
    job = Job(2)
    job.read()
    # 52 steps of 10 ops, by the counts of the ranks.
    assert job.limits == [520] * 2
    assert {rank: len(steps) for rank, steps in job.follower.news.steps.items()} == {0: 50, 1: 50}
    assert not job.follower.news.left


def test_a_rank_whose_steps_are_longer_is_read_further_back() -> None:
    job = Job(1, each=300)
    job.views = [replace(job.views[0], status=wire.RankStatus(1, 1, 0, 0))]
    job.read()
    assert job.limits == [FEWEST_OPS, 4 * FEWEST_OPS]
    (steps,) = job.follower.news.steps.values()
    assert len(steps) >= FEWEST


def test_hosts_get_few_requests_at_a_time() -> None:
    job = Job(12)
    job.read()
    assert job.most <= min(AT_ONCE, wire.HistoryRequest.at_once)
    assert len(job.follower.news.steps) == 12


def test_ranks_that_cannot_be_read_have_a_reason() -> None:
    job = Job(4)
    job.views[1] = replace(job.views[1], identity=replace(job.views[1].identity, prepared=False))
    job.views[2] = replace(job.views[2], state="unreachable")

    def refuse(_: str, request: wire.Request) -> wire.Response:
        assert isinstance(request, wire.HistoryRequest)
        if request.key == 1:
            return wire.Error(request.id, "it is gone", "gone")
        damaged = history(0)
        assert damaged.columns is not None
        columns = replace(damaged.columns, group=wire.HistoryColumn(0, 1, b"x"))
        return wire.HistoryResponse(request.id, "node0", 4, replace(damaged, columns=columns))

    job.answer = refuse  # type: ignore[assignment, method-assign]
    job.read()
    found = job.follower.news
    assert not found.left
    assert not found.steps
    assert found.problems[0] == "it is gone"
    assert found.problems[1] == "no recorder"
    assert "unreachable" in found.problems[2]
    assert found.problems[3].startswith("its history cannot be read: ")
