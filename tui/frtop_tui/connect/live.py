"""The live source: one thread that owns sockets, job state and diagnosis.

Messages of agents go into the job state; up to four times a second the engine judges the
state and the screen gets a new frame. Nothing ever waits for one host.
"""

from __future__ import annotations

import queue
import resource
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from frtop_probe.pipe.start_script import start_script
from frtop_probe.proc import daemon_thread
from frtop_tui import foreground
from frtop_tui.connect.connection_events import Connections, JoinedConnections
from frtop_tui.connect.endpoints import LOCAL, Endpoint, expand
from frtop_tui.connect.followers import follower_kinds
from frtop_tui.connect.op_follower import FollowedOps, OpOutlet
from frtop_tui.connect.pipes.connections import PipeConnections
from frtop_tui.connect.pipes.payload import agent_lines
from frtop_tui.connect.pipes.place_search import PlaceSearch
from frtop_tui.connect.pipes.places import Place, last_python
from frtop_tui.connect.session import Session
from frtop_tui.connect.source import Asked, Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import KeyTrouble
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import JobKey, RankPid
from frtop_tui.statistics.wanted import StatisticsWanted

if TYPE_CHECKING:  # shells need no keys and no sockets
    from collections.abc import Iterator

    from frtop_probe import keys
    from frtop_tui.connect.local_discovery import KnownAgents, LocalDiscovery


KEY_INTERVAL_S: Final = 0.2
LEAVE_S: Final = 1.0
"""How long ranks may take to confirm that they stopped sampling for a leaving operator."""

Command = Callable[[Session], None]


class LiveSource(Source):
    """Frames of a running job, from the agents of its hosts."""

    def __init__(
        self,
        specs: Sequence[str] = (LOCAL,),
        job: str | RankPid | None = None,
        *,
        places: Sequence[Place] = (),
        agents: Sequence[Endpoint] = (),
        python: str = "",
        user: str = "",
        read_only: bool = False,
        explain: bool = False,
    ) -> None:
        """Reads the key if necessary, and starts the thread.

        Args:
            specs: host lists as operators write them; `local` is this host.
            job: name or run id of the job to show, or the pid of one of its ranks; None: the
            newest.
            places: hosts that are reached through a shell, without an agent or a key.
            agents: agents at known ports; then we search this host for no others.
            python: path of the Python to use there, "" to find one.
            user: whose jobs to look at there, from root's shells; "" for those of the shell's user.
            read_only: give up the right to ask ranks; the agents enforce it.
            explain: each frame carries a trace of its judgement.

        Raises:
            UsageError: a spec is not a host list.
            KeyTrouble: our key is missing, or others can read it.
        """
        named = [spec for spec in specs if spec != LOCAL]
        self._names = expand(named) if named else ()
        self._agents = tuple(agents)
        self._local = LOCAL in specs and not self._agents
        self._places = tuple(places)
        self._python = python
        self._user = user
        self._pair = self._key() if self._by_sockets else None
        self._job = job
        self._read_only = read_only
        self._explain = explain
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._outlet = OpOutlet()
        self._closing = threading.Event()
        self._frame = Frame(now_ns=time.monotonic_ns(), wall_ns=time.time_ns())
        self._news: Mapping[str, Any] = {kind.name: kind.nothing for kind in follower_kinds()}
        self._thread = daemon_thread.start(self._run, "frtop source")

    @property
    def _by_sockets(self) -> bool:
        """Whether we reach agents by sockets, which need a key."""
        return self._local or bool(self._names or self._agents)

    def _key(self) -> keys.KeyPair | None:
        """Loads our pair, and never makes one: no agent would admit it.

        If this is the only host, it may be missing: the first agent here makes it.
        """
        from frtop_probe import keys  # noqa: PLC0415 - libzmq

        try:
            return keys.load(create=False)
        except keys.NoKey as error:
            if not self._names:
                return None
            raise KeyTrouble(error.text, error.next) from error
        except keys.KeyProblem as error:
            raise KeyTrouble(error.text, error.next) from error

    def frame(self) -> Frame:
        return self._frame

    def watch(self, ranks: Iterable[int]) -> None:
        wanted = frozenset(ranks)
        self._commands.put(lambda session: session.requests.watch(wanted))

    def show_hosts(self, hosts: Iterable[str]) -> None:
        wanted = tuple(hosts)
        self._commands.put(lambda session: session.gauges.show(wanted))

    def news(self) -> Mapping[str, Any]:
        return self._news

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        self._commands.put(partial(Session.do, request=request, ranks=tuple(ranks)))

    def capture(
        self, path: Path, *, automatic: bool = False, settle_s: float = 0.0, redact: bool = False
    ) -> None:
        self._commands.put(
            lambda session: session.files.capture(
                path, automatic=automatic, settle_s=settle_s, redact=redact
            )
        )

    def finish_capture(self) -> None:
        self._commands.put(lambda session: session.files.finish_capture())

    def export(self, path: Path, name: str, *, over: bool = False, redact: bool = False) -> None:
        self._commands.put(
            lambda session: session.files.export(path, name, over=over, redact=redact)
        )

    def choose(self, job: JobKey | None) -> None:
        self._commands.put(partial(Session.choose, job=job))

    def want_statistics(self, wanted: StatisticsWanted | None, *, whom: str = "") -> None:
        self._commands.put(lambda session: session.statistics.want(wanted, whom))

    def explain(self, *, on: bool) -> None:
        self._commands.put(partial(Session.explain, on=on))

    def follow_ops(self, ranks: Iterable[int] | None) -> None:
        """Follows every op of these ranks from now on; None: of all. `take_ops` returns them."""
        wanted = frozenset(ranks) if ranks is not None else None
        self._commands.put(lambda session: session.ops.follow(wanted))

    def take_ops(self) -> tuple[list[FollowedOps], int]:
        """The followed ops since the last call, and how many events did not fit."""
        return self._outlet.take()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=12)

    def _run(self) -> None:
        hosts = len(self._names) + len(self._places) + len(self._agents)
        with OF_PROCESS.room_for(hosts) as fitting:
            self._follow(self._leave_out(fitting))

    def _leave_out(self, fitting: int) -> Mapping[str, Problem]:
        """Drops the last hosts, if there are more than this; returns why, by host."""
        hosts = [
            *self._names,
            *(one.host for one in self._agents),
            *(one.name for one in self._places),
        ]
        agents = max(0, fitting - len(self._names))
        places = max(0, agents - len(self._agents))
        self._names, self._agents = self._names[:fitting], self._agents[:agents]
        self._places = self._places[:places]
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        problem = Problem(
            f"not connected: this process may open {files} files, enough for {fitting} hosts",
            "raise the limit (ulimit -Hn), or name fewer hosts",
        )
        return dict.fromkeys(hosts[fitting:], problem)

    def _follow(self, left_out: Mapping[str, Problem]) -> None:
        connections: Connections | None = None
        try:
            connections = self._connections()
            if connections is None:
                return
            local = self._known_agents() if self._local or self._agents else None
            session = Session(
                connections,
                self._names,
                self._job,
                local,
                PlaceSearch(self._places) if self._places else None,
                outlet=self._outlet,
                left_out=left_out,
                read_only=self._read_only,
                explain=self._explain,
            )
            while not self._closing.is_set():
                self._step(session, connections)
            session.leave()
            until = time.monotonic() + LEAVE_S
            while session.is_ordering and time.monotonic() < until:
                self._step(session, connections)
            session.close()
        except Exception as error:  # noqa: BLE001 - a screen that freezes silently would lie
            self._frame = _failed(self._frame, error)
        finally:
            if connections is not None:
                connections.close()

    def _known_agents(self) -> LocalDiscovery | KnownAgents:
        from frtop_tui.connect.local_discovery import KnownAgents, LocalDiscovery  # noqa: PLC0415

        return LocalDiscovery(self._names) if self._local else KnownAgents(self._agents)

    def _connections(self) -> Connections | None:
        """The ways to all hosts; None if we are closed before there is a key."""
        pipes: Connections | None = None
        if self._places:
            way = start_script(program="fan_out", last=self._python)
            last = last_python(self._places)
            script = start_script(self._python, last=last, user=self._user)
            pipes = PipeConnections(script, agent_lines, way)
        if pipes is not None and not self._by_sockets:
            return pipes
        pair = self._await_key()
        if pair is None:
            return None
        from frtop_tui.connect.agent_connections import AgentConnections  # noqa: PLC0415

        sockets = AgentConnections(pair)
        return JoinedConnections(sockets, pipes) if pipes is not None else sockets

    def _await_key(self) -> keys.KeyPair | None:
        """Our pair, as soon as an agent has made it; None if we are closed before."""
        if self._pair is not None:
            return self._pair
        from frtop_probe import keys  # noqa: PLC0415 - libzmq
        from frtop_tui.connect.local_discovery import LocalDiscovery  # noqa: PLC0415

        local = LocalDiscovery(())
        problem: Problem | None
        while not self._closing.wait(KEY_INTERVAL_S):
            now = time.monotonic_ns()
            try:
                return keys.load(create=False)
            except keys.NoKey as missing:
                local.search(now)
                # An agent has its key before it announces itself: its key is elsewhere.
                elsewhere = f"{missing.text}, and the agent of this host keeps its key elsewhere"
                problem = Problem(elsewhere, missing.next) if local.found else local.problem
            except keys.KeyProblem as trouble:
                problem = Problem(trouble.text, trouble.next)
            self._frame = replace(self._frame, now_ns=now, wall_ns=time.time_ns(), problem=problem)
        return None

    def _step(self, session: Session, connections: Connections) -> None:
        """One round: commands of the screen, discovered hosts, events of the sockets."""
        while not self._commands.empty():
            self._commands.get()(session)
        session.discover(time.monotonic_ns())
        for event in connections.wait(50):
            foreground.give_way()
            session.handle(event, time.monotonic_ns())
        self._frame = session.frame() or self._frame
        self._news = session.news()


def _failed(frame: Frame, error: Exception) -> Frame:
    """The last frame, without its claims."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    problem = Problem(
        f"frtop itself failed: {error!r} at {Path(where.filename).name}:{where.lineno}",
        "quit and start frtop again: this is the moment before that; the job is not affected",
        internal=True,
    )
    return replace(frame, problem=problem, health="undecided", verdicts=())


FILES_PER_HOST: Final = 3
"""Two connections, or three pipes."""
FILES_PER_SOURCE: Final = 16
SPARE_FILES: Final = 256


class FileLimit:
    """Counts the sources of this process: `frtop watch` has one per job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = SPARE_FILES

    @contextmanager
    def room_for(self, hosts: int) -> Iterator[int]:
        """Makes room for a source of this many hosts, as long as it runs; yields how many fit."""
        own = FILES_PER_SOURCE + FILES_PER_HOST * hosts
        with self._lock:
            self._wanted += own
            missing = max(0, self._wanted - _raised_to(self._wanted))
        try:
            yield max(1, hosts - -(-missing // FILES_PER_HOST))
        finally:
            with self._lock:
                self._wanted -= own


OF_PROCESS: Final = FileLimit()


def _raised_to(wanted: int) -> int:
    """Raises the limit of files to this if need be, as far as possible; returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft
