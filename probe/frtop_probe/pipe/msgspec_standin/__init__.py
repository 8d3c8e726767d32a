"""Replaces msgspec where it cannot be installed: the parts that an agent on a pipe uses.

The archive has this package under the name `msgspec`, so its modules use relative imports. Values,
bytes and classes of errors are those of the real one (tests/pipe compares them); it is pure Python
and slower. Unused parts are missing: encoding of JSON, `Raw`, `omit_defaults`.
"""

from . import json, msgpack, structs
from .conversion import DecodeError, Meta, MsgspecError, ValidationError, convert
from .structs import Struct, field

__all__ = [
    "DecodeError",
    "Meta",
    "MsgspecError",
    "Struct",
    "ValidationError",
    "convert",
    "field",
    "json",
    "msgpack",
    "structs",
]
