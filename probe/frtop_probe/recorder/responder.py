"""Answers one asker at a time on a socket beside the ring, in the recorder's own thread.

The thread waits here between its beats. Whoever asks is served piece by piece and never
waited for: the beat comes in between, and a slow or silent asker is dropped. The folder
is closed to other users; who asks all the same is looked at by uid.

A request is one line of JSON; a reply is `HEAD` (bytes of a JSON header, bytes of data),
the header, the data.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from frtop_probe.recorder.owned import OwnedSocket
from frtop_probe.ring.contact import address

HEAD: Final = struct.Struct("!II")
MAX_REQUEST: Final = 4096
PATIENCE_S: Final = 1.0
"""For a request to arrive, and again for its reply to be taken."""
MAX_ASKERS: Final = 32
"""Taken in between two beats; more wait."""
_SEND: Final = 256 * 1024
_CREDENTIALS: Final = struct.Struct("3i")

Answer = Callable[[Mapping[str, Any], Callable[[], bool]], tuple[dict[str, Any], bytes | bytearray]]
"""From a request, and what is called now and then while it is answered (false: nobody
waits any more), to the header and the data of the reply."""


class _Asker:
    """Who is served: heard until a line is complete, then owed the rest of a reply."""

    __slots__ = ("connection", "heard", "owed", "until")

    def __init__(self, connection: OwnedSocket) -> None:
        self.connection = connection
        self.until = time.monotonic() + PATIENCE_S
        self.heard = b""
        self.owed: memoryview | None = None


class Responder:
    """A listening socket at `path` from the beginning to `close`."""

    def __init__(self, path: Path, answer: Answer) -> None:
        """Raises OSError when the socket cannot be made there."""
        self.path = path
        self._answer = answer
        self._asker: _Asker | None = None
        self._taken = 0
        self._woken, self._waker = map(OwnedSocket, socket.socketpair())
        self._listener = OwnedSocket(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            # A program that replaced itself (exec) has its old name, so its old socket.
            path.unlink(missing_ok=True)
            with address(path) as place:
                self._listener.socket.bind(place)
            path.chmod(0o600)
            self._listener.socket.listen(8)
        except BaseException:
            self.close()
            self.remove()
            raise

    def close(self) -> None:
        """Closes everything, also in a forked child; the file stays."""
        self._drop()
        for one in (self._listener, self._woken, self._waker):
            one.close()

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()

    def wake(self) -> None:
        """Ends a `wait` in another thread."""
        with suppress(OSError):
            # Python ignores SIGPIPE, but a program may have taken that back.
            if self._waker.held:
                self._waker.socket.send(b"!", socket.MSG_NOSIGNAL)

    def wait(self, seconds: float, keep_time: Callable[[], bool]) -> None:
        """Waits until something happens, and serves that; at most for so long.

        Args:
            seconds: the longest wait.
            keep_time: called now and then during longer work; false ends that.

        Raises:
            ConnectionError: the program has closed what we wait at.
        """
        if not (self._woken.held and self._listener.held):
            raise ConnectionError("closed by the program")
        asker = self._asker
        poll = select.poll()
        poll.register(self._woken.socket, select.POLLIN)
        if asker is not None:
            event = select.POLLOUT if asker.owed else select.POLLIN
            poll.register(asker.connection.socket, event)
            seconds = min(seconds, asker.until - time.monotonic())
        elif self._taken < MAX_ASKERS:
            poll.register(self._listener.socket, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        if not ready:
            self._taken = 0
        if asker is None:
            if self._listener.socket.fileno() in ready and self._listener.held:
                self._take()
        elif asker.connection.socket.fileno() in ready:
            try:
                self._serve(asker, keep_time)
            except OSError:
                self._drop()
        elif time.monotonic() >= asker.until:
            self._drop()

    def _take(self) -> None:
        self._taken += 1
        try:
            connection = OwnedSocket(self._listener.socket.accept()[0])
        except OSError:  # gone again, or no descriptors left
            return
        given = connection.socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        _, uid, _ = _CREDENTIALS.unpack(given)
        if uid in (os.geteuid(), 0):
            self._asker = _Asker(connection)
        else:
            connection.close()

    def _serve(self, asker: _Asker, keep_time: Callable[[], bool]) -> None:
        try:
            if asker.owed is None:
                self._hear(asker, keep_time)
            while asker.owed:
                piece = asker.owed[:_SEND]
                sent = _still(asker.connection).send(piece, socket.MSG_NOSIGNAL)
                asker.owed = asker.owed[sent:]
        except BlockingIOError:
            return
        if asker.owed is not None:
            self._drop()

    def _hear(self, asker: _Asker, keep_time: Callable[[], bool]) -> None:
        heard = _still(asker.connection).recv(MAX_REQUEST)
        asker.heard += heard
        line, end, _ = asker.heard.partition(b"\n")
        if not end:
            if not heard or len(asker.heard) >= MAX_REQUEST:
                raise ConnectionError("no request")
            return
        hangup = select.poll()
        hangup.register(asker.connection.socket, select.POLLHUP)

        def go_on() -> bool:
            return keep_time() and not hangup.poll(0)

        if not go_on():
            raise ConnectionError("nobody waits")
        header, data = self._reply(line, go_on)
        text = json.dumps(header, separators=(",", ":")).encode(errors="replace")
        asker.owed = memoryview(HEAD.pack(len(text), len(data)) + text + data)
        asker.until = time.monotonic() + PATIENCE_S

    def _reply(
        self, line: bytes, go_on: Callable[[], bool]
    ) -> tuple[dict[str, Any], bytes | bytearray]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError("no request")
            return self._answer(request, go_on)
        except Exception as error:  # noqa: BLE001 - what one request meets must not end the beat
            text = f"the rank could not answer: {type(error).__name__}: {error}"
            return {"error": "failed", "help": text[:MAX_REQUEST]}, b""

    def _drop(self) -> None:
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.connection.close()


def _still(connection: OwnedSocket) -> socket.socket:
    if not connection.held:
        raise ConnectionError("closed by the program")
    return connection.socket
