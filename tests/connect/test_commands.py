"""Outcomes of commands are shown with the job they are about."""

from __future__ import annotations

from msgspec import structs

from connect.fakes import FakeConnections, frame_of, rank_view
from frtop_probe import wire
from frtop_tui.connect.commands import Commands
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.job.model import HostView
from frtop_tui.job.state import JobState


class RecordingState(JobState):
    """Records the answers of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[str, int, str]] = []
        self.native: list[wire.NativeStacksResponse] = []

    def apply_tensors(self, host: str, response: wire.TensorsResponse) -> None:
        self.answers.append((host, response.key, response.error))

    def apply_native(self, host: str, response: wire.NativeStacksResponse) -> None:
        self.native.append(response)


def test_native_stacks_are_asked_for_once_at_a_time() -> None:
    state, connections = RecordingState(), FakeConnections()
    tracker = RequestTracker(connections.send)
    commands = Commands(tracker, state)
    frame = frame_of(rank_view(0, "a"))
    for _ in range(2):
        commands.take_native(frame, 0, 1)
    ((host, request),) = connections.sent
    assert (host, request) == ("a", wire.NativeStacksRequest(request.id, 1))
    tracker.receive("a", wire.Error(request.id, "others are being taken", "busy"), 2)
    ((error,)) = state.native
    assert (error.key, error.dump.error, error.dump.help) == (1, "busy", "others are being taken")
    commands.take_native(frame, 0, 3)
    assert len(connections.sent) == 2


def test_native_stacks_are_not_asked_for_where_that_is_no_use() -> None:
    state, connections = RecordingState(), FakeConnections()
    commands = Commands(RequestTracker(connections.send), state)
    view = rank_view(0, "a")
    reader = structs.replace(frame_of(view), hosts=(HostView("a", "heard", may_act=False),))
    ended = frame_of(structs.replace(view, exit_info=wire.ExitInfo(1)))
    read_only = frame_of(view, read_only="started with --read-only")
    unheard = frame_of(structs.replace(view, state="unheard"))
    for frame in (None, reader, ended, read_only, unheard):
        commands.take_native(frame, 0, 1)
    commands.take_native(frame_of(view), 7, 1)  # there is no such rank
    assert connections.sent == []
    reasons = [response.dump.error for response in state.native]
    assert reasons == ["permission", "gone", "permission", "unheard"]


def test_a_rank_is_asked_again_by_its_new_key_when_its_agent_was_restarted() -> None:
    state, connections = RecordingState(), FakeConnections()
    tracker = RequestTracker(connections.send)
    commands = Commands(tracker, state)
    commands.inspect(frame_of(rank_view(0, "a")), 0, 1)
    connections.sent.clear()
    tracker.disconnected("a", 2)
    tracker.identified("a", same=False)
    tracker.update(3)
    commands.update(frame_of(structs.replace(rank_view(0, "a"), key=9)), 3)
    assert not state.answers  # the former key may be that of another rank now
    assert [(host, key_of(request)) for host, request in connections.sent] == [("a", 9)]


def key_of(request: wire.Request) -> int:
    assert isinstance(request, wire.TensorsRequest)
    return request.key
