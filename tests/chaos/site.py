"""What a round hurts: a job, frtop beside it, and those who look, on this host or on several."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import psutil

from chaos.looking import Screen, Watch
from chaos.stream import Stream
from e2e.conftest import family
from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement
from hosts.network import CLOCKS, Network

Reach = Literal["here", "ports", "ssh", "through"]
"""Where ranks are: on this host, or on two that are reached by ports, by ssh, or over a third."""
NODES: Final = ("node0", "node1")
BASTION: Final = "bastion"
OPERATOR: Final = "operator"
AHEAD_S: Final = (0, 1000, 0, 0)
"""Of the hosts' monotonic clocks, as after different boot times."""


@dataclass(frozen=True, slots=True)
class Place:
    """A host's FRTOP_DIR: what it is called there, and where it is seen from here."""

    named: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Operator:
    """How those who look are started: on their host, with options that name hosts and job."""

    inside: Callable[..., list[str]]
    options: tuple[str, ...]
    environment: dict[str, str]

    def command(self, *words: str) -> list[str]:
        return self.inside(sys.executable, "-m", "frtop_tui", *words, *self.options)


@dataclass(slots=True)
class Site:
    """What there is in a round.

    Attributes:
        places: of all hosts with ranks: rank N is on host N modulo their number.
        ranks: the pids.
        outside: of processes that wait for a rank from outside of its host, and take it with them.
        clocks: file of the offset of the clocks of `agents`, `operators`, `ranks`.
        begun: when all ranks had begun to train.
        stood: when ranks stood still because of us, from and until.
        limits: by pid, how many files each might open before we forbade it: two hurts may overlap.
        blind: ranks whose records we damaged: frtop need not see them any more.
        problems: what went wrong while something was hurt.
    """

    places: list[Place]
    out: Path
    operator: Operator
    chance: random.Random
    ranks: list[int]
    network: Network | None
    reach: Reach
    stream: Stream
    outside: list[int] = field(default_factory=list)
    clocks: dict[str, Path] = field(default_factory=dict)
    screen: Screen | None = None
    watch: Watch | None = None
    begun: float = field(default_factory=time.monotonic)
    stood: list[tuple[float, float]] = field(default_factory=list)
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)
    blind: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def stand(self, begin: float, after_s: float = 0.0) -> None:
        """Notes that ranks stood still until now, and recover for some time."""
        self.stood.append((begin, time.monotonic() + after_s))

    def family(self) -> list[psutil.Process]:
        """All processes of frtop and the job on hosts with ranks."""
        if self.network is not None and self.reach != "ports":
            own = {pid for one in (*self.outside, *self.ranks) for pid in _with_children(one)}
            return [psutil.Process(pid) for pid in self.on(*NODES) if pid not in own]
        return [process for place in self.places for process in family(Path(place.named))]

    def on(self, *names: str) -> list[int]:
        """Processes on hosts, but for those that serve logins."""
        assert self.network is not None
        return [
            pid
            for name in names
            for pid in self.network.hosts[name].processes()
            if _name(pid) not in ("sshd", "")
        ]

    def agents(self) -> list[psutil.Process]:
        """All agents: there may be none, and two on a host while one leaves."""
        if self.reach in ("ssh", "through"):
            return [one for one in self.family() if _name(one.pid).startswith("python")]
        found = []
        for process in self.family():
            with suppress(psutil.Error):
                if "frtop_probe.agent" in process.cmdline():
                    found.append(process)
        return found

    def cards(self) -> list[Announcement]:
        """Of the agents that have announced themselves."""
        found = (announcement.find_agent(place.folder) for place in self.places)
        return [card for card in found if card is not None]

    def workers_of(self, rank: int) -> list[int]:
        """Processes that read data for a rank: they are forks of it."""
        with suppress(psutil.Error):
            parent = psutil.Process(self.ranks[rank])
            return [one.pid for one in parent.children() if one.cmdline() == parent.cmdline()]
        return []

    def ahead_s(self, rank: int) -> int:
        """How far the monotonic clock of a rank's host is ahead of ours."""
        return AHEAD_S[rank % len(NODES)] if CLOCKS and self.network is not None else 0

    def files(self, suffix: str = "") -> list[Path]:
        """Files of all hosts' folders."""
        return sorted(path for one in self.places for path in one.folder.glob(f"*{suffix}"))

    def rank_of(self, ring: Path) -> int | None:
        """Whose it is, by the pid in its name."""
        pid = int(ring.name.partition("-")[0])
        return self.ranks.index(pid) if pid in self.ranks else None


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""


def _with_children(pid: int) -> list[int]:
    with suppress(psutil.Error):
        return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
    return [pid]


def jump(file: Path, ahead_s: int) -> None:
    """Moves a clock; processes have mapped the file."""
    with file.open("r+b" if file.exists() else "wb") as clock:
        clock.write(ahead_s.to_bytes(8, sys.byteorder, signed=True))
