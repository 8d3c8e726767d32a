"""Lines of a pipe: whatever arrives in whatever pieces, messages come out whole, or noise."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.pipe.lines import encoded
from frtop_tui.connect.pipes import framing
from frtop_tui.connect.pipes.framing import LineStream, Message, MessageReader, PipeError, readable

WORDS = st.sampled_from(["up", "res", "hello", "error", "pong"])
LINE = st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b"").removesuffix(b"\r"))


def sent(message: Message, piece: int) -> bytes:
    """As the other end writes it, in pieces of so many letters."""
    pieces = [message.text[at : at + piece] for at in range(0, len(message.text), piece)] or [b""]
    *first, last = pieces
    lines = [b"frtop-more %b\n" % one for one in first]
    return b"".join([*lines, b"frtop-%b %b\n" % (message.word.encode(), last)])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(marks)]


@given(st.lists(LINE), st.lists(st.integers(0, 10_000), max_size=20), st.sampled_from([b"", b"\r"]))
def test_lines_do_not_depend_on_how_they_arrive(
    lines: list[bytes], places: list[int], end: bytes
) -> None:
    stream = LineStream()
    data = b"".join(line + end + b"\n" for line in lines)
    assert [line for piece in cut(data, places) for line in stream.feed(piece)] == lines


@given(st.lists(st.tuples(WORDS, st.binary(max_size=500))), st.integers(1, 90))
def test_messages_come_out_whole_between_noise(found: list[tuple[str, bytes]], piece: int) -> None:
    messages = [Message(word, base64.b64encode(data)) for word, data in found]
    reader, stream = MessageReader(), LineStream()
    data = b"".join(b"Welcome!\n" + sent(message, piece) for message in messages)
    read = [one for line in stream.feed(data) if (one := reader.feed(line)) is not None]
    assert read == messages
    assert [one.frame() for one in read] == [data for _, data in found]


@given(st.lists(st.binary(max_size=300)))
def test_noise_is_bounded_and_printable(lines: list[bytes]) -> None:
    reader = MessageReader()
    for line in lines:
        if not line.startswith(b"frtop-"):
            assert reader.feed(line) is None
    assert len(reader.noise) <= framing.NOISE_LINES
    assert all(line.isprintable() and len(line) <= framing.NOISE_COLUMNS for line in reader.noise)


def test_a_line_without_an_end_takes_no_memory() -> None:
    stream = LineStream()
    for _ in range(100):
        assert not list(stream.feed(b"x" * 10_000))
    assert len(stream.rest()) == framing.MAX_LINE
    assert list(stream.feed(b"\nnext\n"))[1] == b"next"


def test_a_message_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_TEXT", 1000)
    reader = MessageReader()
    piece = b"frtop-more " + b"A" * 400
    assert reader.feed(piece) is reader.feed(piece) is None
    with pytest.raises(PipeError):
        reader.feed(piece)


def test_what_is_no_base64_is_refused() -> None:
    with pytest.raises(PipeError):
        Message("up", b"?!").frame()


def test_control_sequences_do_not_get_through() -> None:
    assert readable(b"\x1b[31mred\x07 \xff") == readable(b"\x1b[31mred\x07 \xff").strip()
    assert "\x1b" not in readable(b"\x1b[31mred\x07")


@given(st.binary(max_size=5000))
def test_what_the_agent_writes_is_read(data: bytes) -> None:
    written = encoded(b"frtop-up", data)
    assert all(len(line) <= 900 for line in written.splitlines(keepends=True))
    reader = MessageReader()
    *first, last = (reader.feed(line) for line in LineStream().feed(written))
    assert first == [None] * len(first)
    assert last is not None
    assert (last.word, last.frame()) == ("up", data)
