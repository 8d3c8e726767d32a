"""Who may look and who may act, as real agents see it."""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

from agent.host import DEADLINE, Host, Operator, until
from frtop_probe import keys, wire
from frtop_probe.agent.admission import Admission
from frtop_probe.agent.announcement import Announcement
from frtop_probe.keys import AuthorizedKey, KeyPair, editing


@dataclass
class Users:
    """Three users, each with a key file of their own; the owner runs the agent."""

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
    """What the agent says of itself, checked against what it does."""
    operator.asked += 1
    answer = operator.ask(wire.StateRequest(operator.asked, read_only))
    assert isinstance(answer, wire.StateResponse), answer
    for act in (wire.TensorsRequest(-1, 1), wire.DataRequest(-2, 1, 1, 0, 0, 10)):
        refused = refusal(operator, act)
        assert (refused is None or refused.reason != "permission") == answer.may_act, refused
    return answer.may_act


def refusal(operator: Operator, ask: wire.Request) -> wire.Error | None:
    answer = operator.ask(ask)
    return answer if isinstance(answer, wire.Error) else None


def shut_out(operator: Operator) -> bool:
    """Whether not even the handshake succeeds."""
    operator.dealer.rcvtimeo = 1000
    with pytest.raises(zmq.Again):
        operator.state()
    return True


def test_the_owner_acts_a_reader_reads_and_a_stranger_stays_outside(users: Users) -> None:
    users.admit("read")
    rank = users.host.rank("wait")
    card = users.host.agent()
    owner = users.operator(card, users.owner)
    known = until(lambda: owner.state().ranks, "the agent found the rank")
    assert may_act(owner)

    reader = users.operator(card, users.colleague)
    assert reader.state().ranks[0].identity == known[0].identity
    assert not may_act(reader)
    assert reader.look(known[0].key)[0].processes[0].pid == rank.pid
    assert isinstance(reader.ask(wire.TimeRequest(50)), wire.TimeResponse)
    assert isinstance(reader.ask(wire.HistoryRequest(51, known[0].key)), wire.HistoryResponse)
    said = refusal(reader, wire.TensorsRequest(52, known[0].key))
    assert said is not None
    assert said.id == 52
    assert f"`frtop key admit {users.colleague.shown}`" in said.text
    assert reader.update().number

    assert shut_out(users.operator(card, users.stranger))


def test_who_is_admitted_while_the_agent_runs_is_in_at_once(users: Users) -> None:
    card = users.host.agent()
    assert shut_out(users.operator(card, users.colleague))
    users.admit("read")
    colleague = users.operator(card, users.colleague)
    assert not may_act(colleague)
    users.admit("act")  # on the connection that there is
    assert may_act(colleague)


def test_who_is_removed_is_refused_at_the_next_request(users: Users) -> None:
    users.admit("act")
    card = users.host.agent()
    colleague = users.operator(card, users.colleague)
    assert may_act(colleague)
    editing.remove(users.owner, users.colleague.public)
    for ask in (
        wire.StateRequest(60),
        wire.TimeRequest(61),
        wire.SnapshotRequest(62, (1,)),
        wire.TensorsRequest(63, 1),
    ):
        said = refusal(colleague, ask)
        assert said is not None
        assert said.reason == "permission"
        assert "does not admit your key any more" in said.text
    assert shut_out(users.operator(card, users.colleague))
    assert may_act(users.operator(card, users.owner))


def test_a_reader_on_many_connections_does_not_shut_the_owner_out(users: Users) -> None:
    users.admit("read")
    users.host.rank("wait")
    card = users.host.agent()
    owner = users.operator(card, users.owner)
    known = until(lambda: owner.state().ranks, "the agent found the rank")
    greedy = [users.operator(card, users.colleague) for _ in range(12)]
    for one in greedy:
        one.state()
    look = wire.packed(wire.SnapshotRequest(90, (known[0].key,)))
    flood = 12  # a few may be answered before the next ones arrive
    for _ in range(flood):
        for one in greedy:
            one.dealer.send(look)
    answer = owner.ask(wire.HistoryRequest(91, known[0].key))
    assert isinstance(answer, wire.HistoryResponse), answer
    answers = [wire.decode_response(wire.unpacked(one.dealer.recv())) for one in greedy * flood]
    refused = [one for one in answers if isinstance(one, wire.Error)]
    assert {one.reason for one in refused} == {"busy"}


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_read_only_agent_lets_nobody_act(users: Users, how: str) -> None:
    users.admit("act")
    if how == "option":
        card = users.host.agent("--read-only")
    else:
        card = users.host.agent(FRTOP_READ_ONLY="1")
    for pair in (users.owner, users.colleague):
        operator = users.operator(card, pair)
        assert not may_act(operator)
        said = refusal(operator, wire.TensorsRequest(70, 1))
        assert said is not None
        assert "FRTOP_READ_ONLY" in said.text


def test_a_screen_that_gave_up_acting_cannot_take_it_back(users: Users) -> None:
    card = users.host.agent()
    careful = users.operator(card, users.owner)
    assert may_act(careful)
    assert not may_act(careful, read_only=True)
    assert not may_act(careful, read_only=False)
    assert may_act(users.operator(card, users.owner))  # another connection of the same key


def test_nobody_changes_what_another_may_do_by_taking_its_name(users: Users) -> None:
    users.admit("act")
    card = users.host.agent()

    def named(pair: KeyPair) -> Operator:
        operator = users.operator(card, pair)
        operator.dealer.close()
        operator.dealer = operator.socket(zmq.DEALER)
        operator.dealer.routing_id = b"the same"
        operator.dealer.connect(f"tcp://{card.address}:{card.ask}")
        return operator

    def comes_in(pair: KeyPair, *, read_only: bool) -> bool:
        """Once the agent has noticed that the last one of that name has left."""
        operator = named(pair)
        operator.dealer.rcvtimeo = 500
        try:
            return may_act(operator, read_only=read_only) is not read_only
        except zmq.Again:
            return False
        finally:
            operator.dealer.close()

    first = named(users.owner)
    assert may_act(first)
    assert shut_out(named(users.colleague))  # while the first is there
    assert may_act(first)
    first.dealer.close()
    for pair, read_only in ((users.colleague, True), (users.owner, False)):
        came = functools.partial(comes_in, pair, read_only=read_only)
        assert until(came, "the name is free again, and rights go with the key")


def test_a_broken_list_lets_nobody_in_and_is_said_on_the_screen(users: Users) -> None:
    users.admit("act")
    listed = users.owner.path.with_name(keys.AUTHORIZED)
    card = users.host.agent()
    colleague = users.operator(card, users.colleague)
    assert may_act(colleague)
    listed.write_text(f"{users.stranger.shown} act\nwho is that?\n")
    assert may_act(colleague)  # the last good list holds
    assert shut_out(users.operator(card, users.stranger))
    owner = users.operator(card, users.owner)
    assert any("line 2: not a public key" in note for note in owner.state().notes)

    listed.write_text(f"{users.stranger.shown} read\n")
    assert not may_act(users.operator(card, users.stranger))
    assert refusal(colleague, wire.StateRequest(80)) is not None
    (note,) = owner.state().notes
    assert "in order again" in note
    told = until(lambda: owner.update().notes, "updates tell the notes too")
    assert "line 2" in told[0] or "in order again" in told[0]


async def test_a_home_that_does_not_answer_keeps_nobody_waiting_for_long(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frtop_probe.agent.admission.PATIENCE_S", 0.2)
    dead = threading.Event()
    alive = threading.Event()
    alive.set()

    def read(pair: KeyPair) -> tuple[AuthorizedKey, ...]:
        if dead.is_set():
            assert alive.wait(DEADLINE)
        return (AuthorizedKey(users.colleague.public, "act"),)

    admission = Admission(users.owner, read=read)
    assert await admission.right(users.colleague.public) == "act"
    alive.clear()
    dead.set()
    for _ in range(2):
        begun = time.monotonic()
        assert await admission.admits(users.owner.public)
        assert await admission.right(users.owner.public) == "act"
        assert await admission.right(users.colleague.public) == "act"  # as known last
        assert not await admission.admits(users.stranger.public)
        assert time.monotonic() - begun < 2
    assert "does not answer" in admission.notes[0]
    alive.set()
    while "in order again" not in admission.notes[0]:
        assert await admission.right(users.colleague.public) == "act"


async def test_a_host_without_room_for_a_thread_goes_by_what_it_knows(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    admission = Admission(users.owner)
    assert not await admission.admits(users.stranger.public)
    assert await admission.admits(users.owner.public)
    assert "can't start new thread" in admission.notes[0]


def test_the_secret_is_in_no_output(users: Users) -> None:
    users.owner.path.with_name(keys.AUTHORIZED).write_text("nonsense\n")
    card = users.host.agent()
    users.operator(card, users.owner).state()
    agent = users.host.agents[-1]
    agent.terminate()
    said = "".join(agent.communicate(timeout=DEADLINE))
    assert "line 1: not a public key" in said
    assert users.owner.secret.decode() not in said
