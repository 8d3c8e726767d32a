"""frtop on the way to agents: carries bytes between an operator and their ports, writes no file."""

# What the shell of the host on the way starts, in the place of stage 0. After one line it speaks in
# frames, many connections over one input and output; what goes through them is encrypted between
# operator and agent. The operator's end uses the same frames and streams, from here. It is given to
# `python -c` between single quotes: so it has none. The line above is what `ps` shows.
import json
import os
import queue
import selectors
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

OPEN, DATA, CREDIT, END, PING = b"O", b"D", b"C", b"E", b"P"
HEADER = struct.Struct(">cIH")
COUNT = struct.Struct(">I")
PIECE = 1 << 15
WINDOW = 1 << 20
MAX_STREAMS = 4096
OPENERS = 64
CONNECT_S = 8.0
SILENT_S = 30


class Nonsense(Exception):
    """The other end sent what is none of these frames."""


def frame(kind: bytes, number: int = 0, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, number, len(payload)) + payload


class Frames:
    """Bytes into frames: kind, number of the stream, payload."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, int, bytes]]:
        self.rest += data
        found = []
        at = 0
        while len(self.rest) - at >= HEADER.size:
            kind, number, size = HEADER.unpack_from(self.rest, at)
            begin = at + HEADER.size
            if len(self.rest) - begin < size:
                break
            at = begin + size
            found.append((kind, number, bytes(self.rest[begin:at])))
        del self.rest[:at]
        return found


class Stream:
    """A connected socket, what is on its way to it, and how much the other end takes of it."""

    def __init__(self, end: socket.socket, credit: int) -> None:
        self.end = end
        self.credit = credit
        self.waiting = bytearray()
        self.untold = 0
        self.ending = False
        self.watched = 0

    @property
    def events(self) -> int:
        reads = selectors.EVENT_READ if self.credit and not self.ending else 0
        return reads | (selectors.EVENT_WRITE if self.waiting else 0)

    def read(self) -> bytes | None:
        """What is there, None when nothing is there now, nothing at the end."""
        try:
            data = self.end.recv(min(PIECE, self.credit))
        except BlockingIOError:
            return None
        except OSError:
            return b""
        self.credit -= len(data)
        return data

    def write(self) -> bool:
        """Passes on what waits; False when nobody takes it any more."""
        try:
            while self.waiting:
                with memoryview(self.waiting) as view:
                    sent = self.end.send(view[:PIECE])
                del self.waiting[:sent]
                self.untold += sent
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class Streams:
    """The streams of one end, by number. `send` takes frames for the other end."""

    def __init__(self, selector: selectors.BaseSelector, send: Callable[[bytes], object]) -> None:
        self.selector = selector
        self.send = send
        self.by_number: dict[int, Stream] = {}

    def add(self, number: int, end: socket.socket, credit: int = WINDOW) -> None:
        end.setblocking(False)
        self.by_number[number] = Stream(end, credit)
        self.watch(number)

    def watch(self, number: int) -> None:
        one = self.by_number[number]
        if one.events == one.watched:
            return
        if not one.watched:
            self.selector.register(one.end, one.events, number)
        elif one.events:
            self.selector.modify(one.end, one.events, number)
        else:
            self.selector.unregister(one.end)
        one.watched = one.events

    def take(self, kind: bytes, number: int, payload: bytes) -> None:
        """A frame of the other end; those of a stream that has ended here are late."""
        if kind not in (DATA, CREDIT, END):
            raise Nonsense
        one = self.by_number.get(number)
        if one is None:
            return
        if kind == DATA:
            one.waiting += payload
            if len(one.waiting) + one.untold > WINDOW:
                raise Nonsense
        elif kind == CREDIT:
            if len(payload) != COUNT.size:
                raise Nonsense
            one.credit += COUNT.unpack(payload)[0]
            if one.credit > WINDOW:
                raise Nonsense
        else:
            one.ending = True
        self.work(number, selectors.EVENT_WRITE)

    def work(self, number: int, ready: int) -> None:
        """Passes on what can be passed on now."""
        one = self.by_number.get(number)
        if one is None:
            return
        if ready & selectors.EVENT_READ and one.credit and not one.ending:
            data = one.read()
            if data:
                self.send(frame(DATA, number, data))
            elif data is not None:
                self.end(number)
                return
        if not one.write():
            self.end(number)
            return
        if one.ending and not one.waiting:
            self.drop(number)
            return
        if one.untold >= WINDOW // 4:
            self.send(frame(CREDIT, number, COUNT.pack(one.untold)))
            one.untold = 0
        self.watch(number)

    def end(self, number: int) -> None:
        """Ends a stream, and says so."""
        self.send(frame(END, number))
        self.drop(number)

    def drop(self, number: int) -> None:
        one = self.by_number.pop(number)
        if one.watched:
            self.selector.unregister(one.end)
        one.end.close()


class Forwarder:
    """Opens what the operator names, and carries."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.streams = Streams(self.selector, write)
        self.frames = Frames()
        self.asked: set[int] = set()
        self.todo: queue.SimpleQueue[tuple[int, str, int]] = queue.SimpleQueue()
        self.opened: queue.SimpleQueue[tuple[int, Any, bytes]] = queue.SimpleQueue()
        self.ring, self.bell = os.pipe()
        self.openers = 0

    def run(self) -> None:
        self.selector.register(0, selectors.EVENT_READ, "input")
        self.selector.register(self.ring, selectors.EVENT_READ, "opened")
        while True:
            for key, ready in self.selector.select():
                if key.data == "input":
                    data = os.read(0, 1 << 17)
                    if not data:
                        return
                    signal.alarm(SILENT_S)
                    for one in self.frames.feed(data):
                        self.take(*one)
                elif key.data == "opened":
                    self.take_opened(len(os.read(self.ring, 1024)))
                else:
                    self.streams.work(key.data, ready)

    def take(self, kind: bytes, number: int, payload: bytes) -> None:
        if kind == PING:
            write(frame(PING, number))
        elif kind == OPEN:
            self.open(number, payload)
        elif kind == END and number in self.asked:
            self.asked.discard(number)
        else:
            self.streams.take(kind, number, payload)

    def open(self, number: int, payload: bytes) -> None:
        host, port = json.loads(payload)
        if len(self.asked) + len(self.streams.by_number) >= MAX_STREAMS:
            write(frame(END, number, reason("other", "too many connections")))
            return
        self.asked.add(number)
        self.todo.put((number, host, port))
        if self.openers < min(OPENERS, len(self.asked)):
            try:
                threading.Thread(target=self.connect, daemon=True).start()
                self.openers += 1
            except RuntimeError:  # no more are allowed: those that there are do it
                if not self.openers:
                    raise

    def connect(self) -> None:
        while True:
            number, host, port = self.todo.get()
            end, why = None, b""
            try:
                end = socket.create_connection((host, port), CONNECT_S)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except (socket.gaierror, UnicodeError) as error:
                why = reason("unknown", str(error))
            except ConnectionRefusedError as error:
                why = reason("refused", str(error))
            except TimeoutError as error:
                why = reason("silent", str(error))
            except (OSError, OverflowError) as error:
                why = reason("other", getattr(error, "strerror", None) or str(error))
            self.opened.put((number, end, why))
            os.write(self.bell, b".")

    def take_opened(self, count: int) -> None:
        for _ in range(count):
            number, end, why = self.opened.get()
            if number in self.asked and end is not None:
                self.streams.add(number, end)
                write(frame(CREDIT, number, COUNT.pack(WINDOW)))
            elif number in self.asked:
                write(frame(END, number, why))
            elif end is not None:
                end.close()
            self.asked.discard(number)


def reason(why: str, text: str) -> bytes:
    return json.dumps({"why": why, "text": text[:200]}).encode()


def write(data: bytes) -> None:
    # This waits for an operator that does not read, as all of it then has to.
    while data:
        data = data[os.write(1, data) :]


def start() -> None:
    signal.alarm(SILENT_S)  # an operator that was killed does not always close the pipe
    said = {"python": sys.version.split()[0], "host": socket.gethostname()}
    with suppress(BrokenPipeError, KeyboardInterrupt):
        write(f"frtop-forward {json.dumps(said)}\n".encode())
        Forwarder().run()
    os._exit(0)  # without those that still wait for a connection


if __name__ == "__main__":
    start()
