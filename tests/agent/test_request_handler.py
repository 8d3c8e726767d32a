"""The rights of operators, checked with real agents."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from agent.agent_host import DEADLINE, Host, Operator, handshake
from agent.unprepared_fakes import EPOCH_NS, SECOND, backend, c10d, entry, group, unprepared_rank
from frtop_probe import keys, wire
from frtop_probe.agent.announcement import Announcement
from frtop_probe.agent.key_rights import KeyRights
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.request_handler import RequestHandler
from frtop_probe.agent.ring_rank import UnreadableRank
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.unprepared.unprepared_rank import FIRST_READS
from frtop_probe.keys import AuthorizedKey, KeyPair, editing
from frtop_probe.unprepared.model import FlightRing
from frtop_probe.unprepared.worker import Look
from frtop_probe.wire.recording import ChangeRecording
from history_rows import rows_of
from waiting import wait_for


@dataclass
class Users:
    """Three users with a key file each; the owner runs the agent."""

    host: Host
    owner: KeyPair
    colleague: KeyPair
    stranger: KeyPair

    def admit(self, right: keys.Right = "read") -> None:
        editing.admit(self.owner, AuthorizedKey(self.colleague.public, right, "colleague"))

    def operator(self, card: Announcement, pair: KeyPair) -> Operator:
        self.host.operators.append(Operator(card, pair))
        return self.host.operators[-1]


@pytest.fixture
def users(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Users:
    pairs = []
    for name in ("colleague", "stranger"):
        monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / name / "key"))
        pairs.append(keys.load(create=True))
    monkeypatch.setenv("FRTOP_KEY_FILE", str(host.key_file))
    return Users(host, keys.load(create=False), *pairs)


def may_act(operator: Operator, *, read_only: bool = False) -> bool:
    """The right that the agent reports, checked against the requests it accepts."""
    operator.requests_sent += 1
    response = operator.request(wire.StateRequest(operator.requests_sent, read_only))
    assert isinstance(response, wire.StateResponse), response
    acts = [kind for kind in rank_requests() if kind.acts]
    assert len(acts) > 1
    for act in (kind(id=-n, key=10**6) for n, kind in enumerate(acts, 1)):
        refused = error_of(operator, act)
        assert (refused is None or refused.reason != "permission") == response.may_act, refused
    return response.may_act


def rank_requests() -> list[type[wire.RankRequest]]:
    """Those of the core and of all features."""
    return [kind for kind in wire.declared() if issubclass(kind, wire.RankRequest)]


def error_of(operator: Operator, request: wire.Request) -> wire.Error | None:
    response = operator.request(request)
    return response if isinstance(response, wire.Error) else None


def is_refused(card: Announcement, pair: KeyPair) -> bool:
    outcome = handshake(card, (pair.public, pair.secret), card.ask)
    return outcome == zmq.Event.HANDSHAKE_FAILED_AUTH


def test_the_owner_acts_a_reader_reads_and_a_stranger_is_refused(users: Users) -> None:
    users.admit("read")
    rank = users.host.rank("wait")
    card = users.host.agent()
    owner = users.operator(card, users.owner)
    known = owner.ranks()
    assert may_act(owner)

    reader = users.operator(card, users.colleague)
    assert reader.state().ranks[0].identity == known[0].identity
    assert not may_act(reader)
    assert reader.snapshots(known[0].key)[0].processes[0].pid == rank.pid
    assert isinstance(reader.request(wire.TimeRequest(50)), wire.TimeResponse)
    assert isinstance(reader.request(wire.HistoryRequest(51, known[0].key)), wire.HistoryResponse)
    told = reader.request(wire.StatisticsRequest(51, (known[0].key,), samples=8, steps=2))
    assert isinstance(told, wire.StatisticsResponse)
    assert [one.key for one in told.ranks] == [known[0].key]
    error = error_of(reader, wire.NativeStacksRequest(52, known[0].key))
    assert error is not None
    assert error.id == 52
    assert f"`frtop key admit {users.colleague.shown}`" in error.text
    assert reader.update().number

    assert is_refused(card, users.stranger)


def test_the_log_has_who_acted_on_which_rank_once_and_no_secret(users: Users) -> None:
    users.owner.path.with_name(keys.AUTHORIZED).write_text("nonsense\n")
    rank = users.host.rank("wait")
    owner = users.operator(users.host.agent(), users.owner)
    key = owner.ranks()[0].key
    for number in range(3):
        owner.request(ChangeRecording(number, key, note="x"))
        owner.request(wire.HistoryRequest(10 + number, key))  # this one only reads
    users.host.agents[-1].terminate()
    output, errors = users.host.agents[-1].communicate(timeout=DEADLINE)
    assert errors.count(f"ChangeRecording of process {rank.pid}, asked by") == 1
    assert f"ChangeRecording of process {rank.pid}, 2 more since" in errors
    assert users.owner.shown in errors
    assert errors.count(f"HistoryRequest of process {rank.pid}, asked by") == 1
    assert "line 1: not a public key" in errors
    assert users.owner.secret.decode() not in output + errors


def test_changes_of_the_list_of_keys_count_at_once(users: Users) -> None:
    card = users.host.agent()
    assert is_refused(card, users.colleague)
    users.admit("read")
    colleague = users.operator(card, users.colleague)
    assert not may_act(colleague)
    users.admit("act")  # on the existing connection
    assert may_act(colleague)
    editing.remove(users.owner, users.colleague.public)
    for request in (
        wire.StateRequest(60),
        wire.TimeRequest(61),
        wire.SnapshotRequest(62, (1,)),
        wire.NativeStacksRequest(63, 1),
    ):
        error = error_of(colleague, request)
        assert error is not None
        assert error.reason == "permission"
        assert "no longer admits your key" in error.text
    assert is_refused(card, users.colleague)
    assert may_act(users.operator(card, users.owner))


def test_a_reader_with_many_connections_does_not_block_the_owner(users: Users) -> None:
    users.admit("read")
    users.host.rank("wait")
    card = users.host.agent()
    owner = users.operator(card, users.owner)
    known = owner.ranks()
    others = [users.operator(card, users.colleague) for _ in range(12)]
    for one in others:
        one.state()
    snapshot_request = wire.to_frame(wire.SnapshotRequest(90, (known[0].key,)))
    flood = 4
    os.kill(card.pid, signal.SIGSTOP)  # else it may answer each before the next one arrives
    for _ in range(flood):
        for one in others:
            one.dealer.send(snapshot_request)
    os.kill(card.pid, signal.SIGCONT)
    response = owner.request(wire.HistoryRequest(91, known[0].key))
    assert isinstance(response, wire.HistoryResponse), response
    responses = [wire.decode_response(wire.from_frame(one.dealer.recv())) for one in others * flood]
    refused = [one for one in responses if isinstance(one, wire.Error)]
    assert {one.reason for one in refused} == {"busy"}
    users.host.agents[-1].terminate()
    _, errors = users.host.agents[-1].communicate(timeout=DEADLINE)
    assert f"refused to {users.colleague.shown}" in errors


def test_a_read_only_agent_lets_nobody_act(users: Users) -> None:
    users.admit("act")
    card = users.host.agent(FRTOP_READ_ONLY="1")
    for pair in (users.owner, users.colleague):
        operator = users.operator(card, pair)
        assert not may_act(operator)
        error = error_of(operator, wire.NativeStacksRequest(70, 1))
        assert error is not None
        assert "FRTOP_READ_ONLY" in error.text


def test_rights_belong_to_a_connection_and_not_to_its_id(users: Users) -> None:
    users.admit("act")
    card = users.host.agent()
    careful = users.operator(card, users.owner)
    assert may_act(careful)
    assert not may_act(careful, read_only=True)
    assert not may_act(careful, read_only=False)

    def connect_as(pair: KeyPair) -> Operator:
        operator = users.operator(card, pair)
        operator.dealer.close()
        operator.dealer = operator.socket(zmq.DEALER)
        operator.dealer.routing_id = b"the same"
        operator.dealer.connect(f"tcp://{card.address}:{card.ask}")
        return operator

    def is_admitted(pair: KeyPair, *, read_only: bool) -> bool:
        """Whether the connection id is free again, and the right is that of the key."""
        operator = connect_as(pair)
        operator.dealer.rcvtimeo = 500
        try:
            return may_act(operator, read_only=read_only) is not read_only
        except zmq.Again:
            return False
        finally:
            operator.dealer.close()

    first = connect_as(users.owner)
    assert may_act(first)
    second = connect_as(users.colleague)  # while the first one is connected
    second.dealer.rcvtimeo = 1000
    with pytest.raises(zmq.Again):
        second.state()
    assert may_act(first)
    first.dealer.close()
    for pair, read_only in ((users.colleague, True), (users.owner, False)):
        admitted = functools.partial(is_admitted, pair, read_only=read_only)
        assert wait_for(admitted, "the name is free again, and rights go with the key")


def test_a_malformed_list_admits_nobody_new_and_is_a_note(users: Users) -> None:
    users.admit("act")
    list_file = users.owner.path.with_name(keys.AUTHORIZED)
    card = users.host.agent()
    colleague = users.operator(card, users.colleague)
    assert may_act(colleague)
    list_file.write_text(f"{users.stranger.shown} act\nwho is that?\n")
    assert may_act(colleague)  # the last valid list holds
    assert is_refused(card, users.stranger)
    owner = users.operator(card, users.owner)
    assert any("line 2: not a public key" in note for note in owner.state().notes)

    list_file.write_text(f"{users.stranger.shown} read\n")
    assert not may_act(users.operator(card, users.stranger))
    assert error_of(colleague, wire.StateRequest(80)) is not None
    (note,) = owner.state().notes
    assert "valid again" in note
    notes = wait_for(lambda: owner.update().notes, "updates have the notes too")
    assert "line 2" in notes[0] or "valid again" in notes[0]


async def test_a_hung_home_delays_no_request_for_long(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_probe.agent.key_rights.TIMEOUT_S", 0.2)
    dead = threading.Event()
    alive = threading.Event()
    alive.set()

    def read(pair: KeyPair) -> tuple[AuthorizedKey, ...]:
        if dead.is_set():
            assert alive.wait(DEADLINE)
        return (AuthorizedKey(users.colleague.public, "act"),)

    admission = KeyRights(users.owner, read=read)
    assert await admission.right(users.colleague.public) == "act"
    alive.clear()
    dead.set()
    for _ in range(2):
        begin = time.monotonic()
        assert await admission.admits(users.owner.public)
        assert await admission.right(users.owner.public) == "act"
        assert await admission.right(users.colleague.public) == "act"  # the last known right
        assert not await admission.admits(users.stranger.public)
        assert time.monotonic() - begin < DEADLINE / 2
    assert "does not answer" in admission.notes[0]
    alive.set()
    while "valid again" not in admission.notes[0]:
        assert await admission.right(users.colleague.public) == "act"


async def test_without_threads_the_known_rights_hold(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    admission = KeyRights(users.owner)
    assert not await admission.admits(users.stranger.public)
    assert await admission.admits(users.owner.public)
    assert "can't start new thread" in admission.notes[0]


def test_a_rank_without_a_recorder_has_torchs_history_and_cannot_be_asked(tmp_path: Path) -> None:
    rank = unprepared_rank()
    tracker = RankTracker([tmp_path])
    tracker.ranks[rank.key] = rank

    def never() -> wire.Update:
        raise AssertionError("nobody asks for the state")

    channel: Any = SimpleNamespace(rights=None)
    handler = RequestHandler("n", tracker, channel, never, SnapshotTaker())
    assert rank.key not in tracker.shown
    in_rank = [kind for kind in rank_requests() if kind.in_rank]
    assert ChangeRecording in in_rank
    for request in (kind(id=n, key=rank.key) for n, kind in enumerate(in_rank, 2)):
        response = asyncio.run(handler._respond(request))
        assert isinstance(response, wire.Error)
        assert (response.id, response.reason) == (request.id, "unprepared")
        assert f"process {rank.pid} has no recorder" in response.text
    why = f"{wire.OF_RECORDER}its ring cannot be read (of another size)"
    instead = UnreadableRank(7, rank, why, None)
    tracker.ranks[instead.key] = instead
    response = asyncio.run(handler._respond(ChangeRecording(9, instead.key)))
    assert isinstance(response, wire.Error)
    assert response.text == why
    assert rank.key in tracker.shown  # who is asked for is kept in detail for a while
    looking = wire.SnapshotRequest(4, (rank.key,), ops=50)
    taken = asyncio.run(handler._respond(looking))
    assert isinstance(taken, wire.SnapshotResponse)
    ((snapshot,)) = taken.snapshots
    assert (snapshot.ops, snapshot.status, snapshot.processes[0].pid) == ((), None, rank.pid)

    none = asyncio.run(handler._respond(wire.HistoryRequest(5, rank.key, 10)))
    assert isinstance(none, wire.Error)
    assert (none.reason, none.text) == ("unprepared", "the Flight Recorder has not been read yet")
    now = c10d(group("0", backend(4)))
    rank.take(Look(rank.pid, now), SECOND)
    ring = FlightRing("gloo", 2000, 4, tuple(entry(n) for n in range(1, 5)))
    waited: list[int] = []

    async def read(limit: int) -> None:
        """A first read takes longer than anybody waits at once."""
        waited.append(limit)
        if len(waited) == FIRST_READS:
            rank.take_ring(Look(rank.pid, now, rings=(ring,), after=now), SECOND, EPOCH_NS)

    rank.read_ring = read
    found = asyncio.run(handler._respond(wire.HistoryRequest(6, rank.key, 3)))
    assert isinstance(found, wire.HistoryResponse)
    assert [row.number for row in rows_of(found.history)] == [2, 3, 4]
    told = asyncio.run(handler._respond(wire.StatisticsRequest(6, (rank.key,), samples=8)))
    assert isinstance(told, wire.StatisticsResponse)
    (seen,) = told.ranks
    assert seen.rows is not None
    assert (seen.rows.kind, seen.rows.count, seen.rows.timed) == (("all_reduce",), (4,), (0,))
    assert (seen.samples[0].count, seen.steps) == (4, None)
    assert "end times of ops are unknown" in seen.note
    some = asyncio.run(handler._respond(wire.HistoryRequest(7, rank.key, 0, 1, 2, 3)))
    assert isinstance(some, wire.HistoryResponse)
    assert [row.number for row in rows_of(some.history)] == [2, 3]
    taken = asyncio.run(handler._respond(looking))
    assert isinstance(taken, wire.SnapshotResponse)
    ((snapshot,)) = taken.snapshots
    assert len(snapshot.ops) == 4
    assert snapshot.ops_note.startswith("Flight Recorder: the last 4 of 4 ops of gloo")
