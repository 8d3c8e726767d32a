"""Turns lines of a pipe into messages and back. Pure; every size is bounded.

Both directions are lines of ASCII, `WORD [TEXT]`. From the other end, each word begins with
`frtop-`; everything else is noise (banners, output of login scripts), which we quote if the start
fails. A long text comes in pieces: `frtop-more PIECE` as often as needed, then the last piece
with the real word. srun is why: it cuts lines at 1,024 bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from frtop_probe.pipe.lines import MAX_OUTPUT_LINE, MORE, PREFIX
from frtop_tui.job.naming import printable

MAX_LINE: Final = 4096
"""Bytes of a line that are kept; the agent writes at most 900."""
MAX_TEXT: Final = MAX_OUTPUT_LINE
"""Characters of the text of a message, all pieces together."""
NOISE_LINES: Final = 20
NOISE_COLUMNS: Final = 200


class PipeError(Exception):
    """The other end wrote a line that does not follow this protocol."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the other end: `word` without `frtop-`, and its text."""

    word: str
    text: bytes

    def frame(self) -> bytes:
        """The bytes that the text stands for, in base64; raises `PipeError` if it is not."""
        try:
            return base64.b64decode(self.text, validate=True)
        except binascii.Error as error:
            raise PipeError(f"{self.word}: no base64") from error


class LineStream:
    """Cuts a stream of bytes into lines; drops the end of a line that is too long."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that `data` completes, without their ends."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield (self._begun + line)[:MAX_LINE].removesuffix(b"\r")
            self._begun = b""
        self._begun = (self._begun + rest)[:MAX_LINE]

    def rest(self) -> bytes:
        """What came after the last line: a prompt, for instance."""
        return self._begun


class MessageReader:
    """Joins pieces into messages, and keeps the last lines of noise."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.noise: deque[str] = deque(maxlen=NOISE_LINES)

    def feed(self, line: bytes) -> Message | None:
        """The message that this line completes.

        Raises:
            PipeError: the message is too large.
        """
        if not line.startswith(PREFIX):
            if text := readable(line):
                self.noise.append(text)
            return None
        word, _, piece = line.partition(b" ")
        self._size += len(piece)
        if self._size > MAX_TEXT:
            raise PipeError("a message is too large")
        self._pieces.append(piece)
        if word == MORE:
            return None
        joined = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return Message(word[len(PREFIX) :].decode("ascii", "replace"), joined)


def readable(line: bytes) -> str:
    """A foreign line, bounded and without control sequences."""
    text = line[: 4 * NOISE_COLUMNS].decode("utf-8", "replace")
    return printable(text).strip()[:NOISE_COLUMNS]
