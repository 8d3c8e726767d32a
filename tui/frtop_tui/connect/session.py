"""What the live source's thread works on: connections, the job's state, the last frame."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui import foreground
from frtop_tui.connect.agent_requests import AgentRequests
from frtop_tui.connect.asking import Asking
from frtop_tui.connect.capture_collector import FilesWanted
from frtop_tui.connect.connection_events import (
    AnyEndpoint,
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    Connections,
    Progressed,
    ResponseReceived,
    SamePlace,
    UpdateReceived,
)
from frtop_tui.connect.endpoints import Resolver
from frtop_tui.connect.followers import follower_kinds
from frtop_tui.connect.gauge_histories import GaugeHistories
from frtop_tui.connect.op_follower import OpFollower, OpOutlet
from frtop_tui.connect.pipes.place_search import PlaceSearch
from frtop_tui.connect.source import Asked
from frtop_tui.connect.statistics_follower import StatisticsFollower
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.errors import FrtopError
from frtop_tui.job.model import AgentKey, Problem, Writing
from frtop_tui.job.naming import JobKey, Wanted
from frtop_tui.job.state import JobState

if TYPE_CHECKING:  # through a shell, nobody needs it
    from frtop_tui.connect.local_discovery import KnownAgents, LocalDiscovery

FRAME_NS: Final = 250_000_000
LATER_NS: Final = 750_000_000
PAUSE: Final = 3
"""After a slow frame, we pause for this many times its duration."""
RESOLVE_AGAIN_NS: Final = 10_000_000_000
EXPLAINED_NODES: Final = 4096
"""Ops of the wait-for graph on a screen; 16,384 ranks in groups of 8 wait in 2,048."""
READ_ONLY: Final = "started with --read-only"


class Session:
    """Belongs to the source's thread.

    Args of the constructor: `names` are the hosts the operator named, `local` finds agents of this
    host, `places` those reached through a shell (None: not wanted), `outlet` takes the followed
    ops, `left_out` are hosts that we do not connect to, and why.
    """

    def __init__(
        self,
        connections: Connections,
        names: tuple[str, ...],
        job: Wanted,
        local: LocalDiscovery | KnownAgents | None = None,
        places: PlaceSearch | None = None,
        *,
        outlet: OpOutlet | None = None,
        left_out: Mapping[str, Problem] = MappingProxyType({}),
        read_only: bool = False,
        explain: bool = False,
    ) -> None:
        self._connections = connections
        self._local = local
        self._places = places
        self._names = names
        self._job = job
        self._state = JobState(READ_ONLY if read_only else "")
        self._explain = explain
        self._engine = Engine(explain=explain, give_way=foreground.give_way)
        self.requests = AgentRequests(connections.send, self._state, read_only=read_only)
        self.files = FilesWanted(self.requests.tracker)
        self._asking = Asking(self.requests.tracker, self._answered)
        self.ops = OpFollower(self.requests.tracker, outlet or OpOutlet())
        self.statistics = StatisticsFollower(self.requests.tracker, self._state.set_statistics)
        self.gauges = GaugeHistories(self.requests.tracker)
        self._followers = [kind(self.requests.tracker) for kind in follower_kinds()]
        self._news: Mapping[str, Any] = {}
        self._resolver = Resolver(names)
        self._resolved_at: dict[str, int] = {}
        self._endpoints: dict[str, AnyEndpoint] = {}  # by host
        self._urls: dict[str, str] = {}  # URL for requests -> host
        self._hosts: dict[tuple[bytes, str], str] = {}  # key and instance of an agent -> host
        self._keys: dict[str, tuple[bytes, AgentKey]] = {}
        """By host: the key that its agent has proved, and whose it is."""
        self._instances: dict[str, str] = {}  # host -> instance of its last agent
        self._connected: set[str] = set()
        self._aliases: dict[str, str] = {}
        """The operator's names of agents that have another name, and that name."""
        self._spare: dict[str, AnyEndpoint] = {}
        """Their ways through a shell, in case we lose the other name."""
        self._next_frame = 0
        self._frame: Frame | None = None
        for name in names:
            self._state.set_host(name, "connecting")
        for name, problem in left_out.items():
            self._state.set_host(name, "failed", problem)

    def choose(self, job: JobKey | None) -> None:
        self._job = job
        self._next_frame = 0

    def do(self, request: Asked, ranks: tuple[int, ...]) -> None:
        now = time.monotonic_ns()
        if isinstance(request, wire.SnapshotRequest):
            self.requests.take_stacks(self._frame, ranks, now)
        elif isinstance(request, wire.RankRequest):
            for follower in self._followers:
                if isinstance(request, follower.requests):
                    follower.asked(self._known(ranks), now)
            self._asking.do(self._frame, request, ranks, now)
        else:
            for follower in self._followers:
                if isinstance(request, follower.orders):
                    follower.take(request, self._frame, now)

    def _known(self, ranks: Iterable[int]) -> tuple[int, ...]:
        there = self._frame.ranks if self._frame is not None else ()
        return tuple(rank for rank in ranks if rank in there)

    def _answered(
        self, view: JudgedRank, request: wire.RankRequest, response: wire.Response, now: int
    ) -> None:
        self._apply(view.host, response, now)
        for follower in self._followers:
            if isinstance(request, follower.requests):
                follower.answered(view, response, now)

    def news(self) -> Mapping[str, Any]:
        newest = {follower.name: follower.news for follower in self._followers}
        if any(one is not self._news.get(name, self) for name, one in newest.items()):
            self._news = newest
        return self._news

    def leave(self) -> None:
        """Cancels what ranks do for this operator; see `is_ordering`."""
        for follower in self._followers:
            follower.end()

    @property
    def is_ordering(self) -> bool:
        """Whether a rank has yet to confirm that."""
        return any(follower.is_ordering for follower in self._followers)

    def explain(self, *, on: bool) -> None:
        """Whether frames carry the wait-for graph from now on, as far as we can draw it."""
        self._engine.explained_nodes = EXPLAINED_NODES if on or self._explain else 0
        self._next_frame = 0

    def discover(self, now: int) -> None:
        """Connects to resolved names and to new agents of this host."""
        for name, endpoint in self._resolver.resolved():
            self._resolved_at[name] = now
            if not isinstance(endpoint, FrtopError):
                self._connect(endpoint)
            elif name not in self._endpoints:
                self._state.set_host(name, "failed", _problem(endpoint))
        for name in self._names:
            # It may have an address now, or another one.
            since = now - self._resolved_at.get(name, now)
            settled = self._aliases.get(name, name) in self._connected
            if since >= RESOLVE_AGAIN_NS and not settled:
                self._resolved_at[name] = now
                self._resolver.resolve(name)
        if self._local is not None:
            discovered = self._local.search(now)
            for endpoint in discovered.endpoints:
                self._connect(endpoint)
            for name, problem in discovered.unreachable:
                self._state.set_host(name, "failed", problem)
        if self._places is not None:
            self._search_places(now)

    def _search_places(self, now: int) -> None:
        """Connects to hosts found through ssh's settings, Slurm or Kubernetes."""
        assert self._places is not None
        found = self._places.search(now, self._connected)
        for name in found.over:
            self._state.forget_host(name)
        lost = [name for name in self._spare if self._aliases.get(name) not in self._connected]
        for name in lost:
            self._connect(self._spare.pop(name))
        for endpoint in found.endpoints:
            if endpoint.host not in self._aliases and endpoint != self._endpoints.get(
                endpoint.host
            ):
                self._connect(endpoint)
                self._state.set_on_host(endpoint.host, progress="waiting to start")
        for name, text in found.under_way:
            self._state.set_on_host(name, progress=text)
        for name, error in found.failed:
            if name not in self._endpoints:
                self._state.set_host(name, "failed", _problem(error))

    def _connect(self, endpoint: AnyEndpoint) -> None:
        """Connects once per address: socket events name only the address."""
        host = endpoint.host
        known = self._endpoints.get(host)
        if known == endpoint:
            return
        if known is not None:
            self._disconnect(known)
        if (other := self._urls.get(endpoint.request_url)) is not None:
            self._make_alias(host, other)
            return
        self._aliases.pop(host, None)
        self._endpoints[host] = endpoint
        self._urls[endpoint.request_url] = host
        self._state.set_host(host, "connecting")
        self._state.set_on_host(host, address=endpoint.address_and_port)
        self._connections.connect(endpoint)

    def _disconnect(self, endpoint: AnyEndpoint) -> None:
        host = endpoint.host
        del self._endpoints[host]
        del self._urls[endpoint.request_url]
        self._connected.discard(host)
        self._connections.disconnect(endpoint)
        self.requests.disconnected(host, time.monotonic_ns())

    def _make_alias(self, name: str, host: str) -> None:
        """Drops a name of the agent that is shown as `host`."""
        if name in self._names or self._places is not None:  # only these are found again
            self._aliases[name] = host
        self._state.forget_host(name)

    def handle(self, event: ConnectionEvent, now: int) -> None:
        match event:
            case Connected():
                self._accept(event, now)
            case ConnectionFailed(host, error):
                self._connected.discard(host)
                self.requests.disconnected(host, now)
                self._state.set_host(host, "failed", _problem(error), now)
                if self._connections.is_up(host):  # it sent a message that we cannot read
                    self.requests.retry_state(host, now)
            case Progressed(host, text):
                self._state.set_on_host(host, progress=text)
            case SamePlace(host, other):
                if (endpoint := self._endpoints.get(host)) is not None:
                    self._spare[host] = endpoint
                    self._disconnect(endpoint)
                    self._make_alias(host, other)
            case UpdateReceived(update, key):
                host = self._hosts.get((key, update.instance), "")
                if host in self._endpoints and not self._state.apply(host, update, now):
                    self.requests.request_state(host, now)
            case ResponseReceived(host, response):
                self._receive(host, response, now)

    def _accept(self, event: Connected, now: int) -> None:
        host, whose = event.host, event.whose
        self._connected.add(host)
        self._keys[host] = event.key, whose
        if whose != "own":  # reported once its ranks have replaced another's
            self._state.set_on_host(host, agent_key=whose)
        self._state.set_limits(host, event.limits)
        self.requests.connected(host, now)

    def _receive(self, host: str, response: wire.Response, now: int) -> None:
        if self.requests.tracker.asked(host, response):
            self._apply(host, response, now)
            # Last: its requester then finds it in the job's state.
            self.requests.receive(host, response, now)

    def _apply(self, host: str, response: wire.Response, now: int) -> None:
        match response:
            case wire.StateResponse(_, update, may_act):
                self._apply_state(host, update, may_act, now)
            case wire.SnapshotResponse():
                self._state.apply_snapshots(host, response)
            case wire.TensorsResponse() | wire.NativeStacksResponse() | wire.OutputResponse():
                self._state.apply_answer(host, response)
            case wire.GaugeHistoryResponse():
                self._state.apply_gauge_history(host, response.history)

    def _apply_state(self, host: str, update: wire.Update, may_act: bool, now: int) -> None:
        # The instance alone could belong to another owner's agent.
        key, whose = self._keys.get(host, (b"", ""))
        agent = key, update.instance
        known = self._hosts.get(agent, host)
        if known != host and known in self._connected:
            # One agent under two names: its ranks must not count twice.
            self._disconnect(self._endpoints[host])
            self._make_alias(host, known)
            return
        if known != host and known in self._endpoints:
            self._disconnect(self._endpoints[known])  # the name that does not reach it now
            self._make_alias(known, host)
        self._hosts[agent] = host
        same = self._instances.get(host, update.instance) == update.instance
        self._instances[host] = update.instance
        self.requests.identified(host, same=same)
        if not same:
            self._next_frame = 0  # commands use the frame's keys, which are a former agent's
        self._state.set_host(host, "reporting")
        self._state.set_on_host(host, may_act=may_act, agent_key=whose)
        self._state.apply(host, update, now)

    def frame(self) -> Frame | None:
        """A judged frame, if one is due."""
        now = time.monotonic_ns()
        for host in self._state.hosts_with_doubted_clocks():
            self.requests.clocks.hasten(host, now)
        if not self._is_due(now):
            self.requests.update(self._frame, now)
            self.files.update(self._frame, now)
            self.ops.update(self._frame, now)
            self.statistics.update(self._frame, now)
            self.gauges.update(self._frame, now)
            for follower in self._followers:
                follower.update(self._frame, now)
            if not self.files.wants_frame:
                return self._with_writings()
        observed = self._state.frame(now, time.time_ns(), self._job)
        foreground.give_way()
        judgement = self._engine.judge(observed)
        frame = judgement.frame
        if frame.ranks:
            frame = replace(frame, notes=(*observed.notes, *frame.notes))
        elif self._local is not None and self._local.problem is not None:
            frame = replace(frame, problem=self._local.problem)
        self.requests.want(judgement.look_requests)
        self.requests.compare_ops(judgement.ops_requests, now)
        self.requests.update(frame, now)
        self.files.update(frame, now)
        self._asking.update(frame, now)
        self._frame = replace(frame, writings=self._writings)
        # With very many ranks, receiving updates comes before judging them more often.
        self._next_frame = max(now + FRAME_NS, (1 + PAUSE) * time.monotonic_ns() - PAUSE * now)
        return self._frame

    def _is_due(self, now: int) -> bool:
        """Whether the next frame may begin: while somebody presses keys, it comes later."""
        calm = foreground.is_calm() or now >= self._next_frame + LATER_NS
        return now >= self._next_frame and calm

    @property
    def _writings(self) -> tuple[Writing, ...]:
        of_features = chain.from_iterable(one.writings for one in self._followers)
        return (*self.files.writings, *of_features)

    def _with_writings(self) -> Frame | None:
        """The last frame, if a file has progressed since."""
        if self._frame is None or self._frame.writings == self._writings:
            return None
        self._frame = replace(self._frame, writings=self._writings)
        return self._frame

    def close(self) -> None:
        """Cancels what is being fetched; lets the current write finish."""
        for follower in self._followers:
            follower.close(time.monotonic_ns())
        self.files.close()


def _problem(error: FrtopError) -> Problem:
    return Problem(error.text, error.next_step)
