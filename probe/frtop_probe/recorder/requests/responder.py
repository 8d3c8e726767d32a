"""Serves one client at a time on a socket beside the ring, in the recorder's own thread.

The thread waits here between its heartbeats. It serves a client piece by piece and never waits for
it, so heartbeats go on; a slow or silent client is dropped. The folder is closed to other users;
the uid of each client is checked as well.

A request is one line of JSON. A response is `HEAD` (sizes of header and data in bytes), a JSON
header, and the data.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe.recorder.descriptors import OwnedSocket
from frtop_probe.recorder.requests.requests import GoOn, Handler, Response
from frtop_probe.ring.beside import address

HEAD: Final = struct.Struct("!II")
MAX_REQUEST: Final = 4096
TIMEOUT_S: Final = 1.0
"""Time in s to receive a request, and again to send its response."""
MAX_CLIENTS: Final = 32
"""Most clients accepted between two heartbeats."""
_SEND: Final = 256 * 1024
_CREDENTIALS: Final = struct.Struct("3i")


class _Client:
    """The client being served: first `received` grows to a line, then `unsent` shrinks."""

    __slots__ = ("connection", "deadline", "peer", "received", "unsent")

    def __init__(self, connection: OwnedSocket, peer: int) -> None:
        self.connection = connection
        self.peer = peer
        self.deadline = time.monotonic() + TIMEOUT_S
        self.received = b""
        self.unsent: memoryview | None = None


class Responder:
    """A listening socket at `path`, open until `close`."""

    def __init__(self, path: Path, respond: Handler) -> None:
        """Raises OSError if the socket cannot be created there."""
        self.path = path
        self._respond = respond
        self._client: _Client | None = None
        self._accepted = 0
        self._wake_receiver, self._wake_sender = map(OwnedSocket, socket.socketpair())
        self._listener = OwnedSocket(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            # A program that replaced itself (exec) may find its own old socket.
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
        """Closes all descriptors, even in a forked child; the socket file stays."""
        self._drop()
        for one in (self._listener, self._wake_receiver, self._wake_sender):
            one.close()

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()

    def wake(self) -> None:
        """Ends a `wait` in another thread."""
        with suppress(OSError):
            # Python ignores SIGPIPE, but the program may have reset that.
            if self._wake_sender.is_ours:
                self._wake_sender.socket.send(b"!", socket.MSG_NOSIGNAL)

    def wait(self, seconds: float, keep_time: Callable[[], bool]) -> None:
        """Waits for a client and serves it.

        Args:
            seconds: the longest wait.
            keep_time: called between pieces of longer work; false ends the work.

        Raises:
            ConnectionError: the program closed our descriptors.
        """
        if not (self._wake_receiver.is_ours and self._listener.is_ours):
            raise ConnectionError("closed by the program")
        client = self._client
        poll = select.poll()
        poll.register(self._wake_receiver.socket, select.POLLIN)
        if client is not None:
            event = select.POLLOUT if client.unsent else select.POLLIN
            poll.register(client.connection.socket, event)
            seconds = min(seconds, client.deadline - time.monotonic())
        elif self._accepted < MAX_CLIENTS:
            poll.register(self._listener.socket, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        if not ready:
            self._accepted = 0
        if client is None:
            if self._listener.socket.fileno() in ready and self._listener.is_ours:
                self._accept()
        elif client.connection.socket.fileno() in ready:
            try:
                self._serve(client, keep_time)
            except OSError:
                self._drop()
        elif time.monotonic() >= client.deadline:
            self._drop()

    def _accept(self) -> None:
        self._accepted += 1
        try:
            connection = OwnedSocket(self._listener.socket.accept()[0])
        except OSError:  # the client left, or no descriptors are free
            return
        given = connection.socket.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
        )
        pid, uid, _ = _CREDENTIALS.unpack(given)
        if uid in (os.geteuid(), 0):
            self._client = _Client(connection, pid)
        else:
            connection.close()

    def _serve(self, client: _Client, keep_time: Callable[[], bool]) -> None:
        try:
            if client.unsent is None:
                self._receive(client, keep_time)
            while client.unsent:
                piece = client.unsent[:_SEND]
                sent = _open_socket(client.connection).send(piece, socket.MSG_NOSIGNAL)
                client.unsent = client.unsent[sent:]
        except BlockingIOError:
            return
        if client.unsent is not None:
            self._drop()

    def _receive(self, client: _Client, keep_time: Callable[[], bool]) -> None:
        received = _open_socket(client.connection).recv(MAX_REQUEST)
        client.received += received
        line, end, _ = client.received.partition(b"\n")
        if not end:
            if not received or len(client.received) >= MAX_REQUEST:
                raise ConnectionError("no request")
            return
        hangup = select.poll()
        hangup.register(client.connection.socket, select.POLLHUP)

        def go_on() -> bool:
            return keep_time() and not hangup.poll(0)

        if not go_on():
            raise ConnectionError("the client has left")
        header, data = self._response(line, client.peer, go_on)
        text = json.dumps(header, separators=(",", ":")).encode(errors="replace")
        client.unsent = memoryview(HEAD.pack(len(text), len(data)) + text + data)
        client.deadline = time.monotonic() + TIMEOUT_S

    def _response(self, line: bytes, peer: int, go_on: GoOn) -> Response:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise TypeError("no request")
            return self._respond({**request, "peer": peer}, go_on)
        except Exception as error:  # noqa: BLE001 - a failing request must not end the heartbeat
            text = f"the rank failed to respond: {type(error).__name__}: {error}"
            return {"error": "failed", "help": text[:MAX_REQUEST]}, b""

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.connection.close()


def _open_socket(connection: OwnedSocket) -> socket.socket:
    if not connection.is_ours:
        raise ConnectionError("closed by the program")
    return connection.socket
