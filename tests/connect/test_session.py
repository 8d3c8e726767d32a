"""What the live source's thread makes of agents that restart, or have several names."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pytest
from msgspec.structs import replace

from connect.fakes import JOB, FakeConnections, S
from frtop_probe import wire
from frtop_tui.connect.connection_events import (
    AnyEndpoint,
    Connected,
    ConnectionFailed,
    Connections,
    Progressed,
    ResponseReceived,
    SamePlace,
    UpdateReceived,
)
from frtop_tui.connect.endpoints import Endpoint, PipeEndpoint
from frtop_tui.connect.pipes.place_search import FoundPlaces, PlaceSearch
from frtop_tui.connect.session import RESOLVE_AGAIN_NS, Session
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError
from frtop_tui.job.model import AgentKey


class FakeAgents(FakeConnections):
    """Accepts every endpoint; records those that are connected."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoints: dict[str, AnyEndpoint] = {}

    def connect(self, endpoint: AnyEndpoint) -> None:
        self.endpoints[endpoint.host] = endpoint

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        del self.endpoints[endpoint.host]

    def is_up(self, host: str) -> bool:
        return host in self.endpoints


@pytest.fixture
def agents() -> FakeAgents:
    return FakeAgents()


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[Endpoint]:
    """What names resolve to, once each; names to be resolved again are not."""
    found: list[Endpoint] = []

    def take(_: object) -> list[tuple[str, Endpoint]]:
        taken = [(one.host, one) for one in found]
        found.clear()
        return taken

    monkeypatch.setattr("frtop_tui.connect.endpoints.Resolver.resolve", lambda *_: None)
    monkeypatch.setattr("frtop_tui.connect.endpoints.Resolver.resolved", take)
    return found


def session_of(agents: FakeAgents, *names: str) -> Session:
    return Session(cast("Connections", agents), names, None)


def respond(
    session: Session,
    host: str,
    instance: str,
    keys: dict[int, int],
    *,
    key: bytes = b"",
    whose: AgentKey = "",
) -> None:
    """Lets the agent of a host send its full state: ranks by key."""
    ranks = tuple(
        wire.RankUpdate(key, identity=wire.Identity(100 + rank, 1, rank, 0, JOB))
        for key, rank in keys.items()
    )
    update = wire.Update(host, instance, 1, S, S, ranks, full=True)
    session.handle(Connected(host, key=key, whose=whose), S)
    sent = cast("FakeAgents", session._connections).sent
    asked = max(one.id for name, one in sent if name == host and isinstance(one, wire.StateRequest))
    session.handle(ResponseReceived(host, wire.StateResponse(asked, update)), S)


def frame_of(session: Session) -> Frame:
    frame = session.frame()
    assert frame is not None
    return frame


def test_a_frame_with_the_keys_of_a_restarted_agent_is_replaced_at_once(
    agents: FakeAgents, resolved: list[Endpoint]
) -> None:
    session = session_of(agents, "n")
    resolved.append(Endpoint("n", "10.0.0.1", 7677, 7678))
    session.discover(S)
    respond(session, "n", "first", {1: 0, 2: 1})
    assert frame_of(session).ranks[0].key == 1
    assert session.frame() is None  # not yet time for another one
    respond(session, "n", "second", {1: 1, 2: 0})
    assert frame_of(session).ranks[0].key == 2


def test_a_name_that_does_not_resolve_has_failed_and_one_that_moves_is_followed(
    agents: FakeAgents, resolved: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(agents, "n")
    unknown = [("n", FrtopError("unknown", "check it"))]
    with monkeypatch.context() as patched:
        patched.setattr("frtop_tui.connect.endpoints.Resolver.resolved", lambda _: unknown)
        session.discover(S)
    assert hosts_of(session) == {"n": ("failed", "")}
    for address in ("10.0.0.1", "10.0.0.2"):
        endpoint = Endpoint("n", address, 7677, 7678)
        resolved.append(endpoint)
        session.discover(S)
        assert agents.endpoints == {"n": endpoint}


def test_a_name_that_was_an_alias_is_looked_up_again_when_the_other_is_lost(
    agents: FakeAgents, resolved: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    monkeypatch.setattr(
        "frtop_tui.connect.endpoints.Resolver.resolve", lambda _, name: looked_up.append(name)
    )
    session = session_of(agents, "n", "alias")
    resolved += [Endpoint(name, "10.0.0.1", 7677, 7678) for name in ("n", "alias")]
    session.discover(S)
    respond(session, "n", "first", {1: 0})
    assert list(agents.endpoints) == ["n"]
    looked_up.clear()
    session.discover(2 * RESOLVE_AGAIN_NS)
    assert not looked_up
    session.handle(ConnectionFailed("n", FrtopError("gone", "wait")), 2 * RESOLVE_AGAIN_NS)
    session.discover(2 * RESOLVE_AGAIN_NS)
    assert sorted(looked_up) == ["alias", "n"]
    resolved.append(Endpoint("alias", "10.0.0.2", 7677, 7678))
    session.discover(2 * RESOLVE_AGAIN_NS + S)
    assert sorted(agents.endpoints) == ["alias", "n"]


class FakePlaces:
    """Places that lead to these hosts, found at the first search."""

    def __init__(self, *hosts: str) -> None:
        self.found = FoundPlaces(
            tuple(PipeEndpoint(host, (("sh",),), f"ssh {host}") for host in hosts),
            over=("slurm:7",),
        )

    def search(self, now: int, connected: Collection[str]) -> FoundPlaces:
        found, self.found = self.found, FoundPlaces()
        return found


def session_with(agents: FakeAgents, places: FakePlaces) -> Session:
    return Session(cast("Connections", agents), (), None, places=cast("PlaceSearch", places))


def hosts_of(session: Session) -> dict[str, tuple[str, str]]:
    session._next_frame = 0
    return {host.name: (host.state, host.progress) for host in frame_of(session).hosts}


OURS, THEIRS = b"ours", b"theirs"


def two_owners(agents: FakeAgents, resolved: list[Endpoint]) -> Session:
    """An agent of ours, whose instance another user knows, and one of theirs that we trust."""
    session = session_of(agents, "mine", "yours")
    for n, name in enumerate(("mine", "yours")):
        resolved.append(Endpoint(name, f"10.0.0.{n}", 7677, 7678))
    session.discover(S)
    respond(session, "mine", "known", {1: 0}, key=OURS, whose="own")
    return session


def ranks_of(session: Session) -> dict[int, str]:
    return {rank: view.host for rank, view in frame_of(session).ranks.items()}


def test_nobody_else_sends_updates_of_our_agent(
    agents: FakeAgents, resolved: list[Endpoint]
) -> None:
    session = two_owners(agents, resolved)
    forged = wire.RankUpdate(2, identity=wire.Identity(666, 1, 1, 0, JOB))
    update = wire.Update("mine", "known", 2, S, S, (forged,))
    session.handle(UpdateReceived(update, THEIRS), S)
    assert ranks_of(session) == {0: "mine"}
    session.handle(UpdateReceived(update, OURS), S)
    session.choose(None)
    assert ranks_of(session) == {0: "mine", 1: "mine"}


def test_nobody_else_takes_the_place_of_our_agent(
    agents: FakeAgents, resolved: list[Endpoint]
) -> None:
    session = two_owners(agents, resolved)
    respond(session, "yours", "known", {1: 1}, key=THEIRS, whose="other")
    frame = frame_of(session)
    assert {host.name: host.agent_key for host in frame.hosts} == {"mine": "own", "yours": "other"}
    assert {view.host for view in frame.ranks.values()} == {"mine", "yours"}


def test_ranks_of_another_owner_are_not_ours_when_our_agent_comes_back_there(
    agents: FakeAgents, resolved: list[Endpoint]
) -> None:
    session = two_owners(agents, resolved)
    respond(session, "mine", "theirs", {1: 1}, key=THEIRS, whose="other")
    session.handle(ConnectionFailed("mine", FrtopError("gone", "wait")), S)
    session.handle(Connected("mine", key=OURS, whose="own"), S)  # its ranks are yet to come
    assert {host.name: host.agent_key for host in frame_of(session).hosts}["mine"] == "other"


def test_a_host_behind_a_shell_says_how_far_it_is(agents: FakeAgents) -> None:
    places = FakePlaces("n")
    session = session_with(agents, places)
    slurm = FoundPlaces(under_way=(("slurm:7", "asking squeue"),))
    places.found, later = slurm, places.found
    session.discover(S)
    assert hosts_of(session) == {"slurm:7": ("connecting", "asking squeue")}
    places.found = later
    session.discover(S)
    assert hosts_of(session) == {"n": ("connecting", "waiting to start")}
    session.handle(Progressed("n", "starting ssh"), S)
    assert hosts_of(session) == {"n": ("connecting", "starting ssh")}
    respond(session, "n", "first", {1: 0})
    assert hosts_of(session)["n"][1] == ""
    session.handle(Connected("n", ("no stacks there; allow them",)), S)
    session._next_frame = 0
    assert frame_of(session).hosts[0].notes == ("no stacks there; allow them",)


def test_a_second_way_to_a_host_is_taken_when_the_first_is_lost(agents: FakeAgents) -> None:
    session = session_with(agents, FakePlaces("n", "alias"))
    session.discover(S)
    respond(session, "n", "first", {1: 0})
    session.handle(SamePlace("alias", "n"), S)
    session.discover(S)
    assert list(agents.endpoints) == ["n"]
    assert list(hosts_of(session)) == ["n"]
    session.handle(ConnectionFailed("n", FrtopError("gone", "wait")), S)
    session.discover(S)
    assert sorted(agents.endpoints) == ["alias", "n"]


def test_a_place_that_leads_nowhere_says_why(agents: FakeAgents) -> None:
    places = FakePlaces()
    places.found = FoundPlaces(failed=(("k8s:app=t", FrtopError("no pod", "look")),))
    session = session_with(agents, places)
    session.discover(S)
    assert hosts_of(session) == {"k8s:app=t": ("failed", "")}


def test_what_was_not_asked_for_is_not_taken_in(
    agents: FakeAgents, resolved: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One host answers what another was asked, another question, for another rank, or nobody."""
    session = session_of(agents, "n", "m")
    resolved += [Endpoint("n", "10.0.0.1", 7677, 7678), Endpoint("m", "10.0.0.2", 7677, 7678)]
    session.discover(S)
    respond(session, "n", "first", {1: 0, 2: 1})
    respond(session, "m", "second", {1: 2})
    session.requests.watch(frozenset({0}))
    frame = frame_of(session)
    (number,) = (
        one.id
        for host, one in agents.sent
        if host == "n" and isinstance(one, wire.SnapshotRequest) and one.stacks
    )
    look = wire.Snapshot(1, S, frame.ranks[0].status, dumps=(wire.StackDump(7, error="lie"),))
    forged = wire.SnapshotResponse(number, "n", (look,))
    taken: list[wire.SnapshotResponse] = []
    monkeypatch.setattr(session._state, "apply_snapshots", lambda _, one: taken.append(one))
    session.handle(ResponseReceived("m", forged), S)
    session.handle(ResponseReceived("n", replace(forged, id=number + 99)), S)
    update = wire.Update("n", "first", 9, S, S, full=True)
    session.handle(ResponseReceived("n", wire.StateResponse(number, update)), S)
    assert not taken
    assert len(session._state.frame(S, S, None).ranks) == 3
    session.handle(ResponseReceived("n", forged), S)
    assert taken == [forged]
    session.handle(ResponseReceived("n", forged), S)  # again: nobody asked twice
    assert taken == [forged]
