"""The agents of a fleet: 8 scripted ranks each, thousands of agents in a process.

    python -m bench.fleet RANKS FAULT BEGIN_NS PROCESS PROCESSES

Messages, sockets, keys and handshakes are those of real agents. Ranks of one place in the mesh move
together and all hosts have one clock: so a process makes a tick for all its hosts at once, and
keeps the pace of real agents, which make it on their own processors.

It prints its hosts' ports in one line of JSON, takes `fault STEP` as a line, and ends with its
standard input.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import zmq
from msgspec import structs
from zmq.auth.thread import ThreadAuthenticator

from frtop_probe import keys, wire
from frtop_probe.agent.service import tick_s
from frtop_probe.agent.sockets import DOMAIN, protect
from frtop_probe.keys import KeyPair
from frtop_probe.ring.rank_ranges import fold_short, unfold
from frtop_tui.demo.scripted.gauges import ScriptedFigures
from frtop_tui.demo.scripted.ranks import HostRanks
from frtop_tui.demo.scripted.script import Script, ScriptedMesh
from frtop_tui.demo.scripted.service import NOT_HERE, VERSION, rank_answer

SLOTS: Final = 20
"""Hosts tick in turns, so many in a tick of all."""
NEVER: Final = 1 << 40
FILES_PER_HOST: Final = 6
"""An eventfd, a listener and a connection for each of two sockets."""
_ENCODE: Final = msgspec.msgpack.Encoder().encode


class FleetMesh(ScriptedMesh):
    """One tp group on each host, however many hosts that makes."""

    @property
    def per_host(self) -> int:
        return self.tp

    def members(self, group: int, rank: int) -> str:
        return _members(self.pp, self.dp, group, self.index(group, rank), rank)


_TEXTS: Final[dict[tuple[int, ...], str]] = {}


def _members(pp: int, dp: int, group: int, index: int, rank: int) -> str:
    """The members of a group; all its ranks have the same text."""
    where = (pp, dp, group, index)
    if where not in _TEXTS:
        _TEXTS[where] = fold_short(unfold(ScriptedMesh(pp, dp, 8).members(group, rank)))
    return _TEXTS[where]


def mesh_of(ranks: int) -> FleetMesh:
    """Four stages of a pipeline, each with whole hosts."""
    return FleetMesh(4, ranks // 32, 8)


@dataclass(frozen=True)
class FleetScript(Script):
    """A job whose fault strikes when it is told."""

    told: list[int] = field(default_factory=lambda: [NEVER])

    @property
    def fault_step(self) -> int:
        return self.told[0]


class _Ranks(HostRanks):
    """Ranks of a host whose clock is the operator's."""

    def __init__(self, script: Script, index: int) -> None:
        super().__init__(script, index)
        self.skew_ns = 0

    def made_alike(self, like: wire.RankUpdate, rank: int) -> wire.RankUpdate:
        """The full state of a rank, from that of the one in its place on another host."""
        return structs.replace(
            like, key=rank + 1, identity=self._identity(rank), groups=self._groups(rank)
        )


class _Alike:
    """Hosts that tick at once and whose ranks have the same levels: they publish the same."""

    def __init__(self, script: Script, index: int) -> None:
        self.hosts: list[FleetHost] = []
        self.ranks = _Ranks(script, index)
        self.figures = ScriptedFigures(self.ranks)
        self.ticked_ns = 0

    def tick(self, now: int) -> Iterator[tuple[FleetHost, bytes]]:
        """What each host publishes."""
        self.ticked_ns = now
        around = [self._around_key(one) for one in self.ranks.changes(now)]
        gauges: Any = msgspec.Raw(_ENCODE(self.figures.changes(now)))
        for host in self.hosts:
            host.number += 1
            ranks: tuple[Any, ...] = tuple(
                msgspec.Raw(head + _ENCODE(rank + 1) + tail)
                for rank, (head, tail) in zip(host.ranks.ranks, around, strict=True)
            )
            yield host, wire.to_frame(host.update(ranks, now, gauges=gauges))

    @staticmethod
    def _around_key(update: wire.RankUpdate) -> tuple[bytes, bytes]:
        """The encoded update of a rank, before and after its key."""
        key = 1 << 40  # found nowhere else
        head, tail = _ENCODE(structs.replace(update, key=key)).split(_ENCODE(key))
        return head, tail


class FleetHost:
    """One host: what its agent publishes and answers, without sockets."""

    alike: _Alike

    def __init__(self, script: Script, index: int) -> None:
        self.ranks = _Ranks(script, index)
        self.name = self.ranks.name
        self.instance = f"scripted-{self.name}"
        self.number = 0

    def answer(self, request: wire.Request, now: int) -> wire.Response:
        match request:
            case wire.StateRequest():
                return wire.StateResponse(request.id, self._state(now))
            case wire.TimeRequest():
                return wire.TimeResponse(request.id, now, time.time_ns())
            case wire.SnapshotRequest() | wire.RankRequest():
                return rank_answer(self.ranks, request, now)
            case wire.GaugeHistoryRequest():
                found = self.alike.figures.history(request, now)
                return wire.GaugeHistoryResponse(request.id, self.name, found)
        return wire.Error(request.id, NOT_HERE, "failed")

    def _state(self, now: int) -> wire.Update:
        at, alike = self.alike.ticked_ns or now, self.alike
        ranks = tuple(map(self.ranks.made_alike, alike.ranks.state(at), self.ranks.ranks))
        return self.update(ranks, at, full=True, gauges=alike.figures.full(at))

    def update(
        self,
        ranks: tuple[wire.RankUpdate, ...],
        now: int,
        *,
        full: bool = False,
        gauges: wire.HostSample | None,
    ) -> wire.Update:
        return wire.Update(
            self.name, self.instance, self.number, now, time.time_ns(), ranks,
            version=VERSION, full=full, gauges=gauges,
        )  # fmt: skip


class FleetSlot:
    """Hosts that tick at once."""

    def __init__(self, script: Script, hosts: Sequence[FleetHost]) -> None:
        alike: dict[tuple[int, ...], _Alike] = {}
        for host in hosts:
            levels = tuple(host.ranks.levels.values())
            if levels not in alike:
                alike[levels] = _Alike(script, host.ranks.index)
            host.alike = alike[levels]
            host.alike.hosts.append(host)
        self._alike = tuple(alike.values())

    def tick(self, now: int) -> Iterator[tuple[FleetHost, bytes]]:
        for one in self._alike:
            yield from one.tick(now)


def slots_of(script: Script, hosts: Sequence[FleetHost]) -> list[FleetSlot]:
    return [FleetSlot(script, hosts[number::SLOTS]) for number in range(SLOTS)]


class _Agent:
    """The sockets of a host."""

    def __init__(
        self, context: zmq.Context[Any], pair: KeyPair, host: FleetHost, address: str
    ) -> None:
        self.host = host
        self.updates = context.socket(zmq.PUB)
        self.requests = context.socket(zmq.ROUTER)
        protect(self.updates, self.requests, pair, address)
        self.pub = self.updates.bind_to_random_port(f"tcp://{address}")
        self.ask = self.requests.bind_to_random_port(f"tcp://{address}")

    def answer_one(self) -> None:
        """Answers the request that arrived first."""
        with suppress(wire.WireError, zmq.ZMQError):
            sender, *frames = self.requests.recv_multipart(zmq.NOBLOCK)
            request = wire.decode_request(wire.from_frame(frames[0]))
            answer = wire.to_frame(self.host.answer(request, time.monotonic_ns()))
            self.requests.send_multipart([sender, answer], zmq.NOBLOCK)


class _OwnKey:
    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 - ZAP's signature
        return key == self._pair.public


class _Fleet:
    def __init__(self, script: FleetScript, hosts: range, address: str) -> None:
        pair = keys.load(create=False)
        self._script = script
        self._pause_s = tick_s(script.shape.world) / SLOTS
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, min(65_535, 2 * len(hosts) + 64))
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(DOMAIN, credentials_provider=_OwnKey(pair))
        self.agents = [
            _Agent(self._context, pair, FleetHost(script, index), address) for index in hosts
        ]
        self._slots = slots_of(script, [agent.host for agent in self.agents])
        self._by_host = {agent.host.name: agent for agent in self.agents}
        self._poller = zmq.Poller()
        self._by_socket = {agent.requests: agent for agent in self.agents}
        for socket in self._by_socket:
            self._poller.register(socket, zmq.POLLIN)
        self._poller.register(sys.stdin.fileno(), zmq.POLLIN)

    def run(self) -> None:
        """Ticks and answers in turns until standard input ends."""
        asked: list[_Agent] = []
        for due, slot in self._due():
            while True:
                wait_ms = max(0, int((due - time.monotonic()) * 1e3))
                for socket, _ in self._poller.poll(0 if asked else wait_ms):
                    if not isinstance(socket, int):
                        asked.append(self._by_socket[socket])
                    elif not self._take_line():
                        return
                until = max(due, time.monotonic() + self._pause_s / 2)
                while asked and time.monotonic() < until:
                    asked.pop().answer_one()
                if time.monotonic() >= due:
                    break
            for host, frame in slot.tick(time.monotonic_ns()):
                self._by_host[host.name].updates.send(frame, zmq.NOBLOCK)

    def _due(self) -> Iterator[tuple[float, FleetSlot]]:
        """Late slots do not catch up."""
        at = time.monotonic()
        while True:
            for slot in self._slots:
                at = max(at + self._pause_s, time.monotonic() - self._pause_s)
                yield at, slot

    def _take_line(self) -> bool:
        words = sys.stdin.readline().split()
        if words[:1] == ["fault"]:
            self._script.told[0] = int(words[1])
        return bool(words)

    def close(self) -> None:
        self._authenticator.stop()
        self._context.destroy(linger=0)


def raise_file_limit(files: int) -> None:
    """Raises the limit of this process; only root can beyond the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, max(hard, files)))


def main() -> None:
    ranks, fault, begin_ns, process, processes = sys.argv[1:6]
    mesh = mesh_of(int(ranks))
    hosts = range(int(process), mesh.hosts, int(processes))
    raise_file_limit(FILES_PER_HOST * len(hosts) + 256)
    address = f"127.0.1.{1 + int(process)}"
    fleet = _Fleet(FleetScript(mesh, fault, int(begin_ns)), hosts, address)
    try:
        ports = [(agent.host.name, address, agent.pub, agent.ask) for agent in fleet.agents]
        sys.stdout.write(json.dumps(ports) + "\n")
        sys.stdout.flush()
        fleet.run()
    finally:
        fleet.close()


if __name__ == "__main__":
    main()
