"""What is done to a job, to frtop beside it, and to those who look: one row each in `HURTS`.

Left out, because all that runs on this machine would feel it: a jump of the system's clock, a
full memory, a killed kernel thread. A `DataLoader`'s worker is left alone, because without it the
job ends rightly, and so is the length of a ring: who shortens a file that others have mapped
kills them, and the folder is closed to all but the job's own user.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from chaos.screen import TRACEBACK, Screen
from e2e.conftest import family
from frtop_probe.agent import announcement
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
NOISE: Final = 8
"""Connections that bring garbage to an agent, half as many to a rank."""


@dataclass(slots=True)
class Site:
    """What a round hurts.

    Attributes:
        folder: FRTOP_DIR.
        ranks: the pids.
        small: whether the folder is on a small file system of its own.
        stood: when ranks stood still because of us, from and until.
        blind: ranks whose records we damaged: frtop need not see them any more.
        problems: what went wrong while something was hurt.
    """

    folder: Path
    out: Path
    job: str
    environment: dict[str, str]
    chance: random.Random
    ranks: list[int]
    screen: Screen
    small: bool = False
    stood: list[tuple[float, float]] = field(default_factory=list)
    blind: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def agents(self) -> list[psutil.Process]:
        """All agents of the folder: there may be none, and two while one leaves."""
        found = []
        for process in family(self.folder):
            with suppress(psutil.Error):
                if "frtop_probe.agent" in process.cmdline():
                    found.append(process)
        return found

    def files(self, suffix: str) -> list[Path]:
        """Files of ranks, in the order of ranks' pids."""
        return sorted(self.folder.glob(f"*{suffix}"))

    def rank_of(self, ring: Path) -> int | None:
        """Whose it is, by the pid in its name."""
        pid = int(ring.name.partition("-")[0])
        return self.ranks.index(pid) if pid in self.ranks else None


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


@contextmanager
def _no_descriptors(site: Site) -> Iterator[None]:
    """The agent can open nothing; one that is still being loaded by Python could not start."""
    card = announcement.find_agent(site.folder)
    highest = 0
    if card is not None:
        with suppress(psutil.Error, ProcessLookupError):
            highest = resource.prlimit(card.pid, resource.RLIMIT_NOFILE)[1]
            now = psutil.Process(card.pid).num_fds(), highest
            resource.prlimit(card.pid, resource.RLIMIT_NOFILE, now)
    yield
    if card is not None and highest:
        with suppress(ProcessLookupError):
            resource.prlimit(card.pid, resource.RLIMIT_NOFILE, (highest, highest))


@contextmanager
def _screen_killed(site: Site) -> Iterator[None]:
    site.screen.end(signal.SIGKILL)
    yield
    site.screen.start()


@contextmanager
def _screen_stopped(site: Site) -> Iterator[None]:
    site.screen.send(signal.SIGSTOP)
    yield
    site.screen.send(signal.SIGCONT)


@contextmanager
def _screen_not_read(site: Site) -> Iterator[None]:
    site.screen.read(False)
    yield
    site.screen.read(True)


def _command_ended(number: int) -> Does:
    """Starts a command and ends it midway."""

    @contextmanager
    def hurt(site: Site) -> Iterator[None]:
        words = [one.format(out=site.out / "a.cap") for one in site.chance.choice(COMMANDS)]
        with tempfile.TemporaryFile("w+") as said:
            command = subprocess.Popen(
                [sys.executable, "-m", "frtop_tui", *words, "--job", site.job],
                env=site.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
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
        site.stood.append((begin, time.monotonic()))

    return hurt


@contextmanager
def _rank_frozen(site: Site) -> Iterator[None]:
    begin = time.monotonic()
    with cgroup.frozen(site.chance.choice(site.ranks)):
        yield
    site.stood.append((begin, time.monotonic()))


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
    """Fills the file system to the last byte."""
    ballast = site.folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        for size in (1 << 16, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    yield
    ballast.unlink(missing_ok=True)


@contextmanager
def _noise_at_ports(site: Site) -> Iterator[None]:
    """Garbage as the first word, and after a greeting of ZeroMQ; some of it stays connected."""
    card = announcement.find_agent(site.folder)
    ports = () if card is None else (card.pub, card.ask)
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
    for path in sorted(site.folder.iterdir()):
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


@dataclass(frozen=True, slots=True)
class Hurt:
    """One row.

    Attributes:
        does: does it, and undoes it at its exit.
        lasts_s: between these.
        needs: "" or what it cannot do without: a rank's `recorder`, a `small` folder, `freezer`.
    """

    does: Does
    lasts_s: tuple[float, float] = (0.0, 0.0)
    needs: str = ""


HURTS: Final[dict[str, Hurt]] = {
    "agent killed": Hurt(_to_agents(signal.SIGKILL)),
    "agent told to end": Hurt(_to_agents(signal.SIGTERM)),
    "agent stopped": Hurt(_to_agents(signal.SIGSTOP, signal.SIGCONT), (0.5, 4)),
    "agent frozen": Hurt(_agent_frozen, (0.5, 3), "freezer"),
    "agent without descriptors": Hurt(_no_descriptors, (1, 4)),
    "garbage at the agent's ports": Hurt(_noise_at_ports, (0, 2)),
    "screen killed": Hurt(_screen_killed, (0, 1)),
    "screen stopped": Hurt(_screen_stopped, (0.5, 4)),
    "screen not read": Hurt(_screen_not_read, (0.5, 4)),
    "command killed": Hurt(_command_ended(signal.SIGKILL), (0.1, 3)),
    "command interrupted": Hurt(_command_ended(signal.SIGINT), (0.1, 3)),
    "rank stopped": Hurt(_ranks_stopped(1), (0.1, 1.5)),
    "all ranks stopped": Hurt(_ranks_stopped(None), (0.1, 1.5)),
    "rank frozen": Hurt(_rank_frozen, (0.1, 1.5), "freezer"),
    "garbage at the ranks' sockets": Hurt(_noise_at_ranks, (0, 2), "recorder"),
    "files removed": Hurt(_files_removed, (0, 0)),
    "ring overwritten": Hurt(_ring_overwritten, (0, 0), "recorder"),
    "folder full": Hurt(_folder_full, (0.5, 4), "small"),
}
"""By what they are called."""


def are_there(*, recorder: bool, small: bool) -> list[str]:
    """Those that can be done in such a round, here."""
    there = {"": True, "recorder": recorder, "small": small, "freezer": cgroup.possible("freezer")}
    return [name for name, hurt in HURTS.items() if there[hurt.needs]]
