"""The agents of many scripted hosts in one process: their sockets, keys, ticks and answers.

Real agents and operators exchange the same messages, encrypted, each host on its own ports. Only
the ranks behind them are scripted.
"""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from frtop_probe import wire
from frtop_probe.agent.announcement import own_version
from frtop_probe.agent.service import TICK
from frtop_probe.agent.sockets import DOMAIN, protect
from frtop_probe.keys import KeyPair
from frtop_tui.demo.scripted.counts import Counts, history
from frtop_tui.demo.scripted.gauges import ScriptedFigures
from frtop_tui.demo.scripted.ranks import HostRanks, known_ranks
from frtop_tui.demo.scripted.script import Script

ADDRESS: Final = "127.0.0.1"
SOCKETS_PER_HOST: Final = 2
FILES_PER_HOST: Final = 8
"""Each socket needs an eventfd, a listener and connections."""
MOST_AT_PACE: Final = 64
"""Hosts that tick as often as real ones. Where one processor serves more, each ticks more rarely:
otherwise it falls behind, and so does a screen beside it."""
TICKS_AT_ONCE: Final = 0.05
"""Time in s for overdue ticks between two answers."""
VERSION: Final = own_version() or "scripted"  # reading this takes a millisecond
NOT_HERE: Final = "a scripted rank has no process: this is what `frtop demo --ranks` cannot show"


class _OwnKey:
    """Admits only the demo's key."""

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 - ZAP's signature
        return key == self._pair.public


class ScriptedAgent:
    """One host."""

    def __init__(
        self, context: zmq.Context[Any], pair: KeyPair, script: Script, index: int
    ) -> None:
        self.host = HostRanks(script, index)
        self._counts = Counts(self.host)
        self._figures = ScriptedFigures(self.host)
        self._updates = context.socket(zmq.PUB)
        self.requests = context.socket(zmq.ROUTER)
        protect(self._updates, self.requests, pair, ADDRESS)
        self.pub = self._updates.bind_to_random_port(f"tcp://{ADDRESS}")
        self.ask = self.requests.bind_to_random_port(f"tcp://{ADDRESS}")
        self._number = 0
        self._ticked_ns = 0

    def tick(self) -> None:
        """Publishes what has changed."""
        self._number += 1
        now = self._ticked_ns = time.monotonic_ns()
        update = self._update(self.host.changes(now), now, full=False)
        self._updates.send(wire.to_frame(update), zmq.NOBLOCK)

    def answer_one(self) -> None:
        """Answers the request that arrived first."""
        with suppress(wire.WireError, zmq.ZMQError):
            sender, *frames = self.requests.recv_multipart(zmq.NOBLOCK)
            request = wire.decode_request(wire.from_frame(frames[0]))
            answer = wire.to_frame(self.answer(request, time.monotonic_ns()))
            self.requests.send_multipart([sender, answer], zmq.NOBLOCK)

    def answer(self, request: wire.Request, now: int) -> wire.Response:
        host = self.host
        match request:
            case wire.StateRequest():
                at = self._ticked_ns or now
                return wire.StateResponse(request.id, self._update(host.state(at), at, full=True))
            case wire.TimeRequest():
                return wire.TimeResponse(request.id, now + host.skew_ns, time.time_ns())
            case wire.StatisticsRequest():
                return self._counts.answer(request, now)
            case wire.SnapshotRequest() | wire.RankRequest():
                return rank_answer(host, request, now)
            case wire.GaugeHistoryRequest():
                found = self._figures.history(request, now)
                return wire.GaugeHistoryResponse(request.id, host.name, found)
        return wire.Error(request.id, NOT_HERE, "failed")

    def _update(self, ranks: tuple[wire.RankUpdate, ...], now: int, *, full: bool) -> wire.Update:
        host = self.host
        figures = self._figures.full(now) if full else self._figures.changes(now)
        return wire.Update(
            host.name,
            f"scripted-{host.name}",
            self._number,
            now + host.skew_ns,
            time.time_ns(),
            ranks,
            version=VERSION,
            full=full,
            gauges=figures,
        )


def rank_answer(
    host: HostRanks,
    request: wire.SnapshotRequest | wire.RankRequest,
    now: int,
) -> wire.Response:
    if isinstance(request, wire.SnapshotRequest):
        taken = tuple(
            host.snapshot(rank, now, stacks=request.stacks, ops=request.ops)
            for rank in known_ranks(host, request.keys)
        )
        return wire.SnapshotResponse(request.id, host.name, taken, now + host.skew_ns)
    if isinstance(request, wire.HistoryRequest):
        ranks = known_ranks(host, (request.key,))
        found = history(host, ranks[0], now, request) if ranks else wire.History()
        return wire.HistoryResponse(request.id, host.name, request.key, found)
    return request.unanswered(host.name, "missing", NOT_HERE)


class Service:
    """The agents of some hosts. Belongs to one thread."""

    def __init__(self, pair: KeyPair, script: Script, hosts: Sequence[int]) -> None:
        _raise_file_limit(len(hosts) * FILES_PER_HOST)
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_PER_HOST * len(hosts) + 64)
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()  # must come first: without it, sockets admit everybody
        self._authenticator.configure_curve_callback(DOMAIN, credentials_provider=_OwnKey(pair))
        self.agents = [ScriptedAgent(self._context, pair, script, index) for index in hosts]
        self._poller = zmq.Poller()
        self._by_socket = {agent.requests: agent for agent in self.agents}
        for socket in self._by_socket:
            self._poller.register(socket, zmq.POLLIN)

    def stop_with(self, file: int) -> None:
        """Makes `run` end when this file is readable, or its other end is gone."""
        self._poller.register(file, zmq.POLLIN)

    def run(self) -> None:
        """Ticks and answers until `stop_with` ends it. Hosts tick one after the other.

        Ticks and answers take turns, else a capture of all hosts would silence each of them.
        """
        due = self._ticks()
        next_tick, agent = next(due)
        asked: deque[ScriptedAgent] = deque()
        while True:
            if not asked:
                wait_ms = max(0, int((next_tick - time.monotonic()) * 1e3))
                for socket, _ in self._poller.poll(wait_ms):
                    if isinstance(socket, int):
                        return
                    asked.append(self._by_socket[socket])
            if asked:
                asked.popleft().answer_one()
            turn_ends = time.monotonic() + TICKS_AT_ONCE
            while next_tick <= time.monotonic() < turn_ends:
                agent.tick()
                next_tick, agent = next(due)

    def _ticks(self) -> Iterator[tuple[float, ScriptedAgent]]:
        """When each agent ticks, spread over one round; late ones do not catch up."""
        pause = TICK / min(len(self.agents), MOST_AT_PACE)
        round_s = pause * len(self.agents)
        at = time.monotonic()
        while True:
            for agent in self.agents:
                at = max(at + pause, time.monotonic() - round_s)
                yield at, agent

    def close(self) -> None:
        self._authenticator.stop()
        self._context.destroy(linger=0)


def _raise_file_limit(files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + 256
    if wanted > soft:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
