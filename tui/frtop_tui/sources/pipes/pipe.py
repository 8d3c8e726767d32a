"""One process and what is said over it: with one host, or with many.

With all tasks of a step of srun, or with the hosts to which a host on the way runs a command each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from frtop_probe import wire
from frtop_probe.pipe.lines import PREFIX, encoded
from frtop_probe.pipe.start_script import PYTHON_NAMED, start_script
from frtop_tui.sources.connection_events import ConnectionEvent
from frtop_tui.sources.endpoints import PipeEndpoint
from frtop_tui.sources.pipes.conversation import Conversation, Phase
from frtop_tui.sources.pipes.process import PipeProcess

START_S: Final = 45.0
"""A start during which nothing moves for so long has failed."""
SILENT_S: Final = 15.0
"""An agent sends several updates a second, and answers pings: a silent one is cut off."""
REFUSED_S: Final = 15.0
"""srun waits for ever where a step cannot begin: after this time it counts as refused."""
PING_S: Final = 5.0
LATE_TASK_S: Final = 10.0
"""Tasks of a step that have not found their Python so long after the first one are given up."""
TOOL_BYTES: Final = 128 * 1024
"""Of py-spy at once: a request waits for no more than this."""
HOST: Final = "FRTOP_HOST"
"""Environment of a command: the host that it is for."""
_LABELLED: Final = re.compile(rb" *(\d{1,6}): ?(.*)", re.DOTALL)


class Pipe:
    """Owned by one thread. `conversations` are by task; None is the only one of a plain pipe."""

    def __init__(
        self, command: tuple[str, ...], endpoints: Sequence[PipeEndpoint], script: bytes
    ) -> None:
        """Starts the process, and gives it the script.

        Raises:
            OSError: it cannot be started.
        """
        self.command = command
        self.shared = endpoints[0].task is not None and command == endpoints[0].commands[0]
        self._onward = [one.onward for one in endpoints if one.onward] if self.shared else []
        unordered = self.shared and not self._onward
        hosts = frozenset(one.host for one in endpoints) if unordered else frozenset()
        self.conversations = {
            (number if self._onward else one.task) if self.shared else None: Conversation(
                one.host, hosts, one.onward if self.shared else ()
            )
            for number, one in enumerate(endpoints)
        }
        self.process = PipeProcess(command, {HOST: endpoints[0].host})
        self._sent_agent = False
        self._booted_at = 0.0
        self._heard: dict[Conversation, float] = {}
        self._pings = 0
        self._pinged_at = 0.0
        self._tool: Iterator[bytes] | None = None
        self._tool_ping = 0
        self._has_tool = False
        self._script = script
        self._names_python = script.startswith(PYTHON_NAMED)
        self._awaits_way = bool(self._onward)
        first = start_script(program="fan_out") if self._awaits_way else script
        # First an end for a prompt that a login script left without one.
        self.process.write(b"echo\n" + first, bounded=False)

    @property
    def is_starting(self) -> bool:
        """Whether nobody at the other end has found a Python yet."""
        return not self._booted_at

    @property
    def was_up(self) -> bool:
        """Whether an agent has run at the other end."""
        return any(one.hello is not None for one in self.conversations.values())

    def of(self, host: str) -> Conversation | None:
        """The conversation with a host."""
        return next((one for one in self.conversations.values() if one.host == host), None)

    def send(self, conversation: Conversation, request: wire.Request) -> bool:
        """Sends a request; False when it cannot leave now."""
        return self._say(conversation, encoded(b"req", wire.to_frame(request)))

    def _say(self, conversation: Conversation, line: bytes) -> bool:
        task = next((task for task, one in self.conversations.items() if one is conversation), None)
        return self.process.write(line if task is None else b"to %d %b" % (task, line))

    def order(self) -> None:
        """Tells doctors to begin, as soon as it is known whether py-spy comes."""
        for one in self.conversations.values():
            has_own = one.hello is not None and one.hello.has_py_spy
            if one.awaits_order and (has_own or self._tool is not None):
                words = [b"examine", *([b"tool"] if self._has_tool and not has_own else [])]
                words += [b"python"] if self._names_python else []
                one.ordered = self._say(one, b" ".join(words) + b"\n")

    def read(self, now: float) -> Iterator[tuple[Conversation, ConnectionEvent]]:
        """What has arrived."""
        for line in self.process.read():
            if self._awaits_way:
                yield from self._take_of_way(line)
                continue
            conversation, text = self._split(line)
            if conversation is None:
                continue
            self._heard[conversation] = now
            for event in conversation.take(text):
                yield conversation, event
            if conversation.phase is not Phase.STARTING:
                self._booted_at = self._booted_at or now

    def _take_of_way(self, line: bytes) -> Iterator[tuple[Conversation, ConnectionEvent]]:
        """What the host on the way says before it runs a command for each host."""
        if line.startswith(PREFIX + b"relay "):
            self._awaits_way = False
            hosts = json.dumps(self._onward).encode()
            self.process.write(b"hosts %b\n" % hosts, bounded=False)
            self.process.write(b"echo\n" + self._script, bounded=False)
        elif line.startswith(PREFIX + b"error "):
            for conversation in self.conversations.values():
                for event in conversation.take(line):
                    yield conversation, event

    def _split(self, line: bytes) -> tuple[Conversation | None, bytes]:
        if not self.shared:
            return self.conversations[None], line
        found = _LABELLED.fullmatch(line)
        return (self.conversations.get(int(found[1])), found[2]) if found else (None, b"")

    def wants_agent(self, now: float) -> bool:
        """Whether all at the other end wait for the agent, or have kept the others waiting.

        A shell may read ahead, so nothing follows the script before a Python says so.
        """
        phases = [one.phase for one in self.conversations.values()]
        if self._sent_agent or Phase.BOOTED not in phases:
            return False
        return Phase.STARTING not in phases or now - self._booted_at > LATE_TASK_S

    def give_agent(self, lines: bytes) -> None:
        """Sends the agent, to all of them at once."""
        self._sent_agent = True
        self.process.write(lines, bounded=False)

    def is_refused(self, now: float) -> bool:
        """Whether this is a step that has not begun, and will not."""
        return self.shared and self.is_starting and now - self.process.moved_at > REFUSED_S

    def overdue(self, now: float) -> Iterator[tuple[Conversation, str]]:
        """Conversations in which too long nothing was said, and the words for it."""
        moved_s = now - self.process.moved_at
        for one in self.conversations.values():
            if one.phase is Phase.UP and now - self._heard[one] > SILENT_S:
                yield one, f"nothing was heard for {SILENT_S:.0f} s"
            elif one.phase is Phase.STARTING and self._sent_agent:
                yield one, f"no Python was found there in {LATE_TASK_S:.0f} s"
            elif one.phase in (Phase.STARTING, Phase.BOOTED) and moved_s > START_S:
                yield one, f"no answer in {START_S:.0f} s"

    def work(self, now: float) -> None:
        """Writes what waits, and pings."""
        self.process.flush()
        if now - self._pinged_at > PING_S and self._is_up:
            self._ping(now)

    def _ping(self, now: float) -> None:
        self._pinged_at = now
        self._pings += 1
        self.process.write(b"ping %d\n" % self._pings)

    @property
    def _is_up(self) -> bool:
        return any(one.phase is Phase.UP for one in self.conversations.values())

    def wants_tool(self) -> str:
        """The machine for which py-spy is missing at the other end, "" when it is not needed.

        All must have sent something first: the first frame does not wait for it.
        """
        if self._tool is not None:
            return ""
        up = [one for one in self.conversations.values() if one.phase is Phase.UP]
        if not up or not all(one.takes_tool for one in up):
            return ""
        return next((one.hello.machine for one in up if one.hello and not one.hello.has_py_spy), "")

    def give_tool(self, lines: Sequence[bytes]) -> None:
        """Sends py-spy from now on, whenever nothing else has to be sent."""
        self._tool = iter(lines)
        self._has_tool = bool(lines)

    def work_on_tool(self, now: float) -> None:
        """Sends the next piece of py-spy, when the one before has arrived."""
        pongs = (one.pong for one in self.conversations.values() if one.phase is Phase.UP)
        if self._tool is None or self.process.unsent or max(pongs, default=0) < self._tool_ping:
            return
        sent = 0
        for line in self._tool:
            if not self.process.write(line):
                return
            sent += len(line)
            if sent >= TOOL_BYTES:
                self._ping(now)
                self._tool_ping = self._pings
                return

    def leave(self) -> None:
        """Says good-bye, and ends the input; what runs at the other end ends with it."""
        if self._is_up:
            self.process.write(b"bye\n")
        self.process.close_input()
