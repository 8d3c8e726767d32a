"""Four hosts with one gloo job across them, and an operator's host."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from frtop_probe.agent import announcement
from hosts.network import Network
from waiting import wait_for

NODES: Final = tuple(f"node{number}" for number in range(4))
ALL: Final = "node[0-3]"
OPERATOR: Final = "operator"
CULPRIT: Final = 2
"""The rank that hangs on request; rank N is on nodeN."""
AHEAD_S: Final = tuple(1000 * (number + 1) for number in range(len(NODES)))
"""Offsets of the hosts' monotonic clocks, as after different boot times."""
FOLDER: Final = "/dev/shm/frtop"
_MOVES: Final = re.compile(r"\x1b(?:\[[0-9;?<>=]*[A-Za-z~]|\][^\x07]*\x07|[()][A-Z0-9]|.)")
_HERE: Final = Path(__file__).parent
_PROGRAM: Final = _HERE.parent / "jobs" / "told_to_hang.py"


@dataclass(frozen=True, slots=True)
class Said:
    """Output of an frtop on the operator's host, and its duration."""

    status: int
    output: str
    errors: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        assert self.output.startswith("{"), self
        found: dict[str, Any] = json.loads(self.output)
        return found


class Cluster:
    """A gloo job: rank N runs on nodeN, and every host has its own agent.

    With `managed`, every host has a second cable that only frtop uses. With `bare`, nobody
    prepared the job, and each host sees its own processes only, has no agent, and runs sshd.
    """

    def __init__(
        self,
        folder: Path,
        *,
        managed: bool = False,
        bare: bool = False,
        program: Path = _PROGRAM,
    ) -> None:
        self._program = program
        self.folder = folder
        self.key_file = folder / "key"
        self._managed = managed
        self._bare = bare
        self.network = Network(
            folder,
            (*NODES, OPERATOR),
            (*AHEAD_S, 0),
            cables=2 if managed else 1,
            own_pids=NODES if bare else (),
        )
        self._job: subprocess.Popen[str] | None = None
        self._watchers: list[Watcher] = []
        self._started = 0.0
        self._hung_ns = 0
        os.mkfifo(folder / "shard")
        # While it is open here, ranks can open it too, and a read of it blocks forever.
        self._shard = os.open(folder / "shard", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self) -> None:
        """Starts the job as a user does; waits until every host has an agent, or trains."""
        ranks = []
        for rank, node in enumerate(NODES):
            host = self.network.hosts[node]
            environment = {
                "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(NODES)),
                "MASTER_ADDR": NODES[0], "MASTER_PORT": "29500",
                "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
                "FRTOP_BIND": host.managed if self._managed else host.address,
            }  # fmt: skip
            ranks.append(
                {"holder": host.pid, "environment": environment, "log": str(self.log(rank))}
            )
        plan = self.folder / "plan.json"
        command = [str(self._program), str(self.folder), str(CULPRIT)]
        plan.write_text(json.dumps({"command": command, "ranks": ranks}))
        start = () if self._bare else (sys.executable, "-m", "frtop_tui", "run", "--")
        job = self._job = subprocess.Popen(
            [*start, sys.executable, str(_HERE / "ranks.py"), str(plan)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment(),
        )  # fmt: skip
        if self._bare:
            with self.between_steps():
                pass
        else:
            self.wait_for(
                lambda: job.poll() is not None or all(map(self.agent, NODES)),
                "an agent on every host",
                60,
            )
        assert job.poll() is None, "the job ended before it began"
        self._started = time.monotonic()

    def environment(self) -> dict[str, str]:
        """Returns the environment of all hosts, which is the same, as with shared homes."""
        return {
            **os.environ,
            "FRTOP_DIR": FOLDER,
            "FRTOP_KEY_FILE": str(self.key_file),
            "FRTOP_AGENT_WITH": str(os.getpid()),
            # These hosts share one list of processes, with whatever else runs on this machine.
            "FRTOP_UNPREPARED": "1" if self._bare else "0",
            "OMP_NUM_THREADS": "1",
        }

    def log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def agent(self, node: str) -> int:
        """Returns the pid of the agent on `node`, or 0 if none runs."""
        card = announcement.find_agent(self.network.hosts[node].file(FOLDER))
        return 0 if card is None else card.pid

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Pauses all ranks between two steps: no rank is in an op."""
        pause = self.folder / "pause"
        # Every rank removes its own file when it goes on, which may take a while.
        self.wait_for(lambda: not self._paused(), "all go on", 60)
        pause.touch()
        try:
            self.wait_for(lambda: self._paused() == len(NODES), "all pause", 60)
            yield
        finally:
            pause.unlink()

    def _paused(self) -> int:
        return len(list(self.folder.glob("paused.*")))

    def past_start(self) -> None:
        """Waits until frtop has seen the job's usual waits."""
        time.sleep(max(0.0, self._started + 4.0 - time.monotonic()))

    def hang(self) -> int:
        """Hangs the culprit at its next step; returns our monotonic time of the request in ns."""
        if not self._hung_ns:
            self.past_start()
            self._hung_ns = time.monotonic_ns()
            (self.folder / "hang").touch()
        return self._hung_ns

    def frtop(self, *arguments: str) -> Said:
        """Runs the program on the operator's host."""
        command = (sys.executable, "-m", "frtop_tui", *arguments)
        return _said(self.network.hosts[OPERATOR].inside(*command), self.environment())

    def screen(self) -> Screen:
        """Opens the screen on the operator's host."""
        command = (sys.executable, "-m", "frtop_tui", "--connect", ALL)
        return Screen(self.network.hosts[OPERATOR].inside(*command), self.environment())

    def watch(self, *arguments: str) -> Watcher:
        """Starts an operator who watches continuously."""
        command = (sys.executable, str(_HERE / "watcher.py"), *arguments)
        inside = self.network.hosts[OPERATOR].inside(*command)
        watcher = Watcher(inside, self.environment())
        self._watchers.append(watcher)
        return watcher

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float) -> float:
        """Waits for a condition; returns how many seconds that took."""
        begin = time.monotonic()
        wait_for(condition, lambda: f"{what}\n{self._logs()[-3000:]}", seconds, pause_s=0.05)
        return time.monotonic() - begin

    def _logs(self) -> str:
        logs = (self.log(rank) for rank in range(len(NODES)))
        return "".join(log.read_text() for log in logs if log.exists())

    def close(self) -> None:
        """Ends the job, the agents, the operators, and the hosts."""
        os.close(self._shard)
        self.network.close()
        for watcher in self._watchers:
            watcher.close()
        if self._job is not None:
            self._job.communicate(timeout=60)


def _said(command: list[str], environment: dict[str, str]) -> Said:
    begin = time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return Said(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


class Screen:
    """A running screen, on a terminal of 120 columns that records all output."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**environment, "TERM": "xterm-256color"}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._written = b""

    def shows(self, text: str, seconds: float) -> float:
        """Waits until `text` is drawn in one piece; returns seconds since the start."""

        def is_drawn() -> bool:
            if text not in self.written and select.select([self._terminal], [], [], 0.1)[0]:
                self._written += os.read(self._terminal, 65536)
            return text in self.written

        wait_for(is_drawn, lambda: f"{text}\n{self.written[-3000:]}", seconds, pause_s=0)
        return time.monotonic() - self._begin

    @property
    def written(self) -> str:
        """Returns the output so far, without colours and cursor moves."""
        return _MOVES.sub("", self._written.decode(errors="replace"))

    def quit(self) -> int:
        """Types `Q`; returns the exit status."""
        os.write(self._terminal, b"Q")
        end = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < end:
            with suppress(OSError):  # its side is closed when it has ended
                if select.select([self._terminal], [], [], 0.1)[0]:
                    os.read(self._terminal, 65536)
        os.close(self._terminal)
        return self._process.wait(60)


class Watcher:
    """A running `watcher.py`."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def frame(self) -> dict[str, Any]:
        """Returns its current frame."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seen: dict[str, Any] = json.loads(self._process.stdout.readline())
        return seen

    def kill(self) -> None:
        """Kills the operator, who can do nothing about it."""
        self._process.kill()

    def close(self) -> None:
        self._process.communicate(timeout=60)
