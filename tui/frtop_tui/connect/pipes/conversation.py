"""The other end of one pipe: how far it has come, and what its lines mean. Pure.

STARTING --boot--> BOOTED --hello--> UP
    any --error, nonsense--> OVER
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from frtop_probe import wire
from frtop_tui.connect.connection_events import (
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    Examined,
    Progressed,
    ResponseReceived,
    UpdateReceived,
)
from frtop_tui.connect.handshake import incompatible
from frtop_tui.connect.pipes.failures import Ending, describe
from frtop_tui.connect.pipes.framing import Message, MessageReader, PipeError
from frtop_tui.errors import FrtopError, RemoteTrouble
from frtop_tui.job.naming import printable

DECODING_S: Final = 4.0
WINDOW_S: Final = 10.0
"""In this time, decoding the messages of one host may take `DECODING_S` of CPU time. An honest host
needs a few per cent of that, and one of 1,000 hosts must not keep us from the others."""
MAX_LIMITS: Final = 8
"""Sentences from an agent on what it cannot do."""


class Phase(enum.Enum):
    """How far the start at the other end has come."""

    STARTING = enum.auto()  # asked a shell for a Python
    BOOTED = enum.auto()  # a Python takes the archive
    UP = enum.auto()
    OVER = enum.auto()


class Conversation:
    """With the agent of one host, over one process; a new process is a new conversation."""

    def __init__(
        self, host: str, hosts: frozenset[str] = frozenset(), onward: tuple[str, ...] = ()
    ) -> None:
        """A conversation with one of `hosts`: only the other end knows which.

        `onward` is the command that a host on the way runs for it.
        """
        self.host = host
        self._onward = onward
        self._hosts = hosts
        self.phase = Phase.STARTING
        self.boot = Boot()
        self.hello: Hello | None = None
        self.updates = 0
        self.pong = 0
        """The last ping that was answered."""
        self.ordered = False
        """Whether the doctor there has begun."""
        self.needs_person = True
        """Once it is over: whether a person has to act before a retry can succeed."""
        self._reader = MessageReader()
        self._since = self._spent_s = 0.0
        """Start of the current window, and CPU time spent on decoding in it."""

    @property
    def _sender(self) -> bytes:
        """Stands in for a key: updates of one host are never those of another."""
        return f"shell {self.host}".encode()

    @property
    def noise(self) -> tuple[str, ...]:
        """The last lines that were not ours."""
        return tuple(self._reader.noise)

    @property
    def awaits_order(self) -> bool:
        """Whether a doctor waits for the order to begin."""
        return self._has_doctor and not self.ordered

    @property
    def takes_tool(self) -> bool:
        """Whether we may send py-spy: an agent's first update does not wait for it."""
        return self.phase is Phase.UP and (self.updates > 0 or self._has_doctor)

    @property
    def _has_doctor(self) -> bool:
        return self.phase is Phase.UP and self.hello is not None and self.hello.examines

    def take(self, line: bytes) -> Iterator[ConnectionEvent]:
        """Takes in a line of the other end."""
        if self._is_over:
            return
        begin = time.thread_time()
        events: tuple[ConnectionEvent, ...] = ()
        try:
            message = self._reader.feed(line)
            if message is not None:
                events = tuple(self._take(message))
        except (PipeError, wire.WireError):
            events = (self._end(incompatible(self.host)),)
        if self._spend(time.thread_time() - begin) > DECODING_S and not self._is_over:
            text = f"{self.host} sends more than frtop can read beside the other hosts"
            events = (self._end(RemoteTrouble(text, "frtop tries again; or name this host alone")),)
        yield from events

    @property
    def _is_over(self) -> bool:
        return self.phase is Phase.OVER

    def _spend(self, seconds: float) -> float:
        now = time.monotonic()
        if now - self._since > WINDOW_S:
            self._since, self._spent_s = now, 0.0
        self._spent_s += seconds
        return self._spent_s

    def _take(self, message: Message) -> Iterator[ConnectionEvent]:
        match message.word:
            case "boot":
                self.boot = decoded(message.text, Boot)
                self.phase = Phase.BOOTED
                name = self.boot.host.partition(".")[0]
                self.host = next((one for one in (self.boot.host, name) if one in self._hosts),
                                 self.host)  # fmt: skip
                python = printable(self.boot.python)[:20]
                yield Progressed(self.host, f"Python {python}, sending the agent")
            case "hello" if self.phase is Phase.BOOTED:
                self.hello = decoded(message.text, Hello)
                self.phase = Phase.UP
                clean = (one.clean() for one in self.hello.problems[:MAX_LIMITS])
                limits = tuple(f"{one.text}; {one.next}" if one.next else one.text for one in clean)
                yield Connected(self.host, limits, key=self._sender)
            case "up" if self.phase is Phase.UP:
                update = wire.decode_update(wire.from_frame(message.frame()))
                if self.hello is None or update.instance != self.hello.instance:
                    raise PipeError("an update of another agent")
                self.updates += 1
                yield UpdateReceived(update, self._sender)
            case "res" if self.phase is Phase.UP:
                response = wire.decode_response(wire.from_frame(message.frame()))
                yield ResponseReceived(self.host, response)
            case "doctor" if self.hello is not None and self.hello.examines:
                yield Examined(self.host, message.text)
            case "error":
                words = _words(message.text).clean()
                step = words.next or "`frtop --help` lists other ways to reach a host: --connect"
                yield self._end(RemoteTrouble(f"{self.host}: {words.text}", step))
            case "ended" if self._onward:
                ended = decoded(message.text, Ended)
                started = self.hello is not None
                ending = Ending(
                    self.host, self._onward, ended.status, ended.clean(), self.noise,
                    started=started,
                )  # fmt: skip
                failure = describe(ending)
                self.needs_person = failure.needs_person
                yield self._end(failure.error)
            case "pong" if message.text.isdigit() and len(message.text) < 19:
                self.pong = int(message.text)
            case _:  # a word of a newer agent
                return

    def _end(self, error: FrtopError) -> ConnectionFailed:
        self.phase = Phase.OVER
        return ConnectionFailed(self.host, error)


def _words(text: bytes) -> Words:
    """Words that a shell assembled, and that srun may have cut."""
    try:
        return decoded(text, Words)
    except PipeError:
        return Words(text.decode("ascii", "replace"))


MAX_BYTES: Final = 64 * 1024
MAX_WORDS: Final = 600
"""Characters of a sentence of the other end."""


class Boot(Struct, frozen=True):
    """A Python was found, and waits for the archive. `task` is Slurm's task number, or ""."""

    python: str = ""
    machine: str = ""
    host: str = ""
    task: str = ""


class Words(Struct, frozen=True):
    """Something that went wrong there, and what to do about it."""

    text: str = ""
    next: str = ""

    def clean(self) -> Words:
        """The same, bounded and printable."""
        return Words(printable(self.text)[:MAX_WORDS], printable(self.next)[:MAX_WORDS])


class Ended(Struct, frozen=True):
    """How the command for this host ended on the host on the way."""

    status: int = 0
    errors: tuple[str, ...] = ()

    def clean(self) -> tuple[str, ...]:
        """Its last lines on stderr, bounded and printable."""
        return tuple(printable(line)[:MAX_WORDS] for line in self.errors[-20:])


class Hello(Struct, frozen=True):
    """The agent runs.

    `place` names the host and its pids' namespace, "" if unknown. `examines`: it is the doctor, not
    an agent.
    """

    instance: str = ""
    version: str = ""
    python: str = ""
    machine: str = ""
    host: str = ""
    pid: int = 0
    uid: int = -1
    place: str = ""
    has_py_spy: bool = True
    examines: bool = False
    problems: tuple[Words, ...] = ()


Said = TypeVar("Said", Boot, Words, Ended, Hello)


def decoded(text: bytes, kind: type[Said]) -> Said:
    """Decodes one of the above; raises `PipeError` for anything else."""
    if len(text) > MAX_BYTES:
        raise PipeError(f"no {kind.__name__.lower()}: {len(text)} bytes")
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PipeError(f"no {kind.__name__.lower()}: {error}") from error
