"""One message of each type with every field set.

`messages.jsonl` keeps them, so that no field moves, changes or goes by accident. Once frtop is
released, only new fields may be added to it. To write it: `python -m wire.messages`, in tests/.
"""

from __future__ import annotations

import types
import typing
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec

from frtop_probe import wire

FILE: Final = Path(__file__).with_name("messages.jsonl")


def filled(kind: Any, name: str = "") -> Any:
    """A value of this type; every field of a struct has a value of its own."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints, names = typing.get_type_hints(kind), kind.__struct_fields__
        return kind(**{one: filled(hints[one], f"{kind.__name__}.{one}") for one in names})
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return filled(next(one for one in arguments if one is not type(None)), name)
    if typing.get_origin(kind) is dict:
        return {name: filled(arguments[1], name)}
    if typing.get_origin(kind) is tuple:
        parts = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(filled(part, f"{name}.{n}") for n, part in enumerate(parts))
    number = zlib.crc32(name.encode())
    return {
        int: number, float: number / 4, bool: True, str: name, bytes: number.to_bytes(4, "big")
    }[kind]  # fmt: skip


UPDATE: Final = filled(wire.Update)
REQUESTS: Final = tuple(map(filled, wire.declared()))
ANSWERS: Final = (*dict.fromkeys(one.answer for one in wire.declared()), wire.Error)
RESPONSES: Final = tuple(map(filled, ANSWERS))
MESSAGES: Final[dict[str, tuple[str, Any]]] = {
    type(one).__name__: (decoder, one)
    for decoder, messages in (
        ("decode_update", (UPDATE,)),
        ("decode_request", REQUESTS),
        ("decode_response", RESPONSES),
        ("decode_box", (filled(wire.BlackBox),)),
    )
    for one in messages
}
"""By name, with what decodes it in `wire`."""


def lines() -> str:
    return "".join(f"{msgspec.json.encode(one).decode()}\n" for _, one in MESSAGES.values())


if __name__ == "__main__":
    FILE.write_text(lines())
