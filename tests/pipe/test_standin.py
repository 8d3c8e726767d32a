"""The stand-in for msgspec makes, takes and refuses what the real one does."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.pipe import msgspec_standin
from frtop_probe.stacks import pyspy_output
from pipe.twin import twin
from wire.messages import MESSAGES

TWIN = twin("frtop_probe.wire")


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_the_same_bytes_in_both_directions(name: str) -> None:
    decode, message = MESSAGES[name]
    data = wire.encode(message)
    here = getattr(TWIN, decode)(data)
    assert TWIN.encode(here) == data
    assert repr(here) == repr(message)
    assert getattr(wire, decode)(TWIN.encode(here)) == message


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.sampled_from([-(2**31), -33, -32, 127, 128, 255, 256, 2**16, 2**32, "x" * 32, "x" * 300]),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=30,
)


@given(PLAIN)
def test_plain_values_are_the_same_bytes(value: Any) -> None:
    assert msgspec_standin.msgpack.encode(value) == msgspec.msgpack.encode(value)


def outcome(decode: Callable[[bytes], Any], data: bytes) -> str:
    """What came of it: the value, or that it was refused as its callers expect."""
    try:
        return repr(decode(data))
    except (wire.WireError, TWIN.WireError):
        return "refused"


@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_damaged_messages_are_refused_or_understood_alike(name: str, data: st.DataObject) -> None:
    decode, message = MESSAGES[name]
    good = bytearray(wire.encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(good) - 1))
        match data.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change":
                good[place] = data.draw(st.integers(0, 255))
            case "cut":
                del good[place : place + data.draw(st.integers(1, 9))]
            case _:
                good[place:place] = data.draw(st.binary(min_size=1, max_size=9))
        if not good:
            break
    damaged = bytes(good)
    assert outcome(getattr(TWIN, decode), damaged) == outcome(getattr(wire, decode), damaged)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ((b"settings", b"\x80ettings"), False),
        ((b"slots", b"\xed\xa0\x80ts"), False),
        ((b"RecordedNow.settings", b"\x80ecordedNow.settings"), True),
        ((b"\xa5slots", b"\xc4\x05slots"), True),
        ((b"\xb7RecordingResponse.error", b"\xb7\x80ecordingResponse.error"), True),
        ((b"RecordingResponse.host", b"\xffecordingResponse.host"), True),
    ],
)
def test_text_that_is_not_utf8_is_refused_where_it_is_read(
    change: tuple[bytes, bytes], refused: bool
) -> None:
    decode, message = MESSAGES["RecordingResponse"]
    good = wire.encode(message)
    damaged = good.replace(*change, 1)
    assert damaged != good
    found = outcome(getattr(TWIN, decode), damaged)
    assert found == outcome(getattr(wire, decode), damaged)
    assert (found == "refused") == refused


@pytest.mark.parametrize(
    "value",
    [
        [], {}, None, "state", ["state"], ["state", "1"], ["state", True], ["state", 1.0],
        ["state", 1, None], ["state", 1, False, "newer"], ["nothing", 1], [1, 1], [None], [[]],
        ["look", 1, []], ["look", 1, [1, "2"]], ["look", 1, {"1": 2}], ["look", 2**63, [2**64 - 1]],
        ["look", -(2**63), [1], False, 1, [1, 2.0]], ["history", 1], ["state", b"1"],
    ],
)  # fmt: skip
def test_requests_of_another_form(value: Any) -> None:
    data = msgpack.packb(value)
    assert outcome(TWIN.decode_request, data) == outcome(wire.decode_request, data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", b"\x91", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xa2\xff\xff",
        b"\x92\xa5state\x01\x00", b"\x92\xa5state\xd4\x00\x00", b"\x92\xa5state\xd6\xff\0\0\0\1",
        b"\x92\xa5stat\xff\x01", b"\x91" * 5000, b"\x92\xa5state" + b"\x91" * 5000,
    ],
)  # fmt: skip
def test_bytes_that_are_no_message(data: bytes) -> None:
    assert outcome(TWIN.decode_request, data) == outcome(wire.decode_request, data) == "refused"


def test_what_cannot_be_encoded_raises_alike() -> None:
    for message, error in (
        (wire.TimeRequest(2**64), OverflowError),
        (wire.Error(1, "\ud800"), UnicodeEncodeError),
    ):
        here = getattr(TWIN, type(message).__name__)(*vars_of(message))
        for encode, one in ((wire.encode, message), (TWIN.encode, here)):
            with pytest.raises(error):
                encode(one)
    assert TWIN.encode(TWIN.TimeRequest(1)) == wire.encode(wire.TimeRequest(1))


def vars_of(message: Any) -> list[Any]:
    return [getattr(message, name) for name in message.__struct_fields__]


SPY = [
    {"thread_id": 1, "active": True, "owns_gil": False, "thread_name": "MainThread", "pid": 3,
     "os_thread_id": 4, "frames": [{"name": "f", "filename": "a.py", "line": 7, "module": None,
     "locals": [{"name": "x", "addr": 1, "arg": True, "repr": "\u00e9\U0001f600"}]}]},
]  # fmt: skip
LOOK = {"pid": 1, "reason": "", "own_pid": 2, "more": [None, 1.5]}
JSON = {"threads": SPY, "looks": LOOK}


def looks(module: Any) -> Any:
    class Look(module.Struct):  # type: ignore[misc]
        __qualname__ = "Look"
        pid: int
        own_pid: int = 0
        library: str = ""

    return module.json.Decoder(Look)


DECODERS = {
    "threads": (pyspy_output._threads, twin(pyspy_output.__name__)._threads),
    "looks": (looks(msgspec), looks(msgspec_standin)),
}


def json_outcome(decoder: Any, data: bytes) -> str:
    try:
        return repr(decoder.decode(data))
    except (msgspec.DecodeError, msgspec_standin.DecodeError, UnicodeDecodeError, RecursionError):
        return "refused"


@given(st.sampled_from(["threads", "looks"]), st.data())
def test_json_of_other_programs_is_read_alike(name: str, data: st.DataObject) -> None:
    real, here = DECODERS[name]
    text = bytearray(json.dumps(JSON[name]).encode())
    assert json_outcome(here, bytes(text)) == json_outcome(real, bytes(text)) != "refused"
    place = data.draw(st.integers(0, len(text) - 1))
    # Not half of a surrogate pair in a part that nobody reads: only msgspec refuses that.
    words = [b"", b"null", b"1", b"-1", b"1e999", b"NaN", b"[", b'"', b"\xff", b"{}",
             b"99999999999999999999", b"1.0", b"true", b"\x01"]  # fmt: skip
    text[place : place + data.draw(st.integers(0, 4))] = data.draw(st.sampled_from(words))
    assert json_outcome(here, bytes(text)) == json_outcome(real, bytes(text))


@pytest.mark.parametrize(
    "data",
    [
        b'{"pid": 1, "more": [null, 1e9995]}', b'{"pid": 1, "more": {"x": -1e999}}',
        b'{"pid": 1, "more": %s}' % (b"9" * 5000), b'{"pid": 1e999}',
        b'{"pid": %s}' % (b"9" * 5000), b'{"pid": 1, "library": 1e999}',
        b'{"pid": 1, "more": 1e}',
        # Half of a surrogate pair is no text.
        *(b'{"pid": 1, "library": "%s"}' % text
          for text in (b"\\ud800", b"\\udc80x", b"\\ud800\\ud800", b"\\ud83d\\ude00")),
    ],
)  # fmt: skip
def test_what_is_out_of_range_matters_only_where_it_is_read(data: bytes) -> None:
    real, here = DECODERS["looks"]
    assert json_outcome(here, data) == json_outcome(real, data)


def test_a_number_out_of_range_is_no_value() -> None:
    decoder: msgspec_standin.json.Decoder[Any] = msgspec_standin.json.Decoder()
    for data in (b"1e999", b"[1e999]"):
        with pytest.raises(msgspec_standin.DecodeError):
            decoder.decode(data)
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(data)


def test_a_struct_behaves_as_one() -> None:
    op = TWIN.TimeRequest(1)
    assert op == TWIN.TimeRequest(1) != TWIN.TimeRequest(2)
    assert len({op, TWIN.TimeRequest(1)}) == 1
    assert msgspec_standin.structs.replace(op, id=3).id == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        op.id = 4
    with pytest.raises(AttributeError):  # as of msgspec
        wire.TimeRequest(1).id = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        TWIN.TimeResponse(1)
    assert issubclass(msgspec_standin.ValidationError, msgspec_standin.DecodeError)
    frame = msgspec_standin.convert(["f", "a.py", 3], TWIN.TraceFrame)
    assert repr(frame) == repr(msgspec.convert(["f", "a.py", 3], wire.TraceFrame))
    for wrong in (["f", "a.py"], ["f", "a.py", "3"], "f", None):
        with pytest.raises(msgspec_standin.ValidationError):
            msgspec_standin.convert(wrong, TWIN.TraceFrame)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Plain:
    name: str
    sizes: tuple[int, ...] = ()


def written(module: Any) -> Any:
    """A struct with what frames and settings have, and messages have not."""

    struct: Any = module.Struct

    class Base(struct, frozen=True, rename="kebab"):  # type: ignore[misc,call-arg]
        window_s: float | None = None

    class Written(Base, frozen=True):  # type: ignore[call-arg]
        __qualname__ = "Written"
        kind: Literal["hung", "slow"] = "hung"
        colour: Colour = Colour.RED
        by_rank: Mapping[int, tuple[str, ...]] = module.field(default_factory=dict)
        members: frozenset[int] = frozenset()
        plain: Plain = Plain("a")
        more: str | list[str] | None = module.field(name="moreOf", default=None)
        few: Annotated[list[int], msgspec.Meta(max_length=2)] = []  # noqa: RUF012

    return Written


REAL, HERE = written(msgspec), written(msgspec_standin)
VALUES: list[dict[str, Any]] = [
    {},
    {"window_s": 2, "kind": "slow", "by_rank": {3: ("a", "b")}, "members": frozenset({7})},
    {"plain": Plain("b", (1, 2)), "more": ["x"]},
    {"more": "x"},
]


@pytest.mark.parametrize("values", VALUES)
def test_frames_are_the_same_bytes_in_both_directions(values: dict[str, Any]) -> None:
    data = msgspec.msgpack.encode(REAL(**values))
    assert msgspec_standin.msgpack.encode(HERE(**values)) == data
    real = msgspec.msgpack.Decoder(REAL).decode(data)
    here: Any = msgspec_standin.msgpack.Decoder(HERE).decode(data)
    assert repr(here) == repr(real)
    assert msgspec_standin.structs.asdict(here) == msgspec.structs.asdict(real)
    assert msgspec_standin.structs.astuple(here) == msgspec.structs.astuple(real)
    assert msgspec_standin.json.encode(here) == msgspec.json.encode(real)
    assert msgspec_standin.to_builtins(here) == msgspec.to_builtins(real)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "dead"},
        {"colour": "blue"},
        {"moreOf": 1},
        {"members": [""]},
        {"plain": {}},
        {"few": [1, 2, 3]},
    ],
)
def test_frames_of_another_form_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, REAL)
    with pytest.raises(msgspec_standin.ValidationError):
        msgspec_standin.convert(wrong, HERE)


def test_encoded_parts_stay_as_they_are() -> None:
    modules: tuple[Any, ...] = (msgspec, msgspec_standin)
    for module in modules:
        raw = module.msgpack.encode({"a": [1, None]})
        data = module.msgpack.encode({1: module.Raw(raw)})
        kind: Any = dict[int, module.Raw]  # type: ignore[name-defined]
        found = module.msgpack.Decoder(kind).decode(data)
        assert {key: bytes(part) for key, part in found.items()} == {1: raw}
        assert msgpack.unpackb(data, strict_map_key=False) == {1: {"a": [1, None]}}


def test_a_struct_is_defined_by_its_fields() -> None:
    modules: tuple[Any, ...] = (msgspec, msgspec_standin)
    for module in modules:
        base = module.defstruct("Base", [("first_one", int, 1)], frozen=True, rename="kebab")
        made = module.defstruct("Made", [("second", str, "")], bases=(base,), frozen=True)
        assert made.__struct_encode_fields__ == ("first-one", "second")
        assert module.convert({"first-one": 2}, made).first_one == 2
