"""The one operator at the other end of standard input and output, as a service sees it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from frtop_probe.agent.rights import Operator, Rights
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
from frtop_probe.proc import tool_process

SILENCE_S: Final = 30.0
"""An operator that sends nothing for this long has gone: operators ping every 5 s."""
MAX_WAITING: Final = 64
"""Most waiting requests; with more, the agent stops reading the pipe."""
LAST_WORDS_S: Final = 1.0
"""How long a leaving agent tries to send the rest, in seconds."""
_ADVICE: Final = "report this with the command that you used: something changes the command's input"
_PIECE: Final = 256 * 1024
_OPERATOR: Final = Operator(b"", b"")
MAX_QUEUED: Final = 4 << 20
"""Unsent bytes above which updates are dropped and responses wait: the operator does not read."""
_PAUSE_S: Final = 0.02


class PipeChannel:
    """Reads and writes lines in the running event loop.

    It calls `on_end`, perhaps more than once, when the operator has left or has sent something
    malformed: then `problem` says what.
    """

    def __init__(
        self,
        rights: Rights,
        on_end: Callable[[], None],
        *,
        task: str = "",
        rest: bytes = b"",
        descriptors: tuple[int, int] = (0, 1),
    ) -> None:
        self.rights = rights
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
        """Starts to read lines.

        Raises:
            OSError: the event loop cannot wait for this input, for instance a file.
        """
        self._resume()
        self._take(b"")  # what came with the archive

    def say(self, word: bytes, fields: dict[str, object]) -> None:
        """Sends a line with JSON."""
        self._output.write(described(word, fields))

    def publish(self, frame: bytes) -> None:
        """Sends an update; if one is dropped, the operator notices by the numbers."""
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
        """Waits until the operator has been silent for too long, then calls `on_end`."""
        while (rest := self.last_sign + SILENCE_S - time.monotonic()) > 0:
            await asyncio.sleep(rest)
        self._on_end()

    async def close(self) -> None:
        """Sends the problem, if any; then stops reading and writing."""
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
                with suppress(OSError):  # then there are no stacks, and the screen says so
                    tool_process.provide(name, program_file.make(name, program))
            case Bye():
                self._pause()
                self._on_end()


class LineOutput:
    """Writes lines in a running event loop. Calls `on_end` when the reader has gone."""

    def __init__(self, descriptor: int, on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_end = on_end
        self._queue: deque[memoryview] = deque()
        self._size = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._waits = False
        self._ended = False

    @property
    def full(self) -> bool:
        """Whether the operator is far behind."""
        return self._size > MAX_QUEUED

    def write(self, line: bytes) -> None:
        """Sends a line as soon as the descriptor takes it."""
        if self._ended:
            return
        self._queue.append(memoryview(line))
        self._size += len(line)
        if self.full:
            self._drained.clear()
        self._flush()

    async def drained(self) -> None:
        """Waits until the operator is no longer far behind, or has gone."""
        await self._drained.wait()

    async def finish(self, seconds: float) -> None:
        """Waits until all is sent; gives up after `seconds` if the operator does not read."""
        end = time.monotonic() + seconds
        while self._queue and time.monotonic() < end:
            await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        """Drops what is not sent yet."""
        self._stop_waiting()
        self._queue.clear()
        self._ended = True
        self._drained.set()

    def _flush(self) -> None:
        try:
            while self._queue:
                sent = os.write(self._descriptor, self._queue[0][:_PIECE])
                self._size -= sent
                self._queue[0] = self._queue[0][sent:]
                if not self._queue[0]:
                    self._queue.popleft()
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                asyncio.get_running_loop().add_writer(self._descriptor, self._flush)
        except OSError:  # EPIPE: nobody reads
            self.close()
            self._on_end()
            return
        else:
            self._stop_waiting()
        if not self.full:
            self._drained.set()

    def _stop_waiting(self) -> None:
        if self._waits:
            self._waits = False
            asyncio.get_running_loop().remove_writer(self._descriptor)
