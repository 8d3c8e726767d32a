"""NCCL's RAS is asked once per press, never again by itself, and never while groups are made."""

from __future__ import annotations

from msgspec import structs

from connect.fakes import FakeConnections, frame_of, rank_view
from frtop_probe import wire
from frtop_tui.connect.ras_commands import ASK_NS, PAUSE_NS, RasCommands
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.job.model import HostView
from frtop_tui.job.state import JobState


class RecordingState(JobState):
    """Records what would be shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[str, bool, wire.RasResponse]] = []

    def apply_ras(self, host: str, response: wire.RasResponse, *, look: bool) -> None:
        self.shown.append((host, look, response))


class Asking:
    """Commands over fake connections."""

    def __init__(self) -> None:
        self.connections, self.state = FakeConnections(), RecordingState()
        self.tracker = RequestTracker(self.connections.send)
        self.commands = RasCommands(self.tracker, self.state)

    @property
    def last(self) -> wire.RasResponse:
        return self.state.shown[-1][2]


FRAME = frame_of(rank_view(0, "a"), rank_view(1, "b"))


def test_a_look_and_a_question_are_two_requests() -> None:
    one = Asking()
    one.commands.ask(FRAME, 0, 1, look=True)
    one.commands.ask(FRAME, 0, 1, look=True)  # one is under way
    one.commands.ask(FRAME, 0, 1, look=False)
    sent = [request for _, request in one.connections.sent]
    assert [(r.key, r.ask) for r in sent if isinstance(r, wire.RasRequest)] == [
        (1, False),
        (1, True),
    ]
    for number, request in enumerate(sent):
        response = wire.RasResponse(request.id, "a", 1, 5, version=str(number))
        one.tracker.receive("a", response, 2)
    assert [(look, r.version) for _, look, r in one.state.shown] == [(True, "0"), (False, "1")]


def test_a_question_that_cannot_leave_or_is_lost_is_not_sent_again() -> None:
    one = Asking()
    one.connections.up = False
    one.commands.ask(FRAME, 0, 1, look=False)
    assert (one.last.error, one.last.asked) == ("unheard", False)
    one.connections.up = True
    one.commands.ask(FRAME, 0, 2, look=False)
    one.tracker.disconnected("a", 3)
    assert one.last.error == "lost"
    assert "whether RAS was asked is not known" in one.last.help
    one.tracker.identified("a", same=True)
    for now in (4, 5, 10**12):
        one.tracker.update(now)
    assert len(one.connections.sent) == 1


def test_no_answer_is_a_deadline_and_then_it_may_be_asked_again() -> None:
    one = Asking()
    one.commands.ask(FRAME, 0, 1, look=False)
    one.tracker.update(2 + ASK_NS)
    assert one.last.error == "deadline"
    assert "whether RAS was asked is not known" in one.last.help
    one.commands.ask(FRAME, 0, 3 + ASK_NS, look=False)
    assert len(one.connections.sent) == 2


def test_ranks_of_two_hosts_are_not_asked_one_after_the_other() -> None:
    one = Asking()
    one.commands.ask(FRAME, 0, 1, look=False)
    (_, request) = one.connections.sent[0]
    one.tracker.receive("a", wire.RasResponse(request.id, "a", 1, 5, asked=True), 2)
    one.commands.ask(FRAME, 1, PAUSE_NS // 2, look=False)
    assert (one.last.error, len(one.connections.sent)) == ("busy", 1)
    one.commands.ask(FRAME, 1, PAUSE_NS + 1, look=False)
    assert len(one.connections.sent) == 2


def test_nothing_is_sent_where_it_may_not_be_or_a_rank_elsewhere_makes_a_group() -> None:
    one = Asking()
    making = wire.Op(1, 0, 1, wire.Signature("new_group"), None, 1, pseudo=True)
    hosts = (HostView("a", "heard", may_act=False),)
    for frame, error in (
        (structs.replace(FRAME, read_only="started with --read-only"), "permission"),
        (structs.replace(FRAME, hosts=hosts), "permission"),
        (frame_of(rank_view(0, "a", state="unheard")), "unheard"),
        (frame_of(rank_view(0, "a"), rank_view(1, "b", pending=(making,))), "making"),
    ):
        for look in (True, False):
            one.commands.ask(frame, 0, 1, look=look)
            assert one.last.error == error
    assert one.connections.sent == []


def test_an_agent_of_an_older_version_is_a_reason() -> None:
    one = Asking()
    one.commands.ask(FRAME, 0, 1, look=True)
    one.tracker.receive("a", wire.Error(0, "this agent does not understand", "words"), 2)
    assert (one.last.error, one.last.help) == ("words", "this agent does not understand")
