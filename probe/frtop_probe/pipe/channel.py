"""The one operator at the other end of our standard input and output, as a service sees it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from frtop_probe.agent.interfaces import Operator
from frtop_probe.pipe import program_file
from frtop_probe.pipe.input import (
    Bye,
    LineReader,
    LineSplitter,
    Ping,
    RequestLine,
    SentTool,
    ToolExpected,
)
from frtop_probe.pipe.lines import LineError, described, encoded
from frtop_probe.pipe.output import LineOutput
from frtop_probe.proc import tool_process

SILENCE_S: Final = 30.0
"""Without a line for so long, the operator has gone: it pings every 5 s."""
MAX_WAITING: Final = 64
"""Requests that are not looked at yet; while there are more, nothing is read."""
LAST_WORDS_S: Final = 1.0
"""For what is not sent yet when the agent leaves."""
_ADVICE: Final = "report this with the command that leads there: something changes its input"
_PIECE: Final = 256 * 1024
_OPERATOR: Final = Operator(b"", b"")


class PipeRights:
    """Whoever was let in by the shell is the user. They may give up acting.

    Args of the constructor:
        read_only: nobody may act, by a setting of this host.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self._gave_up = False

    def take_notes_changed(self) -> bool:
        return False

    def is_owner(self, key: bytes) -> bool:  # noqa: ARG002 - as of a channel with keys
        return True

    async def right(self, key: bytes) -> Literal["read", "act"] | None:  # noqa: ARG002
        return "act"

    def set_read_only(self, connection: bytes, key: bytes) -> None:  # noqa: ARG002
        self._gave_up = True

    def is_read_only(self, connection: bytes, key: bytes) -> bool:  # noqa: ARG002
        return self._gave_up

    def admit_command(self, key: bytes) -> str:  # noqa: ARG002 - there is no key to admit
        return "frtop"


class PipeChannel:
    """Reads and writes lines in the running event loop.

    `on_end` is called, perhaps more than once, when the operator has left, or has sent what nobody
    understands: then `problem` says what.
    """

    def __init__(
        self,
        rights: PipeRights,
        on_end: Callable[[], None],
        *,
        task: str = "",
        rest: bytes = b"",
        descriptors: tuple[int, int] = (0, 1),
    ) -> None:
        self.admission = rights
        self.last_sign = time.monotonic()
        self.problem = ""
        self._on_end = on_end
        self._input, output = descriptors
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._splitter, self._reader = LineSplitter(rest), LineReader(task)
        self.reading = False
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)
        self._output = LineOutput(output, on_end)

    def start(self) -> None:
        """Takes lines from now on.

        Raises:
            OSError: the input is nothing that can be waited for, such as a file.
        """
        self._resume()
        self._take(b"")  # what came with the archive

    def say(self, word: bytes, fields: dict[str, object]) -> None:
        """Sends a line with JSON."""
        self._output.write(described(word, fields))

    def publish(self, frame: bytes) -> None:
        """Sends an update; the operator notices by its number when one was dropped."""
        if not self._output.full:
            self._output.write(encoded(b"frtop-up", frame))

    async def receive(self) -> tuple[Operator, bytes]:
        frame = await self._requests.get()
        if self._requests.qsize() < MAX_WAITING and not self.problem:
            self._resume()
        return _OPERATOR, frame

    async def send(self, operator: Operator, frame: bytes) -> None:  # noqa: ARG002 - there is one
        await self._output.drained()
        self._output.write(encoded(b"frtop-res", frame))

    async def watch(self) -> None:
        """Waits until nothing was received for too long, and says that this is the end."""
        while (rest := self.last_sign + SILENCE_S - time.monotonic()) > 0:
            await asyncio.sleep(rest)
        self._on_end()

    async def close(self) -> None:
        """Says what was wrong, if anything; then neither reads nor writes any more."""
        self._pause()
        if self.problem:
            self.say(b"frtop-error", {"text": self.problem, "next": _ADVICE})
        await self._output.finish(LAST_WORDS_S)
        self._output.close()

    def _resume(self) -> None:
        if not self.reading:
            asyncio.get_running_loop().add_reader(self._input, self._read)
            self.reading = True

    def _pause(self) -> None:
        if self.reading:
            asyncio.get_running_loop().remove_reader(self._input)
            self.reading = False

    def _read(self) -> None:
        try:
            piece = os.read(self._input, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._pause()
            self._on_end()
            return
        self._take(piece)

    def _take(self, piece: bytes) -> None:
        try:
            for line in self._splitter.feed(piece):
                self._handle(line)
        except LineError as error:
            self.problem = str(error)
            self._pause()
            self._on_end()
        if self._requests.qsize() >= MAX_WAITING:
            self._pause()

    def _handle(self, line: bytes) -> None:
        self.last_sign = time.monotonic()
        match self._reader.read(line):
            case RequestLine(frame):
                self._requests.put_nowait(frame)
            case Ping(text):
                self._output.write(b"frtop-pong " + text + b"\n")
            case ToolExpected(name):
                tool_process.expect(name)
            case SentTool(name, program):
                with suppress(OSError):  # then there are no stacks, and their place says so
                    tool_process.provide(name, program_file.make(name, program))
            case Bye():
                self._pause()
                self._on_end()
