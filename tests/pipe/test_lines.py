"""The lines of the pipe: bounds, and what is malformed."""

from __future__ import annotations

import hashlib
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.pipe import input as pipe_input
from frtop_probe.pipe.input import (
    Bye,
    LineReader,
    LineSplitter,
    Ping,
    RequestLine,
    SentTool,
    ToolExpected,
    Word,
)
from frtop_probe.pipe.lines import MAX_INPUT_LINE, LineError, encoded, tool_block


def words(lines: list[bytes], task: str = "") -> list[Word]:
    reader = LineReader(task)
    return [word for line in lines if (word := reader.read(line.rstrip(b"\n"))) is not None]


@given(st.binary(max_size=3000), st.lists(st.integers(1, 4100), max_size=5))
def test_lines_come_as_they_were_sent_in_whatever_pieces(frame: bytes, sizes: list[int]) -> None:
    stream = encoded(b"req", frame) + b"ping 12\r\n\n" + b"to 3 ping 5\nto 4 bye\n"
    splitter, found = LineSplitter(stream[:1]), []
    stream = stream[1:]
    for size in (*sizes, len(stream)):
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert words(found, "3") == [RequestLine(frame), Ping(b"12"), Ping(b"5")]


def test_a_program_may_have_other_lines_in_between() -> None:
    program = os.urandom(9000)  # more than one line, packed
    sent = list(tool_block("py-spy", program))
    sent[2:2] = [b"ping 1\n", b"to 1 bye\n", encoded(b"req", b"x")]
    expected = [ToolExpected("py-spy"), Ping(b"1"), RequestLine(b"x"), SentTool("py-spy", program)]
    assert words([*sent, b"bye\n"]) == [*expected, Bye()]


def announced(data: bytes) -> bytes:
    return b"tool t %d %s" % (len(data), hashlib.sha256(data).hexdigest().encode())


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b"hello there"], "unexpected line on the pipe: hello there"),
        ([b"\xff\xfe"], "unexpected line on the pipe: \\xff\\xfe"),
        ([b"req !!!"], "not base64"),
        ([b"req YQ"], "not base64"),
        ([b"req " + b"A" * 200_000], "more than 65536 bytes"),
        ([b"tool py-spy"], "announcement"),
        ([b"tool py-spy 0 ab"], "announcement"),
        ([b"tool py-spy 99999999999 ab"], "announcement"),
        ([b"tool ../x 9 ab"], "announcement"),
        ([b"tool py-spy 1 ab", b"YWI="], "arrived damaged"),
        ([b"tool py-spy 2 ab", b"YWI="], "arrived damaged"),
        ([b"tool py-spy 2 ab", b"?"], "not base64"),
        ([announced(b"ab"), b"YWI="], "cannot be unpacked"),
    ],
)
def test_malformed_lines_are_errors_with_words(lines: list[bytes], reason: str) -> None:
    with pytest.raises(LineError) as error:
        words(lines)
    assert reason in str(error.value)


def test_a_line_without_an_end_is_bounded() -> None:
    splitter = LineSplitter()
    splitter.feed(b"x" * MAX_INPUT_LINE)
    with pytest.raises(LineError):
        splitter.feed(b"x")


def test_a_program_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_input, "MAX_TOOL", 1 << 16)
    bomb = zlib.compress(b"\0" * (1 << 17))
    with pytest.raises(LineError, match="larger than"):
        words([*tool_block("t", b"\0" * (1 << 17))])
    assert len(bomb) < 1 << 16
