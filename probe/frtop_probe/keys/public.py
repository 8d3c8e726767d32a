"""Public keys as text that people can copy.

z85, CURVE's own encoding, contains `$`, `&`, `<` and `#`, and may begin with a dash: shells
and chat programs change it. So a key is written as `frtop_` plus the base64url of the key and
one check byte, which detects most typing errors. z85 is still accepted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from typing import Final

from zmq.utils import z85

PREFIX: Final = "frtop_"
FORMATTED_LENGTH: Final = len(PREFIX) + 44
Z85_LENGTH: Final = 40
_BYTES: Final = 32


def format_public(public: bytes) -> str:
    """Formats a public key (z85) so that shells leave it unchanged."""
    raw = z85.decode(public)
    return PREFIX + base64.urlsafe_b64encode(raw + _check(raw)).decode()


def parse_public(word: str) -> bytes | None:
    """Parses a public key in either form into z85; None when `word` is no key.

    The two forms cannot be confused: z85 has no underscore.
    """
    if not word.isascii():
        return None
    if word.startswith(PREFIX):
        return _parse_formatted(word)
    return word.encode() if is_z85(word.encode()) else None


def is_z85(key: bytes) -> bool:
    """Whether `key` is a valid key of 40 characters."""
    if len(key) != Z85_LENGTH:
        return False
    try:
        return z85.encode(z85.decode(key)) == key
    except (KeyError, ValueError, struct.error):
        return False


def _parse_formatted(word: str) -> bytes | None:
    if len(word) != FORMATTED_LENGTH:
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
