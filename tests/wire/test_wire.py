"""Messages survive encoding; fields of later versions are ignored, anything else is refused."""

from __future__ import annotations

import random
import time
import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.wire import codec
from frtop_probe.wire.values import LARGEST
from history_rows import HistoryRow, packed
from wire.messages import ANSWERS, FILE, MESSAGES, UPDATE, lines


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Generates any value of a wire type."""
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(strategy(argument) for argument in arguments))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*(strategy(argument) for argument in arguments))
    if origin is tuple:
        return st.lists(strategy(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        key, value = map(strategy, arguments)
        return st.dictionaries(key, value, max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        fields = {name: strategy(hints[name]) for name in kind.__struct_fields__}
        return st.builds(kind, **fields)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-LARGEST, LARGEST),
        str: st.text(max_size=8),
        bytes: st.binary(max_size=8),
        bool: st.booleans(),
        float: st.floats(-1e300, 1e300),
        type(None): st.none(),
    }
    return simple[kind]


@given(strategy(wire.Update))
def test_updates_survive_encoding(update: wire.Update) -> None:
    assert wire.decode_update(wire.encode(update)) == update


@given(st.one_of(*map(strategy, wire.declared())))
def test_requests_survive_encoding(request: wire.Request) -> None:
    assert wire.decode_request(wire.encode(request)) == request


@given(st.one_of(*map(strategy, ANSWERS)))
def test_responses_survive_encoding(response: wire.Response) -> None:
    assert wire.decode_response(wire.encode(response)) == response


def test_no_field_moves_or_changes() -> None:
    """If it is meant: `python -m wire.messages`, in tests/; after the first release add only."""
    assert lines() == FILE.read_text(), "python -m wire.messages, in tests/"


def lengthened(value: Any) -> Any:
    """A message of a newer version: every struct has two more fields."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        if not value.__struct_config__.array_like:
            named = {name: lengthened(getattr(value, name)) for name in value.__struct_fields__}
            return {**named, "of a later version": [1]}
        fields = [lengthened(getattr(value, name)) for name in value.__struct_fields__]
        return [*([tag] if tag else []), *fields, "of a later version", [1]]
    if isinstance(value, tuple):
        return [lengthened(part) for part in value]
    return value


@pytest.mark.parametrize("number", [LARGEST + 1, -LARGEST - 1, 2**64 - 1])
def test_integers_whose_sums_could_not_be_sent_are_refused(number: int) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_update(msgspec.msgpack.encode(["node4", "99", 3, number, 6, []]))
    with pytest.raises(wire.WireError):
        wire.size_of_rank(wire.RankUpdate(number))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused(number: float) -> None:
    group = wire.Group(1, "0", "", "gloo", "0-3", timeout_s=number)
    with pytest.raises(wire.WireError):
        wire.size_of_rank(wire.RankUpdate(1, groups=(group,)))


def test_unknown_trailing_fields_are_ignored() -> None:
    for decode, message in MESSAGES.values():
        assert getattr(wire, decode)(msgspec.msgpack.encode(lengthened(message))) == message


def test_missing_trailing_fields_have_defaults() -> None:
    short = wire.decode_update(msgspec.msgpack.encode(["node4", "99", 3, 5, 6, [[1]]]))
    assert short == wire.Update("node4", "99", 3, 5, 6, (wire.RankUpdate(1),))
    assert wire.decode_request(msgspec.msgpack.encode(["look", 4, [1]])) == wire.SnapshotRequest(
        4, (1,)
    )


@pytest.mark.parametrize("decode", [wire.decode_update, wire.decode_request, wire.decode_response])
@given(data=st.binary(max_size=64))
def test_malformed_data_raises_only_wire_errors(decode: Any, data: bytes) -> None:
    try:
        decode(data)
    except wire.WireError:
        return


def test_a_tag_that_is_no_text_raises_a_wire_error() -> None:
    with pytest.raises(wire.WireError):  # msgspec raises UnicodeDecodeError for it
        wire.decode_request(b"\x91\xa3\x00\x00\x80")


def test_a_deeply_nested_message_raises_a_wire_error() -> None:
    with pytest.raises(wire.WireError):
        wire.decode_update(b"\x91" * 100_000)


def test_a_message_that_is_too_large_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_MESSAGE", 10)
    with pytest.raises(wire.WireError, match="larger"):
        wire.decode_update(wire.encode(UPDATE))


def dense(count: int, one: bytes) -> bytes:
    """An update with so many of `one`: of two bytes each struct takes two hundred."""
    start = b"\x98\xa1h\xa1i\x01\x01\x01"
    many = b"\xdd" + count.to_bytes(4, "big") + one * count
    return start + (b"\x90\x90" + many if one[0] >= 0xA0 else many + b"\x90\x90")


@pytest.mark.parametrize("one", [b"\x91\x01", b"\xa1a"])
def test_a_message_that_takes_far_more_memory_than_bytes_is_not_decoded(one: bytes) -> None:
    assert wire.decode_update(dense(1000, one))
    begin = time.thread_time()
    with pytest.raises(wire.WireError, match="objects"):
        wire.decode_update(dense(8_000_000, one))
    assert time.thread_time() - begin < 1.0


def test_what_agents_send_is_never_too_dense() -> None:
    """The fullest answers: every op of a long ring as a row, a piece of a tensor of any bytes."""
    row = HistoryRow(
        2**40, 2**30, 2**30, 9, 9, 2**62 - 1, 2**62 - 1, 2**40, 2**40, True, 9, 9, 2**60
    )
    rows = wire.HistoryResponse(1, "n", 1, wire.History(columns=packed((row,) * 65_536)))
    assert wire.decode_response(wire.encode(rows)) == rows
    noise = random.Random(1).randbytes(16 << 20)
    data = wire.Piece(1, 1, 0, len(noise), len(noise), noise)
    assert wire.decode_response(wire.encode(data)) == data
