"""One ssh to a host on the way, which carries connections to the ports of agents behind it.

Each connection of our ZeroMQ is a stream of bytes in it, with a window of its own: one agent that
nobody reads from holds up no other. The bytes are those of CURVE, between operator and agent. A
thread does it, so that bytes flow while frames are judged.
"""

from __future__ import annotations

import itertools
import json
import queue
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from frtop_probe import daemon_thread
from frtop_probe.pipe.forwarder import CREDIT, END, OPEN, PING, Frames, Nonsense, Streams, frame
from frtop_tui.errors import FrtopError, RemoteTrouble, Unreachable
from frtop_tui.sources.forwarding.local_port import LocalPort
from frtop_tui.sources.forwarding.refusals import cut_off, no_answer, refusal
from frtop_tui.sources.pipes import failures
from frtop_tui.sources.pipes.failures import Ending, Failure
from frtop_tui.sources.pipes.framing import PipeError, readable
from frtop_tui.sources.pipes.leaving import LeavingProcesses
from frtop_tui.sources.pipes.pipe import HOST, PING_S, SILENT_S, START_S
from frtop_tui.sources.pipes.process import PipeProcess
from frtop_tui.sources.pipes.remote_words import Words, read
from frtop_tui.sources.pipes.ssh_command import program

STATUS_S: Final = 1.0
"""How long an ssh whose output has ended is given to end."""
STEADY_S: Final = 10.0
"""A connection that has lasted so long was a good one."""
CLOSE_S: Final = 3.0
MAX_LINE: Final = 1 << 16
_UP: Final = b"frtop-forward "
_ERROR: Final = b"frtop-error "


@dataclass(frozen=True, slots=True)
class Begun:
    """An ssh to the host on the way was started."""


@dataclass(frozen=True, slots=True)
class Up:
    """The host on the way carries from now on."""


@dataclass(frozen=True, slots=True)
class Down:
    """It does not, and why."""

    error: FrtopError


News = Begun | Up | Down


class Carrier:
    """Has a thread of its own; `serve`, `withdraw` and `close` are for the thread of its owner.

    `news` is what has happened since. `problems` are by host why its port for requests cannot be
    reached now: there before ZeroMQ notices.
    """

    def __init__(self, way: str, command: tuple[str, ...], script: bytes) -> None:
        self.way = way
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.problems: dict[str, FrtopError] = {}
        self._command, self._script = command, script
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell, self._ring = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._ring, selectors.EVENT_READ, "order")
        self._streams = Streams(self._selector, self._send)
        self._ports: set[LocalPort] = set()
        self._opened: dict[int, LocalPort] = {}
        self._numbers = itertools.count(1)
        self._leaving = LeavingProcesses()
        self._process: PipeProcess | None = None
        self._is_up = self._is_closing = False
        self._begun = b""
        self._noise: list[str] = []
        self._frames = Frames()
        self._failures = 0
        self._retry_at = self._up_at = self._heard_at = self._ended_at = self._pinged_at = 0.0
        self._thread = daemon_thread.start(self._run, "frtop way")

    def serve(self, *ports: LocalPort) -> None:
        """Takes connections to these from now on."""
        self._order(lambda: self._serve(ports))

    def withdraw(self, *ports: LocalPort) -> None:
        """Ends what was opened through these."""
        self._order(lambda: self._withdraw(ports))

    def close(self) -> None:
        """Ends the ssh, and with it all connections."""
        self._order(self._close)
        self._thread.join(CLOSE_S)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        with suppress(OSError):
            self._bell.send(b".")

    def _serve(self, ports: tuple[LocalPort, ...]) -> None:
        for port in ports:
            self._ports.add(port)
            self._selector.register(port.socket, selectors.EVENT_READ, port)

    def _withdraw(self, ports: tuple[LocalPort, ...]) -> None:
        for port in ports:
            self._ports.discard(port)
            self._selector.unregister(port.socket)
            port.close()
            self.problems.pop(port.host, None)
            for number in [number for number, one in self._opened.items() if one is port]:
                self._streams.end(number)
        self._forget_ended()

    def _close(self) -> None:
        self._is_closing = True

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._work()
        except Exception as error:  # noqa: BLE001 - hosts that stay silent would be a lie
            self._lost(Failure(Unreachable(f"frtop itself failed: {error!r}", "start it again")))
        finally:
            self._end_process()
            for port in self._ports:
                port.close()
            self._leaving.await_end()
            self._selector.close()
            self._ring.close()
            self._bell.close()

    def _work(self) -> None:
        now = time.monotonic()
        if self._process is None and self._ports and now >= self._retry_at:
            self._start()
        self._watch_input()
        for key, ready in self._selector.select(0.25):
            self._handle(key.data, ready)
        self._forget_ended()
        if self._process is not None:
            self._check(self._process, time.monotonic())
        self._leaving.work(now)

    def _handle(self, what: object, ready: int) -> None:
        process = self._process
        if isinstance(what, LocalPort):
            self._accept(what)
        elif isinstance(what, int):
            self._streams.work(what, ready)
        elif what == "order":
            self._ring.recv(4096)
            while not self._orders.empty():
                self._orders.get()()
        elif process is None:
            return  # given up because of what another end of it said
        elif what == "output":
            self._receive(process)
        elif what == "errors" and not process.read_errors():
            self._selector.unregister(process.errors)
        elif what == "input":
            process.flush()

    def _start(self) -> None:
        self.news.put(Begun())
        try:
            process = self._process = PipeProcess(self._command, {HOST: self.way})
        except OSError as error:
            self._lost(failures.cannot_start(self.way, self._command, error))
            return
        self._begun, self._noise, self._frames = b"", [], Frames()
        self._ended_at = 0.0
        self._selector.register(process.output, selectors.EVENT_READ, "output")
        self._selector.register(process.errors, selectors.EVENT_READ, "errors")
        # First an end for a prompt that a login script left without one.
        process.write(b"echo\n" + self._script, bounded=False)

    def _watch_input(self) -> None:
        if self._process is None:
            return
        process, registered = self._process, self._selector.get_map()
        if process.unsent and process.input not in registered:
            self._selector.register(process.input, selectors.EVENT_WRITE, "input")
        elif not process.unsent and process.input in registered:
            self._selector.unregister(process.input)

    def _send(self, data: bytes) -> None:
        """What a window allows has room: nothing is dropped."""
        if self._process is not None:
            self._process.write(data, bounded=False)

    def _accept(self, port: LocalPort) -> None:
        while (end := port.accept()) is not None:
            if not self._is_up:
                end.close()
                continue
            number = next(self._numbers)
            if port.is_ask:  # until the host on the way says otherwise
                self.problems[port.host] = no_answer(port, self.way)
            self._opened[number] = port
            self._streams.add(number, end, credit=0)
            target = json.dumps([port.address, port.port]).encode()
            self._send(frame(OPEN, number, target))

    def _receive(self, process: PipeProcess) -> None:
        data = process.receive()
        self._heard_at = time.monotonic()
        if process.ended:
            self._ended_at = time.monotonic()
            self._selector.unregister(process.output)
        try:
            for one in self._frames.feed(data if self._is_up else self._read_lines(data)):
                self._take(*one)
        except (Nonsense, PipeError):
            self._lost(Failure(RemoteTrouble(
                f"{self.way} sent what is no line and no frame of frtop",
                "report this with the command that leads there: something changes its output",
            ), needs_person=True))  # fmt: skip

    def _read_lines(self, data: bytes) -> bytes:
        """Takes in lines until it carries; gives the bytes that follow."""
        self._begun += data
        while b"\n" in self._begun:
            line, _, self._begun = self._begun.partition(b"\n")
            if line.startswith(_UP):
                rest, self._begun = self._begun, b""
                self._is_up, self._up_at = True, time.monotonic()
                self.problems.clear()
                self.news.put(Up())
                return rest
            if line.startswith(_ERROR):
                words = read(line[len(_ERROR) :], Words).clean()
                self._lost(Failure(
                    RemoteTrouble(f"{self.way}: {words.text}", words.next or "--python PATH"),
                    needs_person=True,
                ))  # fmt: skip
                return b""
            self._noise = [*self._noise[-19:], readable(line)]
        self._begun = self._begun[-MAX_LINE:]
        return b""

    def _take(self, kind: bytes, number: int, payload: bytes) -> None:
        port = self._opened.get(number)
        if kind == PING:
            return
        if port is not None and port.is_ask and kind == CREDIT:
            self.problems.pop(port.host, None)
        elif port is not None and port.is_ask and kind == END and payload:
            self.problems[port.host] = refusal(payload, port, self.way)
        self._streams.take(kind, number, payload)

    def _forget_ended(self) -> None:
        if len(self._opened) > len(self._streams.by_number):
            live = self._streams.by_number
            self._opened = {number: one for number, one in self._opened.items() if number in live}

    def _check(self, process: PipeProcess, now: float) -> None:
        """Pings, and gives up what has ended or is silent."""
        silent_s = now - (self._heard_at if self._is_up else process.moved_at)
        if self._ended_at:
            if process.status() is not None or now - self._ended_at > STATUS_S:
                self._lost(self._describe(process))
        elif self._is_up and silent_s > SILENT_S:
            self._lost(self._describe(process, f"nothing was heard for {SILENT_S:.0f} s"))
        elif not self._is_up and silent_s > START_S:
            self._lost(self._describe(process, f"no answer in {START_S:.0f} s"))
        elif self._is_up and now - self._pinged_at > PING_S:
            self._pinged_at = now
            self._send(frame(PING))

    def _describe(self, process: PipeProcess, why: str = "") -> Failure:
        while process.read_errors_left():
            pass
        return failures.describe(
            Ending(
                host=self.way,
                command=self._command,
                status=None if why else process.status(),
                errors=tuple(process.said),
                noise=tuple(self._noise),
                why=why,
                started=self._is_up,
                private=len(program()) > 1,
            )
        )

    def _lost(self, failure: Failure) -> None:
        """Nothing is carried any more; tries again later."""
        now = time.monotonic()
        if self._is_up and now - self._up_at > STEADY_S:
            self._failures = 0
        self._failures += 1
        self._retry_at = now + failure.pause_s(self._failures)
        for port in self._ports:  # before ZeroMQ notices
            self.problems[port.host] = cut_off(failure.error, port.host)
        self._end_process()
        self.news.put(Down(failure.error))

    def _end_process(self) -> None:
        process, self._process = self._process, None
        self._is_up = False
        for number in list(self._streams.by_number):
            self._streams.drop(number)
        self._opened.clear()
        if process is None:
            return
        for fd in (process.output, process.errors, process.input):
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        process.close_input()
        self._leaving.add(process, time.monotonic())
