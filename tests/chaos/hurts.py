"""What is done to a job, to frtop beside it, and to those who look: one row each in `HURTS`.

Clocks jump for single processes (`clock.c`), and `/dev/shm` is full on hosts that have their own.
Left out, because all that runs on this machine would feel it: a full memory, a killed kernel
thread. A `DataLoader`'s worker is killed at the end only, because without it the job ends rightly.
The length of a ring is left alone: who shortens a file that others have mapped kills them, and the
folder is closed to all but the job's own user.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

import psutil

from chaos.site import BASTION, NODES, OPERATOR, Site, jump
from chaos.stream import TRACEBACK
from frtop_probe.ring.beside import SUFFIX as SOCKET
from frtop_probe.ring.layout import SUFFIX as RING
from zoo import cgroup

LEAVE_S: Final = 30.0
"""Longest time from ^C to the end of a command."""
COMMANDS: Final = (
    ("stacks",),
    ("stacks", "--json"),
    ("capture", "-o", "{out}"),
    ("diagnose", "--json"),
    ("numbers", "--yes", "--ops", "20", "--steps", "2", "--seconds", "5"),
    ("statistics", "--window", "5"),
    ("tensors", "--rank", "0"),
)
JUMPS_S: Final = (-400 * 86400, -3600, -5, 5, 3600, 400 * 86400)
LOOKS: Final = (
    *"1234567jkgG?/<>IFZ+-[]", "Enter", "Escape", "Tab", "Space", "Up", "Down", "C-l",
)  # fmt: skip
"""Keys that ask nothing of ranks."""
NOISE: Final = 8
"""Connections that bring garbage to an agent, half as many to a rank."""


Does = Callable[[Site], AbstractContextManager[None]]


def _to_agents(number: int, undo: int | None = None) -> Does:
    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        agents = site.agents()
        _signal([one.pid for one in agents], number)
        yield
        if undo is not None:
            _signal([one.pid for one in agents], undo)

    return hurt


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _without_descriptors(whose: Callable[[Site], list[int]]) -> Does:
    """They can open nothing; one that is still being loaded by Python could not start."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        limited = []
        for pid in whose(site):
            with suppress(psutil.Error, ProcessLookupError):
                files = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                now = psutil.Process(pid).num_fds(), files[1]
                resource.prlimit(pid, resource.RLIMIT_NOFILE, now)
                site.limits.setdefault(pid, files)
                limited.append(pid)
        yield
        for pid in limited:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, site.limits[pid])

    return hurt


def _without_pids(whose: Callable[[Site], list[int]]) -> Does:
    """They can start no process and no thread."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        with cgroup.alone("pids", whose(site)) as folder:
            current = (folder / "pids.current").read_text()
            (folder / "pids.max").write_text(current)
            yield

    return hurt


def _announced(site: Site) -> list[int]:
    return [card.pid for card in site.cards()]


def _loaded_stream(site: Site) -> list[int]:
    return [site.stream.pid] if site.stream.health else []


def _a_rank(site: Site) -> list[int]:
    return [site.chance.choice(site.ranks)]


@contextmanager
def _stream_killed(site: Site) -> Iterator[None]:
    site.stream.end(signal.SIGKILL)
    yield
    site.stream.start()


@contextmanager
def _stream_stopped(site: Site) -> Iterator[None]:
    site.stream.send(signal.SIGSTOP)
    yield
    site.stream.send(signal.SIGCONT)


@contextmanager
def _stream_not_read(site: Site) -> Iterator[None]:
    site.stream.read(False)
    yield
    site.stream.read(True)


@contextmanager
def _screen_killed(site: Site) -> Iterator[None]:
    assert site.screen is not None
    site.screen.hurt(signal.SIGKILL)
    yield


@contextmanager
def _screen_stopped(site: Site) -> Iterator[None]:
    assert site.screen is not None
    site.screen.hurt(signal.SIGSTOP)
    yield
    site.screen.hurt(signal.SIGCONT)


@contextmanager
def _screen_resized(site: Site) -> Iterator[None]:
    assert site.screen is not None
    for _ in range(8):
        site.screen.resize(site.chance.randint(20, 250), site.chance.randint(6, 60))
        time.sleep(0.05)
    yield
    site.screen.resize(120, 40)


@contextmanager
def _screen_typed_at(site: Site) -> Iterator[None]:
    """Keys that look, in any order; then back to where it began."""
    assert site.screen is not None
    for _ in range(12):
        site.screen.type(site.chance.choice(LOOKS))
        time.sleep(0.05)
    yield
    for key in ("Escape", "Escape", "Escape", "1"):
        site.screen.type(key)
        time.sleep(0.2)


@contextmanager
def _watch_killed(site: Site) -> Iterator[None]:
    assert site.watch is not None
    site.watch.kill()
    yield
    site.watch.start()


@contextmanager
def _watch_stopped(site: Site) -> Iterator[None]:
    assert site.watch is not None
    site.watch.hurt(signal.SIGSTOP)
    yield
    site.watch.hurt(signal.SIGCONT)


def _command_ended(number: int) -> Does:
    """Starts a command and ends it midway."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        words = [one.format(out=site.out / "a.cap") for one in site.chance.choice(COMMANDS)]
        with tempfile.TemporaryFile("w+") as said:
            command = subprocess.Popen(
                site.operator.command(*words),
                env=site.operator.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            yield
            command.send_signal(number)
            try:
                command.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                site.problems.append(f"{words}: still runs {LEAVE_S:.0f} s after ^C")
                command.kill()
                command.wait()
            said.seek(0)
            # An interpreter that is still importing itself knows no better.
            if TRACEBACK in (text := said.read()) and "frtop_tui/__main__" in text:
                site.problems.append(f"{words}: {text[-2000:]}")

    return hurt


def _ranks_stopped(count: int | None) -> Does:
    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        pids = site.chance.sample(site.ranks, count or len(site.ranks))
        begin = time.monotonic()
        _signal(pids, signal.SIGSTOP)
        yield
        _signal(pids, signal.SIGCONT)
        site.stand(begin)

    return hurt


@contextmanager
def _worker_stopped(site: Site) -> Iterator[None]:
    """A rank waits for data meanwhile."""
    workers = site.workers_of(site.chance.randrange(len(site.ranks)))
    begin = time.monotonic()
    _signal(workers[:1], signal.SIGSTOP)
    yield
    _signal(workers[:1], signal.SIGCONT)
    site.stand(begin)


@contextmanager
def _rank_frozen(site: Site) -> Iterator[None]:
    begin = time.monotonic()
    with cgroup.frozen(site.chance.choice(site.ranks)):
        yield
    site.stand(begin)


@contextmanager
def _agent_frozen(site: Site) -> Iterator[None]:
    agents = site.agents()
    if not agents:
        yield
        return
    with suppress(ProcessLookupError), cgroup.frozen(agents[0].pid):
        yield


@contextmanager
def _folder_full(site: Site) -> Iterator[None]:
    """Fills the file systems of the folders to the last byte; on hosts that is /dev/shm."""
    ballasts = [place.folder / "ballast" for place in site.places]
    for ballast in ballasts:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            for size in (1 << 16, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass
    yield
    for ballast in ballasts:
        ballast.unlink(missing_ok=True)


def _link(
    where: tuple[str, ...], fault: Callable[[Site, str], AbstractContextManager[None]]
) -> Does:
    """A fault of the cable of one of these hosts; ranks wait for each other longer meanwhile."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        name, begin = site.chance.choice(where), time.monotonic()
        with fault(site, name):
            yield
        if name in NODES:  # TCP waits twice as long before each new attempt
            site.stand(begin, 2 * (time.monotonic() - begin) + 1)

    return hurt


def _cut(site: Site, name: str) -> AbstractContextManager[None]:
    assert site.network is not None
    return site.network.cut(name)


def _throttled(site: Site, name: str) -> AbstractContextManager[None]:
    assert site.network is not None
    return site.network.slow(name, site.chance.choice(("256kbit", "1mbit", "5mbit")))


def _poor(
    delay_ms: float, spread_ms: float, loss: float
) -> Callable[..., AbstractContextManager[None]]:
    def fault(site: Site, name: str) -> AbstractContextManager[None]:
        assert site.network is not None
        return site.network.poor(name, delay_ms, spread_ms, loss)

    return fault


def _on_the_way(where: str, number: int, undo: int | None = None) -> Does:
    """To what carries an operator's pipes on a host: ssh, sshd's child, the relay."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        pids = site.on(where)
        if where == OPERATOR:
            pids = [pid for pid in pids if _is_named(pid, "ssh")]
        _signal(pids, number)
        yield
        if undo is not None:
            _signal(pids, undo)

    return hurt


def _is_named(pid: int, name: str) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).name() == name
    return False


def _clock_jumps(whose: str) -> Does:
    """It stays where it jumped."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        jump(site.clocks[whose], site.chance.choice(JUMPS_S))
        yield

    return hurt


@contextmanager
def _noise_at_ports(site: Site) -> Iterator[None]:
    """Garbage as the first word, and after a greeting of ZeroMQ; some of it stays connected."""
    ports = [port for card in site.cards() for port in (card.pub, card.ask)]
    connections = []
    for port in ports * (NOISE // 2):
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), 1)
            connections.append(connection)
            if site.chance.random() < 0.5:
                connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(48))
            connection.sendall(site.chance.randbytes(site.chance.choice((1, 100, 20_000))))
    yield
    for connection in connections:
        connection.close()


@contextmanager
def _noise_at_ranks(site: Site) -> Iterator[None]:
    connections = []
    for path in site.files(SOCKET):
        for _ in range(NOISE // 2):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(1)
            connections.append(connection)
            with suppress(OSError):
                connection.connect(str(path))
                text = b'{"ask": "' if site.chance.random() < 0.5 else b""
                size = site.chance.choice((0, 10, 20_000))
                connection.sendall(text + site.chance.randbytes(size))
    yield
    for connection in connections:
        connection.close()


@contextmanager
def _files_removed(site: Site) -> Iterator[None]:
    """Removes some files, or all; whose ring is gone is unknown to the next agent."""
    every = site.chance.random() < 0.3
    for path in site.files():
        if every or site.chance.random() < 0.5:
            path.unlink(missing_ok=True)
            if path.suffix == RING and (rank := site.rank_of(path)) is not None:
                site.blind.add(rank)
    yield


@contextmanager
def _ring_overwritten(site: Site) -> Iterator[None]:
    """Random bytes in a part of a ring or in all of it."""
    rings = site.files(RING)
    if rings:
        path = site.chance.choice(rings)
        if (rank := site.rank_of(path)) is not None:
            site.blind.add(rank)
        with suppress(OSError), path.open("r+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_blocks * 512
            part = site.chance.choice((64, 4096, size // 2, size))
            file.seek(site.chance.choice((0, site.chance.randrange(max(1, size - part + 1)))))
            file.write(site.chance.randbytes(min(part, size - file.tell())))
    yield


Need = Literal[
    "recorder", "here", "links", "folders", "shells", "relay", "small", "clock", "screen", "watch",
    "freezer", "pids",
]  # fmt: skip
"""What a hurt cannot do without: a recorder; ranks on this host, or on others, where agents have
folders or come through shells, over a relay; a small file system; clocks of their own; who looks;
cgroups that freeze or count."""


@dataclass(frozen=True, slots=True)
class Hurt:
    """One row.

    Attributes:
        does: does it, and undoes it at its exit.
        lasts_s: between these.
        lists: a job's workers can send no tensors meanwhile, with or without frtop.
    """

    does: Does
    lasts_s: tuple[float, float] = (0.0, 0.0)
    needs: tuple[Need, ...] = ()
    lists: bool = False


ALL_HOSTS: Final = (*NODES, OPERATOR)
HURTS: Final[dict[str, Hurt]] = {
    "agent killed": Hurt(_to_agents(signal.SIGKILL)),
    "agent told to end": Hurt(_to_agents(signal.SIGTERM)),
    "agent stopped": Hurt(_to_agents(signal.SIGSTOP, signal.SIGCONT), (0.5, 4)),
    "agent frozen": Hurt(_agent_frozen, (0.5, 3), ("freezer",)),
    "agent without descriptors": Hurt(_without_descriptors(_announced), (1, 4), ("folders",)),
    "agent without pids": Hurt(_without_pids(_announced), (1, 4), ("folders", "pids")),
    "garbage at the agent's ports": Hurt(_noise_at_ports, (0, 2), ("here",)),
    "stream killed": Hurt(_stream_killed, (0, 1)),
    "stream stopped": Hurt(_stream_stopped, (0.5, 4)),
    "stream not read": Hurt(_stream_not_read, (0.5, 4)),
    "stream without descriptors": Hurt(_without_descriptors(_loaded_stream), (1, 4)),
    "screen killed": Hurt(_screen_killed, (0, 1), ("screen",)),
    "screen stopped": Hurt(_screen_stopped, (0.5, 4), ("screen",)),
    "screen resized": Hurt(_screen_resized, (0, 1), ("screen",)),
    "keys typed at the screen": Hurt(_screen_typed_at, (0, 2), ("screen",)),
    "watcher killed": Hurt(_watch_killed, (0, 1), ("watch",)),
    "watcher stopped": Hurt(_watch_stopped, (0.5, 4), ("watch",)),
    "command killed": Hurt(_command_ended(signal.SIGKILL), (0.1, 3)),
    "command interrupted": Hurt(_command_ended(signal.SIGINT), (0.1, 3)),
    "rank stopped": Hurt(_ranks_stopped(1), (0.1, 1.5)),
    "all ranks stopped": Hurt(_ranks_stopped(None), (0.1, 1.5)),
    "rank frozen": Hurt(_rank_frozen, (0.1, 1.5), ("freezer",)),
    "rank without descriptors": Hurt(_without_descriptors(_a_rank), (1, 4), lists=True),
    "rank without pids": Hurt(_without_pids(_a_rank), (1, 4), ("pids",)),
    "data worker stopped": Hurt(_worker_stopped, (0.1, 1.5)),
    "garbage at the ranks' sockets": Hurt(_noise_at_ranks, (0, 2), ("recorder", "here")),
    "files removed": Hurt(_files_removed, (0, 0), ("folders",)),
    "ring overwritten": Hurt(_ring_overwritten, (0, 0), ("folders", "recorder")),
    "folder full": Hurt(_folder_full, (0.5, 4), ("small",)),
    "shared memory full": Hurt(_folder_full, (0.5, 4), ("folders", "links"), lists=True),
    "link cut": Hurt(_link(ALL_HOSTS, _cut), (0.2, 3), ("links",)),
    "link delayed": Hurt(_link(ALL_HOSTS, _poor(40, 0, 0)), (1, 4), ("links",)),
    "link reorders": Hurt(_link(ALL_HOSTS, _poor(10, 10, 0)), (1, 4), ("links",)),
    "link loses": Hurt(_link(ALL_HOSTS, _poor(0, 0, 0.05)), (1, 4), ("links",)),
    "link throttled": Hurt(_link(ALL_HOSTS, _throttled), (1, 4), ("links",)),
    "link of the relay cut": Hurt(_link((BASTION,), _cut), (0.2, 6), ("relay",)),
    "link of the relay poor": Hurt(_link((BASTION,), _poor(30, 20, 0.05)), (1, 6), ("relay",)),
    "relay killed": Hurt(_on_the_way(BASTION, signal.SIGKILL), needs=("relay",)),
    "relay stopped": Hurt(
        _on_the_way(BASTION, signal.SIGSTOP, signal.SIGCONT), (0.5, 6), ("relay",)
    ),
    "ssh killed": Hurt(_on_the_way(OPERATOR, signal.SIGKILL), needs=("shells",)),
    "ssh stopped": Hurt(
        _on_the_way(OPERATOR, signal.SIGSTOP, signal.SIGCONT), (0.5, 6), ("shells",)
    ),
    "agents' clock jumps": Hurt(_clock_jumps("agents"), needs=("clock",)),
    "operators' clock jumps": Hurt(_clock_jumps("operators"), needs=("clock",)),
    "ranks' clock jumps": Hurt(_clock_jumps("ranks"), needs=("clock",)),
}
"""By what they are called."""
