"""How far a start has come, and what is said when it goes wrong."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from frtop_probe import wire
from frtop_tui.connect.connection_events import (
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    Examined,
    Progressed,
    ResponseReceived,
    UpdateReceived,
)
from frtop_tui.connect.pipes.conversation import Conversation, Phase


def line(word: str, **fields: Any) -> bytes:
    return f"frtop-{word} {json.dumps(fields)}".encode()


def frame(word: str, message: wire.Update | wire.Response) -> bytes:
    return f"frtop-{word} ".encode() + base64.b64encode(wire.to_frame(message))


def update(instance: str = "i") -> wire.Update:
    return wire.Update("node0", instance, 1, 0, 0)


BOOT = line("boot", python="3.11.2", machine="x86_64", host="node3.site", task="3")
HELLO = line("hello", instance="i", has_py_spy=False, machine="x86_64", later=[1])


def talk(*lines: bytes, hosts: frozenset[str] = frozenset()) -> tuple[Conversation, list[Any]]:
    conversation = Conversation("node0", hosts)
    events: list[ConnectionEvent] = []
    for one in lines:
        events += conversation.take(one)
    return conversation, events


def test_a_start_goes_from_a_python_to_an_agent() -> None:
    conversation, events = talk(b"Welcome to node0", b"", BOOT, HELLO, frame("up", update()))
    assert conversation.phase is Phase.UP
    assert conversation.noise == ("Welcome to node0",)
    assert events == [
        Progressed("node0", "Python 3.11.2, sending the agent"),
        Connected("node0"),
        UpdateReceived(update()),
    ]


def test_a_response_is_handed_on() -> None:
    response = wire.TimeResponse(7, 1, 2)
    _, events = talk(BOOT, HELLO, frame("res", response), b"frtop-pong 4", b"frtop-later x")
    assert events[-1] == ResponseReceived("node0", response)


def test_a_doctor_waits_for_an_order_and_takes_a_tool_before_and_after_it() -> None:
    """In one step some hosts have a py-spy and begin at once; the others wait for theirs."""
    doctor = line("hello", examines=True, has_py_spy=False, machine="x86_64")
    conversation, _ = talk(BOOT, doctor)
    assert (conversation.awaits_order, conversation.takes_tool) == (True, True)
    conversation.ordered = True
    assert (conversation.awaits_order, conversation.takes_tool) == (False, True)
    agent, _ = talk(BOOT, HELLO)
    assert (agent.awaits_order, agent.takes_tool) == (False, False)


def test_facts_come_as_they_were_written_and_from_no_agent() -> None:
    _, events = talk(BOOT, line("hello", examines=True), b"frtop-doctor {}")
    assert events[-1] == Examined("node0", b"{}")
    of_agent, events = talk(BOOT, HELLO, b"frtop-doctor {}")
    assert (of_agent.phase, len(events)) == (Phase.UP, 2), "an agent says no such thing"


def test_of_a_shared_pipe_the_other_end_knows_which_host_it_is() -> None:
    conversation, events = talk(BOOT, hosts=frozenset({"node0", "node3"}))
    assert conversation.host == "node3"
    assert events[0].host == "node3"


@pytest.mark.parametrize(
    "lines",
    [
        [b"frtop-boot nonsense"],
        [BOOT, b"frtop-hello [1"],
        [BOOT, HELLO, b"frtop-up ?"],
        [BOOT, HELLO, b"frtop-up " + base64.b64encode(b"nonsense")],
        [BOOT, HELLO, frame("up", update("another agent's"))],
        [b'frtop-boot {"python": 3}'],
    ],
)
def test_nonsense_ends_the_conversation_with_words(lines: list[bytes]) -> None:
    conversation, events = talk(*lines)
    assert conversation.phase is Phase.OVER
    assert isinstance(events[-1], ConnectionFailed)
    assert "cannot read" in events[-1].error.text
    assert not list(conversation.take(HELLO))


def test_what_the_other_end_says_of_itself_is_bounded_and_printable() -> None:
    text = "no Python 3.10\x1b[2J " + "x" * 10_000
    _, events = talk(line("error", text=text, next="name one with --python PATH"))
    failed = events[-1]
    assert isinstance(failed, ConnectionFailed)
    assert failed.error.text.startswith("node0: no Python 3.10")
    assert len(failed.error.text) < 1000
    assert failed.error.text.isprintable()
    assert failed.error.next_step == "name one with --python PATH"


def test_nothing_is_an_update_before_the_agent_says_hello() -> None:
    _, events = talk(BOOT, frame("up", update()))
    assert len(events) == 1


def test_what_an_agent_cannot_do_there_is_told() -> None:
    problem = {"text": "no stacks: the kernel does not run files in memory", "next": "allow it\x1b"}
    hello = line("hello", instance="i", problems=[problem] * 100)
    _, events = talk(BOOT, hello)
    assert isinstance(events[-1], Connected)
    assert len(events[-1].limits) < 10
    assert (
        events[-1]
        .limits[0]
        .startswith("no stacks: the kernel does not run files in memory; allow it")
    )
    assert events[-1].limits[0].isprintable()


def test_an_error_that_was_cut_is_shown_as_it_came() -> None:
    _, events = talk(b'frtop-error {"text": "no Python 3.10 or later was found; /usr/bin/pyth')
    assert isinstance(events[-1], ConnectionFailed)
    assert "no Python 3.10 or later was found" in events[-1].error.text


def test_a_host_that_keeps_us_from_the_others_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends what takes long to decode, again and again; others send it once in a while."""
    clock, spent = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "thread_time", lambda: spent[0])
    decode = wire.decode_update

    def slowly(data: bytes) -> wire.Update:
        spent[0] += 0.5
        return decode(data)

    monkeypatch.setattr(wire, "decode_update", slowly)
    rare, _ = talk(BOOT, HELLO)
    for _ in range(100):
        clock[0] += 2.0
        assert list(rare.take(frame("up", update()))) == [UpdateReceived(update())]
    often, _ = talk(BOOT, HELLO)
    events = [event for _ in range(100) for event in often.take(frame("up", update()))]
    (failed,) = (event for event in events if isinstance(event, ConnectionFailed))
    assert "node0 sends more than frtop can read" in failed.error.text
    assert len(events) < 10
    assert often.phase is Phase.OVER


@pytest.mark.parametrize("word", ["boot", "hello", "error", "ended"])
def test_what_a_host_says_of_itself_is_short(word: str) -> None:
    """Two bytes make an object of a hundred."""
    long = f'frtop-{word} {{"problems": [{",".join(["{}"] * 1_000_000)}]}}'.encode()
    begin = time.thread_time()
    conversation = Conversation("node0", frozenset(), ("ssh", "node0"))
    events = [*conversation.take(BOOT), *conversation.take(long)]
    assert isinstance(events[-1], ConnectionFailed)
    assert time.thread_time() - begin < 1.0
