"""Splits, bounds and parses lines from the operator; does no input or output itself."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Final

from frtop_probe.pipe.lines import MAX_INPUT_LINE, MAX_TOOL, LineError, addressed, decoded

MAX_REQUEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request: the frame of `wire`."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """A sign of life; the answer has the same text."""

    text: bytes


@dataclass(frozen=True, slots=True)
class ToolExpected:
    """A program is on its way."""

    name: str


@dataclass(frozen=True, slots=True)
class SentTool:
    """A program, complete and unpacked."""

    name: str
    program: bytes


@dataclass(frozen=True, slots=True)
class Examine:
    """The doctor may begin; if a `tool` is coming, once it has arrived.

    `python` says whether the operator named the Python that runs this.
    """

    tool: bool
    python: bool


@dataclass(frozen=True, slots=True)
class Bye:
    """The operator leaves."""


Word = RequestLine | Ping | ToolExpected | SentTool | Examine | Bye


class LineSplitter:
    """Joins pieces into lines.

    Args of the constructor:
        rest: bytes received earlier.
    """

    def __init__(self, rest: bytes = b"") -> None:
        self._rest = rest

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes.

        Raises:
            LineError: a line is too long.
        """
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_INPUT_LINE or any(len(line) > MAX_INPUT_LINE for line in lines):
            raise LineError(f"a line has more than {MAX_INPUT_LINE} bytes")
        return lines


class LineReader:
    """Parses lines. Other lines may come between those of a program.

    Args of the constructor:
        task: our number if several tasks share this input; lines for others are ignored.
    """

    def __init__(self, task: str = "") -> None:
        self._task = task
        self._tool: _Block | None = None

    def read(self, line: bytes) -> Word | None:
        """What a line says; None if there is nothing to do.

        Raises:
            LineError: the line is malformed.
        """
        own = addressed(line.rstrip(b"\r"), self._task)
        if not own:
            return None
        word, _, rest = own.partition(b" ")
        if word == b"tool":
            self._tool = _Block.announced(rest)
            return ToolExpected(self._tool.name)
        return _order(word, rest) or self._read_block(own)

    def _read_block(self, line: bytes) -> SentTool | None:
        if self._tool is None:
            shown = line[:40].decode("ascii", "backslashreplace")
            raise LineError(f"unexpected line on the pipe: {shown}")
        program = self._tool.add(line)
        if program is None:
            return None
        done, self._tool = self._tool, None
        return SentTool(done.name, program)


def _order(word: bytes, rest: bytes) -> Word | None:
    """A line that is complete by itself."""
    match word:
        case b"req":
            return RequestLine(decoded(rest, MAX_REQUEST))
        case b"ping":
            return Ping(rest[:32])
        case b"bye":
            return Bye()
        case b"examine":
            return Examine(tool=b"tool" in rest.split(), python=b"python" in rest.split())
    return None


class _Block:
    """A program that is being received."""

    def __init__(self, name: str, size: int, digest: str) -> None:
        self.name = name
        self._size = size
        self._digest = digest
        self._data = bytearray()

    @classmethod
    def announced(cls, text: bytes) -> _Block:
        try:
            name, size, digest = text.decode("ascii").split(" ")
            if not 0 < int(size) <= MAX_TOOL or not name.replace("-", "").isalnum():
                raise LineError("the announcement of a program is out of bounds")
            return cls(name, int(size), digest)
        except (ValueError, UnicodeDecodeError) as error:
            raise LineError("the announcement of a program is malformed") from error

    def add(self, line: bytes) -> bytes | None:
        """Adds a line; returns the program when it is complete.

        Raises:
            LineError: it is not what was announced.
        """
        self._data += decoded(line, MAX_INPUT_LINE)
        if len(self._data) < self._size:
            return None
        if len(self._data) != self._size or self._digest != hashlib.sha256(self._data).hexdigest():
            raise LineError(f"{self.name} arrived damaged")
        unpacking = zlib.decompressobj()
        try:
            program = unpacking.decompress(bytes(self._data), MAX_TOOL)
        except zlib.error as error:
            raise LineError(f"{self.name} cannot be unpacked: {error}") from error
        if not unpacking.eof:
            raise LineError(f"{self.name} is larger than {MAX_TOOL} bytes, or truncated")
        return program
