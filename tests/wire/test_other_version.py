"""Agents and screens of neighbouring versions understand each other as far as both can.

`earlier.jsonl` are messages of an earlier state of the wire, made like `messages.jsonl`. With each
release it becomes what `messages.jsonl` was in the release before. Files of earlier versions:
`tests/files/test_recorded_bytes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from agent.agent_host import Host
from frtop_probe import wire
from frtop_probe.agent import announcement
from frtop_tui.job.model import HostView
from frtop_tui.text.notes import job_notes, own_version
from screens.scenes import hung
from wire.messages import MESSAGES
from wire.test_wire import lengthened

EARLIER: Final = Path(__file__).with_name("earlier.jsonl").read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host(tmp_path, monkeypatch)
    yield host
    host.close()


def begins(earlier: Any, now: Any) -> bool:
    """Whether `now` says the same and perhaps more: fields at the end, with their defaults."""
    if isinstance(earlier, list):
        return len(earlier) <= len(now) and all(map(begins, earlier, now))
    if isinstance(earlier, dict):
        return all(name in now and begins(one, now[name]) for name, one in earlier.items())
    return bool(earlier == now)


@pytest.mark.parametrize("line", EARLIER, ids=range(len(EARLIER)))
def test_messages_of_an_earlier_version_are_read(line: str) -> None:
    said = json.loads(line)
    kinds = [type(one) for _, one in MESSAGES.values()]
    tagged = [kind for kind in kinds if kind.__struct_config__.tag == said[0]]
    named = [kind for kind in kinds if str(said[0]).partition(".")[0] == kind.__name__]
    read = []
    for kind in tagged or named:
        try:
            read.append(msgspec.json.decode(line, type=kind))
        except msgspec.ValidationError:
            continue  # a request and its answer may have one tag
    again = [json.loads(msgspec.json.encode(one)) for one in read]
    assert any(begins(said, one) for one in again), f"no type reads {line[:200]}"


def test_an_agent_answers_a_newer_screen(host: Host) -> None:
    host.rank("wait")
    operator = host.operator(host.agent())
    (rank,) = operator.ranks()
    asked = wire.SnapshotRequest(7, (rank.key,))
    operator.dealer.send(wire.PROTOCOL + msgspec.msgpack.encode(lengthened(asked)))
    answer = wire.decode_response(wire.from_frame(operator.dealer.recv()))
    assert isinstance(answer, wire.SnapshotResponse)
    assert answer.id == 7


def test_an_agent_says_what_it_does_not_understand(host: Host) -> None:
    operator = host.operator(host.agent())
    operator.dealer.send(wire.PROTOCOL + msgspec.msgpack.encode(["of a later version", 7, 1]))
    answer = wire.decode_response(wire.from_frame(operator.dealer.recv()))
    assert isinstance(answer, wire.Error)
    assert "older than the screen" in answer.text
    assert operator.state().full  # and goes on


def test_cards_of_older_and_newer_agents_are_read(host: Host) -> None:
    card = host.agent()
    known = json.loads(host.files.card.read_text())
    host.files.card.write_text(json.dumps({**known, "of a later version": 1}))
    assert announcement.find_agent(host.folder) == card
    for name in ("pid_namespace", "net_namespace"):  # what has a default
        del known[name]
    host.files.card.write_text(json.dumps(known))
    found = announcement.find_agent(host.folder)
    assert found is not None
    assert (found.ask, found.instance) == (card.ask, card.instance)
    del known["ask"]
    host.files.card.write_text(json.dumps(known))
    assert announcement.find_agent(host.folder) is None


def shown(*versions: str) -> list[str]:
    """The notes on a job with these versions of agents."""
    hosts = (HostView(f"node{n}", "reporting", version=one) for n, one in enumerate(versions))
    frame = msgspec.structs.replace(hung(), hosts=tuple(hosts))
    return [note for note in job_notes(frame) if "this is" in note]


def test_a_screen_says_which_agents_are_of_another_version() -> None:
    own = own_version()
    assert own
    assert shown(own, "", own) == []
    ends = f"this is {own}: each leaves out what it does not know"
    assert shown("0.0.9", own, "0.0.9", "0.9.0\x1b[1m") == [
        f"the agent on node[0,2] is frtop 0.0.9, {ends}",
        f"the agent on node3 is frtop 0.9.0\ufffd[1m, {ends}",
    ]
