"""The operator's own work on a fleet's messages, without sockets: CPU time by part, and memory.

Time is that of the fleet plus the CPU time that the operator spends, so a busy machine changes
nothing. The messages are those of `bench/fleet.py`, encoded and decoded.
"""

from __future__ import annotations

import gc
import resource
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from unittest import mock

from bench.fleet import SLOTS, FleetHost, FleetScript, mesh_of, slots_of
from frtop_probe import wire
from frtop_probe.agent.service import tick_s
from frtop_tui.connect.connection_events import (
    AnyEndpoint,
    Connected,
    ConnectionEvent,
    ResponseReceived,
    UpdateReceived,
)
from frtop_tui.connect.endpoints import Endpoint
from frtop_tui.connect.local_discovery import KnownAgents
from frtop_tui.connect.session import Session
from frtop_tui.diagnosis.model import Frame

SECOND: Final = 1_000_000_000
KEY: Final = b"k" * 32


class _Connections:
    """Connects at once, and answers at the next turn."""

    def __init__(self, hosts: dict[str, FleetHost]) -> None:
        self._hosts = hosts
        self.connected: list[ConnectionEvent] = []
        self.asked: deque[tuple[FleetHost, wire.Request]] = deque()

    def connect(self, endpoint: AnyEndpoint) -> None:
        self.connected.append(Connected(endpoint.host, key=KEY, whose="own"))

    def disconnect(self, endpoint: AnyEndpoint) -> None: ...

    def is_up(self, host: str) -> bool:
        return host in self._hosts

    def send(self, host: str, request: wire.Request) -> bool:
        wire.to_frame(request)
        self.asked.append((self._hosts[host], request))
        return True

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        raise NotImplementedError

    def close(self) -> None: ...


class OperatorWork:
    """A session with a fleet, turn by turn."""

    def __init__(self, ranks: int, fault: str) -> None:
        self.script = FleetScript(mesh_of(ranks), fault, time.monotonic_ns())
        hosts = [FleetHost(self.script, index) for index in range(self.script.shape.hosts)]
        self._slots = slots_of(self.script, hosts)
        self._connections = _Connections({host.name: host for host in hosts})
        self._now_ns = self.script.begin_ns
        self._begun_s: float | None = None
        self._slot_ns = int(tick_s(ranks) * SECOND) // SLOTS
        self._ticks = 0
        self._tick_ns = self._now_ns
        self.spent: defaultdict[str, float] = defaultdict(float)
        """CPU time in s and numbers, by part of the work."""
        self.frame: Frame | None = None
        self._patch = mock.patch("time.monotonic_ns", self._clock)
        self._patch.start()
        endpoints = [Endpoint(host.name, "10.0.0.1", n, n) for n, host in enumerate(hosts, 1)]
        gc.collect()
        gc.freeze()  # the fleet is not what is measured
        self._memory_before = _resident()
        self._session = Session(self._connections, (), None, KnownAgents(endpoints))

    def _clock(self) -> int:
        """The fleet's time, and what the operator has spent in this turn."""
        spent_s = 0.0 if self._begun_s is None else time.thread_time() - self._begun_s
        return self._now_ns + int(spent_s * 1e9)

    @property
    def now_ns(self) -> int:
        return self._now_ns

    @property
    def memory(self) -> int:
        """Bytes that the operator has taken; the fleet's own messages are among them."""
        return _resident() - self._memory_before

    def close(self) -> None:
        self._patch.stop()
        gc.unfreeze()

    def _timed(self, part: str, work: Callable[[], None]) -> None:
        began_s = time.thread_time()
        work()
        self.spent[part] += time.thread_time() - began_s

    def turn(self) -> None:
        """What the fleet has sent since, answers to what was asked, and a frame if one is due."""
        updates = []
        while self._tick_ns <= self._now_ns:
            slot = self._slots[self._ticks % SLOTS]
            updates += [frame for _, frame in slot.tick(self._tick_ns)]
            self._ticks += 1
            self._tick_ns += self._slot_ns
        asked, self._connections.asked = self._connections.asked, deque()
        answers = [
            (host.name, wire.to_frame(host.answer(request, self._now_ns)))
            for host, request in asked
        ]
        self.spent["updates"] += len(updates)
        self.spent["update bytes"] += sum(map(len, updates))
        self.spent["answers"] += len(answers)
        self.spent["answer bytes"] += sum(len(data) for _, data in answers)
        self._begun_s = time.thread_time()
        self._timed("connect", self._connect)
        self._timed("take updates", lambda: self._take_updates(updates))
        self._timed("take answers", lambda: self._take_answers(answers))
        before = self.frame
        began_s = time.thread_time()
        self.frame = self._session.frame() or before
        part = "frames" if self.frame is not before else "between frames"
        self.spent[part] += time.thread_time() - began_s
        self.spent["made frames"] += self.frame is not before
        self._now_ns = max(self._tick_ns, self._clock())
        self._begun_s = None

    def _connect(self) -> None:
        self._session.discover(self._now_ns)
        events, self._connections.connected = self._connections.connected, []
        for event in events:
            self._session.handle(event, self._now_ns)

    def _take_updates(self, updates: list[bytes]) -> None:
        for data in updates:
            update = wire.decode_update(wire.from_frame(data))
            self.spent["ranks"] += len(update.ranks)
            self._session.handle(UpdateReceived(update, KEY), self._clock())

    def _take_answers(self, answers: list[tuple[str, bytes]]) -> None:
        for host, data in answers:
            response = wire.decode_response(wire.from_frame(data))
            self._session.handle(ResponseReceived(host, response), self._clock())

    def until(self, holds: Callable[[Frame], bool], at_most_s: float) -> defaultdict[str, float]:
        """Takes turns until a frame fits; returns what was spent, and the seconds that passed."""
        self.spent.clear()
        begin_ns = self._now_ns
        while (self._now_ns - begin_ns) / 1e9 < at_most_s:
            self.turn()
            if self.frame is not None and holds(self.frame):
                break
        self.spent["seconds"] = self.spent["passed"] = (self._now_ns - begin_ns) / 1e9
        return self.spent.copy()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
