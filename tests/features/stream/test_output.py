"""Events on a pipe: slow readers, readers that leave, hostile names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import msgpack
import pytest

from frtop_tui.features.stream.events import EventsLost, HostChanged, StreamEnd, StreamEvent
from frtop_tui.features.stream.output import EventOutput, json_line, msgpack_map
from waiting import wait_for

HOSTILE = "\x1b]0;x\x07 \x9b2J \x7f \u202egnp \ud800 \n\u2028"


def host(name: str = "node0", size: int = 0) -> HostChanged:
    return HostChanged(
        at_s=1.0, host=name, state="reporting", was=None, problem="x" * size, clock_error_s=None
    )


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_hostile_names_are_one_line_of_plain_ascii() -> None:
    line = json_line(host(HOSTILE))
    assert line.endswith(b"\n")
    assert line[:-1].decode("ascii").isprintable()
    assert json.loads(line)["host"] == HOSTILE


def test_a_name_that_is_no_unicode_does_not_end_the_stream() -> None:
    assert msgpack.unpackb(msgpack_map(host("a\ud800b")))["host"] == "a?b"


def test_a_reader_that_falls_behind_is_told_what_it_lost(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = EventOutput(writer, json_line, most_bytes=200_000)
    for number in range(1000):  # 1 MB: the pipe takes 64 KiB, the queue 200 KB
        output.put(host(f"node{number}", size=1000))
    assert output.take_lost() == {}, "there is no room to say so yet"
    found: list[StreamEvent] = []

    def told() -> bool:
        os.read(reader, 10_000)
        if lost := output.take_lost():
            found.append(EventsLost(at_s=2.0, why="reader", counts=lost))
            output.put(found[0])
        return bool(found)

    wait_for(told, "room")
    output.put(StreamEnd(at_s=3.0, reason="recorded"))
    data = b""
    while b'"end"' not in data:
        data += os.read(reader, 1 << 20)
    *_, before, lost, _ = [json.loads(line) for line in data.splitlines()[1:]]
    assert lost["event"] == "lost"
    (count,) = lost["counts"].values()
    assert int(before["host"][4:]) + 1 + count == 1000, "one gap, at one place"


def test_nobody_waits_for_a_reader_that_reads_nothing(pipe: tuple[int, int]) -> None:
    output = EventOutput(pipe[1], json_line, most_bytes=100_000)
    for _ in range(500):
        output.put(host(size=1000))
    output.close(0.2)
    assert output.failure is None


def test_a_reader_that_leaves_is_noticed_without_an_event(pipe: tuple[int, int]) -> None:
    output = EventOutput(pipe[1], json_line)
    assert output.failure is None
    os.close(pipe[0])
    failure = wait_for(lambda: output.failure, "the end of the reader")
    assert isinstance(failure, BrokenPipeError)
    output.put(host(size=9_000_000), patiently=True)
    with pytest.raises(BrokenPipeError):
        output.put(host(size=9_000_000), patiently=True)
