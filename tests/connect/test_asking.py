"""The one way to ask ranks: what a request's class says is kept."""

from __future__ import annotations

from msgspec import structs

from connect.fakes import FakeConnections, frame_of, rank_view
from frtop_probe import wire
from frtop_tui.connect.asking import Asking
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.model import HostView

NATIVE = wire.NativeStacksRequest()


class Applied:
    """Keeps the answers."""

    def __init__(self) -> None:
        self.all: list[wire.Response] = []

    def __call__(
        self, view: JudgedRank, request: wire.RankRequest, response: wire.Response, now: int
    ) -> None:
        self.all.append(response)

    @property
    def native(self) -> list[wire.NativeStacksResponse]:
        return [one for one in self.all if isinstance(one, wire.NativeStacksResponse)]


def test_native_stacks_are_asked_for_once_at_a_time() -> None:
    applied, connections = Applied(), FakeConnections()
    tracker = RequestTracker(connections.send)
    asking = Asking(tracker, applied)
    frame = frame_of(rank_view(0, "a"))
    for _ in range(2):
        asking.do(frame, NATIVE, (0,), 1)
    ((host, request),) = connections.sent
    assert (host, request) == ("a", wire.NativeStacksRequest(request.id, 1))
    tracker.receive("a", wire.Error(request.id, "others are being taken", "busy"), 2)
    (error,) = applied.native
    assert (error.key, error.dump.error, error.dump.help) == (1, "busy", "others are being taken")
    asking.do(frame, NATIVE, (0,), 3)
    assert len(connections.sent) == 2


def test_native_stacks_are_not_asked_for_where_that_is_no_use() -> None:
    applied, connections = Applied(), FakeConnections()
    asking = Asking(RequestTracker(connections.send), applied)
    view = rank_view(0, "a")
    reader = structs.replace(frame_of(view), hosts=(HostView("a", "reporting", may_act=False),))
    ended = frame_of(structs.replace(view, exit_info=wire.ExitInfo(1)))
    read_only = frame_of(view, read_only="started with --read-only")
    unreachable = frame_of(structs.replace(view, state="unreachable"))
    for frame in (None, reader, ended, read_only, unreachable):
        asking.do(frame, NATIVE, (0,), 1)
    asking.do(frame_of(view), NATIVE, (7,), 1)  # there is no such rank
    assert connections.sent == []
    reasons = [response.dump.error for response in applied.native]
    assert reasons == ["permission", "gone", "permission", "unreachable"]


def test_a_rank_is_asked_again_by_its_new_key_when_its_agent_was_restarted() -> None:
    applied, connections = Applied(), FakeConnections()
    tracker = RequestTracker(connections.send)
    asking = Asking(tracker, applied)
    asking.do(frame_of(rank_view(0, "a")), wire.HistoryRequest(), (0,), 1)
    connections.sent.clear()
    tracker.disconnected("a", 2)
    tracker.identified("a", same=False)
    tracker.update(3)
    asking.update(frame_of(structs.replace(rank_view(0, "a"), key=9)), 3)
    assert not applied.all  # the former key may be that of another rank now
    assert [(host, key_of(request)) for host, request in connections.sent] == [("a", 9)]


def key_of(request: wire.Request) -> int:
    assert isinstance(request, wire.RankRequest)
    return request.key


def test_no_more_ranks_of_a_host_are_asked_at_once_than_the_request_says() -> None:
    connections = FakeConnections()
    tracker = RequestTracker(connections.send)
    asking = Asking(tracker, Applied())
    views = [structs.replace(rank_view(rank, "a"), key=rank + 10) for rank in range(6)]
    frame = frame_of(*views)
    assert wire.ChangeRecording.at_once == 4
    asking.do(frame, wire.ChangeRecording(), range(6), 1)
    asking.do(frame, wire.ChangeRecording(), range(6), 2)  # they are being asked already
    assert [key_of(request) for _, request in connections.sent] == [10, 11, 12, 13]
    for _, request in list(connections.sent):
        answer = wire.RecordingResponse(request.id, "a", key_of(request))
        tracker.receive("a", answer, 3)
    assert [key_of(request) for _, request in connections.sent[4:]] == [14, 15]
