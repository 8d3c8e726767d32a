"""One process and what is said over it: with one host, or with many.

Many hosts are all tasks of a step of srun, or the hosts for which a host on the way runs a command
each. srun gives all its tasks the same input, so they get the agent together. A host on the way
stores what all hosts get, and each gets it as soon as its Python waits for it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from frtop_probe import wire
from frtop_probe.pipe.lines import PREFIX, encoded
from frtop_probe.pipe.start_script import PYTHON_NAMED
from frtop_tui.connect.connection_events import ConnectionEvent
from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.conversation import Conversation, Phase
from frtop_tui.connect.pipes.process import PipeProcess

START_S: Final = 45.0
"""A start has failed if nothing arrives for this long. Behind a jump host, where others keep
sending, it has failed if no start makes progress for this long."""
LONGEST_START_S: Final = 300.0
"""A start that takes this long has failed, too: a host that sends an occasional byte would keep
others from starting. At 10 KB/s the agent takes 100 s."""
SILENT_S: Final = 15.0
"""An agent sends several updates a second and answers pings: a silent one is disconnected."""
REFUSED_S: Final = 15.0
"""srun waits forever if a step cannot begin: after this time, we treat it as refused."""
PING_S: Final = 5.0
LATE_TASK_S: Final = 10.0
"""After the first task of a step has found its Python, the others have this long to find theirs.
py-spy waits this long for hosts that are still starting."""
TOOL_BYTES: Final = 128 * 1024
"""Size of a piece of py-spy: a request never waits for more than this."""
HOST: Final = "FRTOP_HOST"
"""Environment variable of a command: the host that it is for."""
_LABELLED: Final = re.compile(rb" *(\d{1,6}): ?(.*)", re.DOTALL)


class Pipe:
    """Owned by one thread. `conversations` are by task; a plain pipe has only None."""

    def __init__(
        self,
        command: tuple[str, ...],
        endpoints: Sequence[PipeEndpoint],
        script: bytes,
        way_script: bytes = b"",
    ) -> None:
        """Starts the process, and gives it the script.

        Raises:
            OSError: it cannot be started.
        """
        self.command = command
        self.shared = endpoints[0].task is not None and command == endpoints[0].commands[0]
        self.fans_out = self.shared and bool(endpoints[0].onward)
        """Whether a host on the way runs a command for each host."""
        self._endpoints = tuple(endpoints)
        unordered = self.shared and not self.fans_out
        self._hosts = frozenset(one.host for one in endpoints) if unordered else frozenset()
        self.conversations = {
            (number if self.fans_out else one.task) if self.shared else None: self._begin(one)
            for number, one in enumerate(endpoints)
        }
        self.process = PipeProcess(command, {HOST: endpoints[0].host})
        self._sent_agent = False
        self._booted_at = 0.0
        self._last_received: dict[Conversation, float] = {}
        self._pings = 0
        self._pinged_at = 0.0
        self._given: set[Conversation] = set()
        self._has_stored_agent = False
        self._begun_at = self._advanced_at = time.monotonic()
        self._tool: Iterator[bytes] | None = None
        self._tool_for: set[Conversation] = set()
        self._tool_to: list[Conversation] = []
        self._tool_ping = 0
        self._has_tool = False
        self._script = script
        self._names_python = script.startswith(PYTHON_NAMED)
        self._awaits_way = self.fans_out
        first = way_script if self.fans_out else script
        if not endpoints[0].has_python:
            # First ends the line of a prompt that a login script left open.
            self.process.write(b"echo\n" + first, bounded=False)

    def _begin(self, endpoint: PipeEndpoint) -> Conversation:
        return Conversation(endpoint.host, self._hosts, endpoint.onward if self.shared else ())

    @property
    def is_starting(self) -> bool:
        """Whether nobody at the other end has found a Python yet."""
        return not self._booted_at

    @property
    def was_up(self) -> bool:
        """Whether an agent has run at the other end."""
        return any(one.hello is not None for one in self.conversations.values())

    def of(self, host: str) -> Conversation | None:
        return next((one for one in self.conversations.values() if one.host == host), None)

    def send(self, conversation: Conversation, request: wire.Request) -> bool:
        return self._tell(conversation, encoded(b"req", wire.to_frame(request)))

    def _tell(self, conversation: Conversation, line: bytes) -> bool:
        task = next((task for task, one in self.conversations.items() if one is conversation), None)
        return self.process.write(line if task is None else b"to %d %b" % (task, line))

    def order(self) -> None:
        """Tells doctors to begin, once we know whether py-spy will be sent."""
        for one in self.conversations.values():
            has_own = one.hello is not None and one.hello.has_py_spy
            settled = one in self._tool_for or (self._tool is not None and not self.fans_out)
            if one.awaits_order and (has_own or settled):
                words = [b"examine", *([b"tool"] if self._has_tool and not has_own else [])]
                words += [b"python"] if self._names_python else []
                one.ordered = self._tell(one, b" ".join(words) + b"\n")

    def rejoin(self, endpoint: PipeEndpoint) -> bool:
        """Has the host on the way run a host's command again; False if there is none."""
        numbers = (n for n, one in enumerate(self._endpoints) if one.host == endpoint.host)
        number = next(numbers, None)
        if number is None or self._awaits_way:
            return False
        self.conversations[number] = self._begin(endpoint)
        self._advanced_at = time.monotonic()
        self.process.write(b"start %d\ngive script %d\n" % (number, number), bounded=False)
        return True

    def abandon(self, host: str) -> None:
        """Has the host on the way end the command for a host; the others go on."""
        conversation = self.of(host)
        if self.fans_out and conversation is not None and conversation.phase is not Phase.OVER:
            conversation.phase = Phase.OVER
            self.process.write(b"end %b\n" % self._numbers([conversation]), bounded=False)

    def read(self, now: float) -> Iterator[tuple[Conversation, ConnectionEvent]]:
        """What has arrived."""
        for line in self.process.read():
            if self._awaits_way:
                yield from self._take_of_way(line)
                continue
            conversation, text = self._split(line)
            if conversation is None:
                continue
            self._last_received[conversation] = now
            phase = conversation.phase
            for event in conversation.take(text):
                yield conversation, event
            if conversation.phase is not phase:
                self._advanced_at = now
            if conversation.phase is not Phase.STARTING:
                self._booted_at = self._booted_at or now

    def _take_of_way(self, line: bytes) -> Iterator[tuple[Conversation, ConnectionEvent]]:
        """What the host on the way says before it runs a command for each host."""
        if line.startswith(PREFIX + b"relay "):
            self._awaits_way = False
            hosts = json.dumps([one.onward for one in self._endpoints]).encode()
            self.process.write(b"hosts %b\n" % hosts, bounded=False)
            self._store(b"script", b"echo\n" + self._script)
            everybody = self._numbers(self.conversations.values())
            self.process.write(b"give script %b\n" % everybody, bounded=False)
        elif line.startswith(PREFIX + b"error "):
            for conversation in self.conversations.values():
                for event in conversation.take(line):
                    yield conversation, event

    def _split(self, line: bytes) -> tuple[Conversation | None, bytes]:
        if not self.shared:
            return self.conversations[None], line
        found = _LABELLED.fullmatch(line)
        return (self.conversations.get(int(found[1])), found[2]) if found else (None, b"")

    def _store(self, name: bytes, lines: bytes) -> None:
        """Has the host on the way store what all hosts get, so that it travels once."""
        stored = (b"store %b %b\n" % (name, line) for line in lines.splitlines())
        self.process.write(b"".join(stored), bounded=False)

    def _numbers(self, conversations: Iterable[Conversation]) -> bytes:
        named = set(conversations)
        found = (number for number, one in self.conversations.items() if one in named)
        return b",".join(b"%d" % number for number in found if number is not None)

    def _say(self, line: bytes) -> bool:
        """Writes a line for all running agents; False if it cannot be sent now."""
        return self.process.write(self._addressed(line, self._up))

    def _addressed(self, line: bytes, conversations: Iterable[Conversation]) -> bytes:
        return b"to %b %b" % (self._numbers(conversations), line) if self.fans_out else line

    def wants_agent(self, now: float) -> bool:
        """Whether somebody at the other end waits for the agent and may get it.

        A shell may read ahead, so nothing follows the script until a Python asks for it. If all get
        the same input, we send it once all wait for it, or the late ones have kept the others
        waiting.
        """
        if self.fans_out:
            return bool(self._booted)
        phases = [one.phase for one in self.conversations.values()]
        if self._sent_agent or Phase.BOOTED not in phases:
            return False
        return Phase.STARTING not in phases or now - self._booted_at > LATE_TASK_S

    def give_agent(self, lines: bytes) -> None:
        """Sends the agent to all that wait for it."""
        if self.fans_out:
            if not self._has_stored_agent:
                self._store(b"agent", lines)
            self._has_stored_agent = True
            booted = self._booted
            self.process.write(b"give agent %b\n" % self._numbers(booted), bounded=False)
            self._given |= booted
            return
        self._sent_agent = True
        self.process.write(lines, bounded=False)

    @property
    def _booted(self) -> set[Conversation]:
        """The conversations that wait for the agent."""
        booted = {one for one in self.conversations.values() if one.phase is Phase.BOOTED}
        return booted - self._given

    def is_refused(self, now: float) -> bool:
        """Whether this is a step of srun that has not begun, and will not."""
        begins = self.is_starting and (self._awaits_way or not self.fans_out)
        return self.shared and begins and now - self.process.moved_at > REFUSED_S

    def overdue(self, now: float) -> Iterator[tuple[Conversation, str]]:
        """Conversations that have been silent for too long, with a description."""
        moved_at = self._advanced_at if self.fans_out else self.process.moved_at
        moved_s = now - moved_at
        # Behind a host on the way, they start one after the other, and it watches them.
        begun_s = 0.0 if self.fans_out else now - self._begun_at
        for one in self.conversations.values():
            if one.phase is Phase.UP and now - self._last_received[one] > SILENT_S:
                yield one, f"nothing was received for {SILENT_S:.0f} s"
            elif one.phase is Phase.STARTING and self._sent_agent:
                yield one, f"no Python was found there in {LATE_TASK_S:.0f} s"
            elif one.phase in (Phase.STARTING, Phase.BOOTED) and moved_s > START_S:
                yield one, f"no answer in {START_S:.0f} s"
            elif one.phase in (Phase.STARTING, Phase.BOOTED) and begun_s > LONGEST_START_S:
                yield one, f"no agent in {LONGEST_START_S:.0f} s"

    def work(self, now: float) -> None:
        """Writes what is waiting, and pings."""
        self.process.flush()
        waited = now - self._pinged_at > PING_S
        if waited and (self._up or (self.fans_out and not self._awaits_way)):
            self._ping(now)

    def _ping(self, now: float) -> None:
        self._pinged_at = now
        self._pings += 1
        self._say(b"ping %d\n" % self._pings)

    @property
    def _up(self) -> list[Conversation]:
        return [one for one in self.conversations.values() if one.phase is Phase.UP]

    def wants_tool(self, now: float) -> str:
        """The machine type that lacks py-spy at the other end, "" if none does.

        All must have sent something first: the first frame does not wait for py-spy.
        """
        up = self._up
        if self._tool is not None or not up or not all(one.takes_tool for one in up):
            return ""
        starting = any(
            one.phase in (Phase.STARTING, Phase.BOOTED) for one in self.conversations.values()
        )
        if self.fans_out and starting and now - self._advanced_at < LATE_TASK_S:
            return ""
        return next((one.hello.machine for one in self._without_tool if one.hello), "")

    @property
    def _without_tool(self) -> list[Conversation]:
        lacking = (one for one in self._up if one.hello and not one.hello.has_py_spy)
        return [one for one in lacking if one not in self._tool_for]

    def give_tool(self, lines: Sequence[bytes]) -> None:
        """From now on, sends py-spy whenever there is nothing else to send."""
        self._tool = iter(lines)
        self._has_tool = bool(lines)
        self._tool_to = self._without_tool
        self._tool_for.update(self._tool_to)

    def work_on_tool(self, now: float) -> None:
        """Sends the next piece of py-spy once the previous one has arrived."""
        pongs = (one.pong for one in self._up)
        if self._tool is None or self.process.unsent or max(pongs, default=0) < self._tool_ping:
            return
        sent = 0
        for line in self._tool:
            if not self.process.write(self._addressed(line, self._tool_to)):
                return
            sent += len(line)
            if sent >= TOOL_BYTES:
                self._ping(now)
                self._tool_ping = self._pings
                return
        if self.fans_out:
            self._tool = None  # for those that come later

    def leave(self) -> None:
        """Says good-bye, and ends the input; what runs at the other end ends with it."""
        if self._up:
            self._say(b"bye\n")
        self.process.close_input()
