"""msgspec where it cannot be installed: the parts that an agent at the end of a pipe uses.

The archive has this package under the name `msgspec`; so its modules import each other by their
place. Same values, same bytes, same classes of errors as the real one (tests/pipe compares them);
pure Python, and slower. What is not used is not here: encoding of JSON, `Raw`, `omit_defaults`.
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
