"""Writes events to a file descriptor in its own thread: a slow reader blocks nothing else.

The queue is bounded. Events that do not fit are counted, and an event `lost` gives the counts.
"""

from __future__ import annotations

import errno
import json
import os
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from frtop_probe.proc import daemon_thread
from frtop_tui.features.stream.events import StreamEvent

MOST_BYTES: Final = 8 * 1024 * 1024
CHUNK: Final = 64 * 1024
LOOK_S: Final = 0.5
"""How often to check for a reader that has left while there is nothing to write."""

Encode = Callable[[StreamEvent], bytes]


def json_line(event: StreamEvent) -> bytes:
    """One line of ASCII: names may come from hostile programs, and a terminal may show them."""
    with suppress(UnicodeEncodeError):
        line = msgspec.json.encode(event)
        if line.isascii() and b"\x7f" not in line:
            return line + b"\n"
    return json.dumps(msgspec.to_builtins(event)).replace("\x7f", "\\u007f").encode() + b"\n"


def msgpack_map(event: StreamEvent) -> bytes:
    """One msgpack map, without a length prefix: a streaming unpacker finds its end."""
    try:
        return msgspec.msgpack.encode(event)
    except UnicodeEncodeError:  # a surrogate, as in a file name
        return msgspec.msgpack.encode(_without_surrogates(msgspec.to_builtins(event)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(one) for one in value]
    return value


ENCODERS: Final[dict[str, Encode]] = {"jsonl": json_line, "msgpack": msgpack_map}


class EventOutput:
    """Pass events to `put`; check `take_lost` and `failure` now and then."""

    def __init__(self, descriptor: int, encode: Encode, most_bytes: int = MOST_BYTES) -> None:
        self._descriptor = descriptor
        self._encode = encode
        self._most = most_bytes
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes in the queue
        self._lost: Counter[str] = Counter()
        self._closing = self._done = False
        self.failure: OSError | None = None
        """Why nothing more can be written."""
        daemon_thread.start(self._run, "frtop events")

    def put(self, event: StreamEvent, *, patiently: bool = False) -> None:
        """Takes an event; counts it as lost when there is no room, or waits for room.

        Raises:
            OSError: with `patiently`, nothing more can be written.
        """
        data = self._encode(event)
        with self._changed:
            while patiently and self._size + len(data) > self._most and self._size:
                if self.failure is not None:
                    raise self.failure
                self._changed.wait(LOOK_S)
            # After a loss, events are dropped until `take_lost`, so that the gap is in one place.
            if self._lost or (self._size and self._size + len(data) > self._most):
                self._lost[type(event).__struct_config__.tag] += 1  # type: ignore[index]
                return
            self._waiting.append(data)
            self._size += len(data)
            self._changed.notify_all()

    def take_lost(self) -> dict[str, int]:
        """How many events of each kind were lost, once there is room again; empty until then."""
        with self._changed:
            if not self._lost or self._size > self._most // 2:
                return {}
            lost, self._lost = dict(self._lost), Counter()
            return lost

    def close(self, wait_s: float | None = None) -> None:
        """Ends the thread; waits until everything is written, at most `wait_s` seconds."""
        until = time.monotonic() + wait_s if wait_s is not None else None
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while not self._done and (until is None or time.monotonic() < until):
                self._changed.wait(LOOK_S if until is None else until - time.monotonic())

    def _run(self) -> None:
        try:
            while (chunk := self._next()) is not None:
                self._write(chunk)
        except OSError as error:
            self.failure = error
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def _next(self) -> bytes | None:
        """The next bytes to write, b"" if there are none yet; None at the end."""
        with self._changed:
            if not self._waiting and not self._closing:
                self._changed.wait(LOOK_S)
            if not self._waiting:
                return None if self._closing else self._look()
            taken, size = [], 0
            while self._waiting and size < CHUNK:
                taken.append(self._waiting.popleft())
                size += len(taken[-1])
            self._size -= size
            self._changed.notify_all()
        return b"".join(taken)

    def _look(self) -> bytes:
        """Raises BrokenPipeError if the reader has left; only a write would notice otherwise."""
        poll = select.poll()
        poll.register(self._descriptor, 0)
        if any(found & (select.POLLERR | select.POLLNVAL) for _, found in poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, "the reader has left")
        return b""

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # somebody has made the pipe non-blocking
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll(1000)
