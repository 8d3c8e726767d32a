"""The lines of the pipe, in both directions: a word, then base64 or JSON. Pure; used by both ends.

A line that does not start with one of our words is noise: a banner, a message of the day.

    from the agent
    frtop-boot {json}     a Python was found and waits for the archive
    frtop-hello {json}    the agent runs; for the doctor, it has `examines`
    frtop-doctor {json}   what the doctor has found
    frtop-up BASE64       an `Update`
    frtop-res BASE64      a response
    frtop-pong TEXT       answers a ping
    frtop-error {json}    `text` and `next`; then it exits with 1
    frtop-more TEXT       a piece of a text that is longer than a line

    from the operator
    the start script      nothing follows before `frtop-boot`: the shell may read ahead
    archive SIZE SHA256 [doctor]      then lines of base64
    examine [tool] [python]           the doctor begins
    req BASE64            a request
    ping TEXT             every 5 s; the agent ends after 30 s without a line
    tool NAME SIZE SHA256             a program, packed by zlib; then lines of base64
    bye                   the agent ends
    to TASK LINE          a line for one task of srun, which gives all tasks the same input

A host on the way (`fan_out`) says `frtop-relay {json}` and takes one line, `hosts JSON`, with a
command per host; from then on `to N,N LINE`, `store NAME LINE`, `give NAME N,N`, `start N` and
`end N`. What command N writes comes as `N: LINE`; `N: frtop-ended {json}` when it has ended.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from frtop_probe import wire

PREFIX: Final = b"frtop-"
"""Every line to the operator starts with it."""
MAX_INPUT_LINE: Final = 256 * 1024
"""Most bytes of a line to the agent: a request has at most 64 KiB."""
MAX_OUTPUT_LINE: Final = wire.MAX_MESSAGE // 3 * 4 + 64
"""Most bytes of a line to the operator: one message in base64."""
MAX_TOOL: Final = 64 << 20
"""Most bytes of a program that is sent, packed or unpacked."""
MORE: Final = PREFIX + b"more"
"""Begins a line with a piece of a text if more pieces follow."""
PIECE: Final = 880
"""Characters of a text in one line to the operator: srun cuts lines at 1,024 bytes."""
_BLOCK_LINE: Final = 3000
"""Bytes in a line of a block: 4,000 characters, which fit even into a terminal's line."""


class LineError(Exception):
    """A line that cannot be used; the text says why."""


def encoded(word: bytes, data: bytes) -> bytes:
    """A line with data; several lines if it goes to the operator and is long."""
    return _in_pieces(word, binascii.b2a_base64(data, newline=False))


def described(word: bytes, fields: Mapping[str, Any]) -> bytes:
    """The same with JSON; ASCII only, so that no shell or terminal in between changes it."""
    return _in_pieces(word, json.dumps(fields).encode())


def _in_pieces(word: bytes, text: bytes) -> bytes:
    size = PIECE if word.startswith(PREFIX) else max(1, len(text))
    last = (max(1, len(text)) - 1) // size * size
    pieces = [b"%b %b\n" % (MORE, text[at : at + size]) for at in range(0, last, size)]
    return b"".join([*pieces, b"%b %b\n" % (word, text[last:])])


def decoded(text: bytes, limit: int) -> bytes:
    """The data of a line, of at most `limit` bytes.

    Raises:
        LineError: `text` is not base64, or the data is larger.
    """
    if len(text) > limit // 3 * 4 + 4:
        raise LineError(f"{len(text)} characters are more than {limit} bytes")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise LineError(f"not base64: {error}") from error


def block(word: bytes, data: bytes, *more: bytes) -> Iterator[bytes]:
    """Lines with a large piece of data: `WORD SIZE SHA256 [MORE]`, then base64."""
    digest = hashlib.sha256(data).hexdigest().encode()
    yield b" ".join((word, b"%d" % len(data), digest, *more)) + b"\n"
    for start in range(0, len(data), _BLOCK_LINE):
        yield binascii.b2a_base64(data[start : start + _BLOCK_LINE])


def tool_block(name: str, program: bytes) -> Iterator[bytes]:
    """Lines that send a program, packed."""
    return block(b"tool " + name.encode(), zlib.compress(program, 6))


def addressed(line: bytes, task: str) -> bytes | None:
    """The line without the name of the task; None if it is for another task."""
    if not line.startswith(b"to "):
        return line
    to, _, rest = line[3:].partition(b" ")
    return rest if to == task.encode() else None
