"""Connections to agents through pipes, with the verbs and events of `agent_connections`.

Some commands start at once, the others wait: a host on the way takes few log-ins at a time. If a
host cannot be reached, or breaks off, we try it again after a pause that doubles.
"""

from __future__ import annotations

import queue
import selectors
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_probe.pipe.start_script import start_script
from frtop_probe.proc import daemon_thread
from frtop_tui.connect.connection_events import (
    AnyEndpoint,
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    Progressed,
    SamePlace,
)
from frtop_tui.connect.endpoints import VIA, PipeEndpoint
from frtop_tui.connect.pipes import failures
from frtop_tui.connect.pipes.conversation import Conversation, Phase
from frtop_tui.connect.pipes.failures import Ending, Failure
from frtop_tui.connect.pipes.payload import tool_lines
from frtop_tui.connect.pipes.pipe import Pipe
from frtop_tui.connect.pipes.process import LeavingProcesses
from frtop_tui.connect.pipes.ssh_command import program
from frtop_tui.errors import FrtopError

STARTING: Final = 24
"""Commands that may be starting at once."""
CROWDED: Final = 8
"""The same if all go through one host: beyond 10, its sshd turns away every third one
(`MaxStartups 10:30:100`)."""
MACHINES: Final = 4
"""Types of machines for which we look for py-spy: a host may claim any."""
STEADY_S: Final = 10.0
"""A connection that lasted this long was a good one."""
STATUS_S: Final = 1.0
"""How long a command may take to end after its output has ended."""

_Event = tuple[Conversation, ConnectionEvent]


@dataclass(slots=True, eq=False)
class _Link:
    """An endpoint and its pipe. `way` counts its commands, `failures` consecutive failures."""

    endpoint: PipeEndpoint
    way: int = 0
    pipe: Pipe | None = None
    failures: int = 0
    retry_at: float = 0.0
    up_at: float = 0.0

    @property
    def command(self) -> tuple[str, ...]:
        return self.endpoint.commands[self.way]

    @property
    def conversation(self) -> Conversation | None:
        return self.pipe.of(self.endpoint.host) if self.pipe is not None else None


class PipeConnections:
    """Owned by one thread, which has to live as long as the connections."""

    def __init__(
        self, script: bytes, load_agent: Callable[[], bytes], way_script: bytes = b""
    ) -> None:
        """Begins to read what we will send."""
        self._script = script
        self._way_script = way_script or start_script(program="fan_out")
        self._links: dict[str, _Link] = {}  # by host
        self._pipes: dict[Pipe, float] = {}  # and when its output ended, 0.0: it has not
        self._leaving = LeavingProcesses()
        self._selector = selectors.DefaultSelector()
        self._agent: bytes | FrtopError | None = None
        self._loaded: queue.SimpleQueue[bytes | FrtopError] = queue.SimpleQueue()
        self._tools: dict[str, queue.SimpleQueue[tuple[bytes, ...]]] = {}  # by machine
        self._packed: dict[str, tuple[bytes, ...]] = {}
        daemon_thread.start(lambda: self._loaded.put(_loaded(load_agent)), "frtop payload")

    def connect(self, endpoint: AnyEndpoint) -> None:
        assert isinstance(endpoint, PipeEndpoint)
        self._links[endpoint.host] = _Link(endpoint)

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        self._detach(self._links.pop(endpoint.host))

    def is_up(self, host: str) -> bool:
        return self._up(host) is not None

    def send(self, host: str, request: wire.Request) -> bool:
        link = self._up(host)
        if link is None or link.pipe is None or link.conversation is None:
            return False
        return link.pipe.send(link.conversation, request)

    def _up(self, host: str) -> _Link | None:
        link = self._links.get(host)
        conversation = link.conversation if link is not None else None
        return link if conversation is not None and conversation.phase is Phase.UP else None

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        yield from self._start_due(time.monotonic())
        self._select_writable()
        ready = self._selector.select(milliseconds / 1000) if self._selector.get_map() else []
        if not ready and not self._selector.get_map():
            time.sleep(milliseconds / 1000)
        now = time.monotonic()
        for key, _ in ready:
            pipe, end = key.data
            if pipe not in self._pipes:
                continue  # given up because of what another endpoint of it said
            if end == "output":
                yield from self._read(pipe, now)
            elif end == "errors" and not pipe.process.read_errors():
                self._selector.unregister(key.fileobj)
        for pipe in list(self._pipes):
            if pipe in self._pipes:  # the receiver of an event may have given up another
                yield from self._work(pipe, now)
        self._send_tools(now)
        self._leaving.work(now)

    def _work(self, pipe: Pipe, now: float) -> Iterator[ConnectionEvent]:
        pipe.work(now)
        if pipe.wants_agent(now):
            yield from self._give_agent(pipe, now)
        if pipe in self._pipes:
            yield from self._check(pipe, now)

    def _start_due(self, now: float) -> Iterator[ConnectionEvent]:
        """Starts the commands that are due, as many as may start at once."""
        due = [link for link in self._links.values() if link.pipe is None and link.retry_at <= now]
        most = CROWDED if any(link.endpoint.crowded for link in due) else STARTING
        room = most - sum(pipe.is_starting for pipe in self._pipes)
        for link in due:
            if room <= 0:
                return
            if link.pipe is None and self._may_share(link):
                room -= 1
                yield from self._start(link, now)

    def _may_share(self, link: _Link) -> bool:
        """False while the link's step runs on without it: then the link gets its own way.

        A host on the way can retry one of its hosts.
        """
        running = any(pipe.command == link.command for pipe in self._pipes)
        if not running or link.endpoint.task is None or link.way or link.endpoint.onward:
            return True
        if len(link.endpoint.commands) > 1:
            link.way = 1
            return True
        return False

    def _start(self, first: _Link, now: float) -> Iterator[ConnectionEvent]:
        running = next((one for one in self._pipes if one.command == first.command), None)
        if first.endpoint.onward and not first.way and running is not None:
            if running.rejoin(first.endpoint):
                first.pipe = running
                yield Progressed(first.endpoint.host, f"again through {first.endpoint.through}")
            else:
                first.retry_at = now + failures.QUICK_S
            return
        links = [first]
        if first.endpoint.task is not None and not first.way:
            links = [
                link for link in self._links.values()
                if link.pipe is None and not link.way and link.command == first.command
            ]  # fmt: skip
        try:
            pipe = Pipe(
                first.command, [link.endpoint for link in links], self._script, self._way_script
            )
        except OSError as error:
            for link in links:
                failure = failures.cannot_start(link.endpoint.host, first.command, error)
                yield self._failed(link, failure, now)
            return
        self._pipes[pipe] = 0.0
        self._selector.register(pipe.process.output, selectors.EVENT_READ, (pipe, "output"))
        self._selector.register(pipe.process.errors, selectors.EVENT_READ, (pipe, "errors"))
        for link in links:
            link.pipe = pipe
            yield Progressed(link.endpoint.host, f"starting {first.command[0].rpartition('/')[2]}")

    def _select_writable(self) -> None:
        """Watches a pipe for room only while there is something to write."""
        registered = self._selector.get_map()
        for pipe in self._pipes:
            process = pipe.process
            if process.unsent and process.input not in registered:
                self._selector.register(process.input, selectors.EVENT_WRITE, (pipe, "input"))
            elif not process.unsent and process.input in registered:
                self._selector.unregister(process.input)

    def _read(self, pipe: Pipe, now: float) -> Iterator[ConnectionEvent]:
        for conversation, event in pipe.read(now):
            link = self._links.get(conversation.host)
            if link is None or link.pipe is not pipe:
                continue
            if isinstance(event, Connected):
                link.up_at = now
                yield self._same_place(link, conversation) or event
            elif isinstance(event, ConnectionFailed):
                failure = Failure(event.error, conversation.needs_person)
                yield self._failed(link, failure, now)
            else:
                yield event
        if pipe.process.ended and pipe in self._pipes and not self._pipes[pipe]:
            self._pipes[pipe] = now
            self._selector.unregister(pipe.process.output)

    def _give_agent(self, pipe: Pipe, now: float) -> Iterator[ConnectionEvent]:
        if self._agent is None and not self._loaded.empty():
            self._agent = self._loaded.get()
        if isinstance(self._agent, bytes):
            pipe.give_agent(self._agent)
            # Packed while the agent starts, as often the host lacks py-spy.
            for machine in {one.boot.machine for one in pipe.conversations.values()} - {""}:
                self._tool_lines(machine)
        elif self._agent is not None:
            for link in [link for link in self._links.values() if link.pipe is pipe]:
                yield self._failed(link, Failure(self._agent, needs_person=True), now)

    def _same_place(self, link: _Link, conversation: Conversation) -> SamePlace | None:
        """The same host under another name, if it is already connected."""
        place = _place(conversation)
        for other in self._links.values():
            known = other.conversation
            if other is link or place is None or known is None or known.phase is not Phase.UP:
                continue
            if _place(known) == place:
                return SamePlace(link.endpoint.host, other.endpoint.host)
        return None

    def _check(self, pipe: Pipe, now: float) -> Iterator[ConnectionEvent]:
        """Gives up pipes that have ended or are silent."""
        ended_at = self._pipes[pipe]
        over = ended_at and (pipe.process.status() is not None or now - ended_at > STATUS_S)
        if over or pipe.is_refused(now):
            yield from self._ended(pipe, now)
            return
        for conversation, why in list(pipe.overdue(now)):
            link = self._links.get(conversation.host)
            if link is not None and link.pipe is pipe:
                yield self._failed(
                    link, failures.describe(_ending(link, pipe, conversation, why)), now
                )

    def _ended(self, pipe: Pipe, now: float) -> Iterator[ConnectionEvent]:
        while pipe.process.read_errors_left():
            pass
        refused = not pipe.was_up
        for conversation in pipe.conversations.values():
            link = self._links.get(conversation.host)
            if link is None or link.pipe is not pipe:
                continue
            failure = failures.describe(_ending(link, pipe, conversation))
            if refused and pipe.shared and len(link.endpoint.commands) > 1:
                link.way, link.pipe = 1, None
                reason = pipe.process.said[-1] if pipe.process.said else "srun refuses"
                yield Progressed(conversation.host, f"by ssh: {reason}")
            else:
                yield self._failed(link, failure, now)
        self._leave(pipe, now)

    def _failed(self, link: _Link, failure: Failure, now: float) -> ConnectionFailed:
        """Schedules the next try, and returns the event."""
        if link.up_at and now - link.up_at > STEADY_S:
            link.failures, link.way = 0, 0
        elif link.endpoint.onward:  # alternates between the host on the way and the jump host
            link.way = 1 - link.way
        link.failures += 1
        link.up_at = 0.0
        link.retry_at = now + failure.pause_s(link.failures)
        self._detach(link)
        return ConnectionFailed(link.endpoint.host, failure.error)

    def _detach(self, link: _Link) -> None:
        """Takes a link off its pipe; ends a pipe that no link still needs."""
        pipe, link.pipe = link.pipe, None
        if pipe is None:
            return
        if all(one.pipe is not pipe for one in self._links.values()):
            self._leave(pipe, time.monotonic())
        else:
            pipe.abandon(link.endpoint.host)

    def _leave(self, pipe: Pipe, now: float) -> None:
        if self._pipes.pop(pipe, None) is None:
            return
        registered = self._selector.get_map()
        for fd in (pipe.process.output, pipe.process.errors, pipe.process.input):
            if fd in registered:
                self._selector.unregister(fd)
        pipe.leave()
        self._leaving.add(pipe.process, now)

    def _send_tools(self, now: float) -> None:
        """Sends py-spy to hosts without it, after their first update and behind everything else."""
        for pipe in self._pipes:
            pipe.work_on_tool(now)
            machine = pipe.wants_tool(now)
            if machine and (lines := self._tool_lines(machine)) is not None:
                pipe.give_tool(lines)
            pipe.order()

    def _tool_lines(self, machine: str) -> tuple[bytes, ...] | None:
        """The lines with py-spy, packed in a separate thread; None while it works."""
        if machine not in self._tools:
            if len(self._tools) >= MACHINES:
                return ()
            tools = self._tools[machine] = queue.SimpleQueue()
            daemon_thread.start(lambda: tools.put(tool_lines(machine)), "frtop tool")
        if machine not in self._packed and not self._tools[machine].empty():
            self._packed[machine] = self._tools[machine].get()
        return self._packed.get(machine)

    def close(self) -> None:
        """Ends all commands; takes at most a second if one does not end by itself."""
        for pipe in list(self._pipes):
            self._leave(pipe, time.monotonic())
        self._leaving.await_end()
        self._selector.close()


def _place(conversation: Conversation) -> tuple[str, int] | None:
    hello = conversation.hello
    return (hello.place, hello.uid) if hello is not None and hello.place else None


def _ending(link: _Link, pipe: Pipe, conversation: Conversation, why: str = "") -> Ending:
    return Ending(
        host=conversation.host,
        through="" if pipe.shared else link.endpoint.through,
        command=pipe.command,
        status=None if why else pipe.process.status(),
        errors=tuple(pipe.process.said),
        noise=conversation.noise,
        why=why,
        started=conversation.hello is not None,
        private=link.endpoint.shown.startswith(VIA) or len(program()) > 1,
    )


def _loaded(load: Callable[[], bytes]) -> bytes | FrtopError:
    try:
        return load()
    except FrtopError as error:
        return error
    except OSError as error:
        return FrtopError(f"frtop cannot read its own files: {error}", "reinstall frtop")
