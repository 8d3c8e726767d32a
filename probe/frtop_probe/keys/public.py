"""Public keys as people see and type them.

CURVE's own z85 is full of `$`, `&`, `<` and `#`, and may begin with a dash: a shell, or a
chat window, makes something else of it. So a key is shown as `frtop_` and the base64url of
the key and one byte over it, by which a slip of the hand is noticed. z85 is still taken.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import Final

from zmq.utils import z85

PREFIX: Final = "frtop_"
SHOWN_LENGTH: Final = len(PREFIX) + 44
Z85_LENGTH: Final = 40
_BYTES: Final = 32


def shown(public: bytes) -> str:
    """A public key (z85) in the form that survives a shell."""
    raw = z85.decode(public)
    return PREFIX + base64.urlsafe_b64encode(raw + _check(raw)).decode()


def read(word: str) -> bytes | None:
    """The public key (z85) that a word means; None when it means none.

    Takes what `shown` gives, and z85 as in key files. No z85 is taken for the other form:
    its alphabet has no underscore.
    """
    if not word.isascii():
        return None
    if word.startswith(PREFIX):
        return _read_shown(word)
    return word.encode() if is_z85(word.encode()) else None


def is_z85(key: bytes) -> bool:
    """Whether these are the 40 characters of a key."""
    if len(key) != Z85_LENGTH:
        return False
    try:
        return z85.encode(z85.decode(key)) == key
    except (KeyError, ValueError, struct.error):
        return False


def _read_shown(word: str) -> bytes | None:
    if len(word) != SHOWN_LENGTH:
        return None
    try:
        raw = base64.b64decode(word[len(PREFIX) :].encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    raw, check = raw[:_BYTES], raw[_BYTES:]
    if check != _check(raw):
        return None
    key: bytes = z85.encode(raw)
    return key


def _check(raw: bytes) -> bytes:
    return hashlib.sha256(b"frtop" + raw).digest()[:1]
