"""Replaces msgspec where it cannot be installed: the parts that an agent on a pipe uses.

The archive has this package under the name `msgspec`, so its modules use relative imports; so has
`frtop.pyz`, for which it can also do what `frtop diagnose` needs. Values, bytes and classes of
errors are those of the real one (tests/pipe compares them); it is pure Python and slower. Parts
that neither uses are missing: schemas, `Raw` in JSON; `omit_defaults` omits nothing.
"""

from . import json, msgpack, structs
from .conversion import DecodeError, Meta, MsgspecError, ValidationError, convert, to_builtins
from .msgpack import Raw
from .structs import Struct, defstruct, field

__all__ = [
    "DecodeError",
    "Meta",
    "MsgspecError",
    "Raw",
    "Struct",
    "ValidationError",
    "convert",
    "defstruct",
    "field",
    "json",
    "msgpack",
    "structs",
    "to_builtins",
]
