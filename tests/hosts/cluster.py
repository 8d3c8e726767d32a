"""Eight hosts with one gloo job across them, and an operator's host."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
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

import pytest

from frtop_probe.agent import announcement
from hosts.network import Network

NODES: Final = tuple(f"node{number}" for number in range(8))
ALL: Final = "node[0-7]"
OPERATOR: Final = "operator"
CULPRIT: Final = 5
"""The rank that hangs on request; rank N is on nodeN."""
AHEAD_S: Final = tuple(1000 * (number + 1) for number in range(8))
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
    """The job runs from `start` on; rank N on nodeN, each with an agent of its own.

    With `managed` hosts have a second cable, on which frtop is, and the job is not.
    """

    def __init__(self, folder: Path, size: int = len(NODES), *, managed: bool = False) -> None:
        self.folder = folder
        self.key_file = folder / "key"
        self.nodes = NODES[:size]
        self._managed = managed
        self.network = Network(
            folder, (*self.nodes, OPERATOR), (*AHEAD_S[:size], 0), cables=2 if managed else 1
        )
        self._job: subprocess.Popen[str] | None = None
        self._watchers: list[Watcher] = []
        self._started = 0.0
        self._hung_ns = 0
        os.mkfifo(folder / "shard")
        # Held open: so that opening succeeds and a read blocks for ever.
        self._shard = os.open(folder / "shard", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self) -> None:
        """Starts the job as a user does; waits until every host has an agent."""
        ranks = []
        for rank, node in enumerate(self.nodes):
            host = self.network.hosts[node]
            environment = {
                "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(len(self.nodes)),
                "MASTER_ADDR": NODES[0], "MASTER_PORT": "29500",
                "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
                "FRTOP_BIND": host.managed if self._managed else host.address,
            }  # fmt: skip
            ranks.append(
                {"holder": host.pid, "environment": environment, "log": str(self.log(rank))}
            )
        plan = self.folder / "plan.json"
        command = [str(_PROGRAM), str(self.folder), str(CULPRIT)]
        plan.write_text(json.dumps({"command": command, "ranks": ranks}))
        job = self._job = subprocess.Popen(
            [sys.executable, "-m", "frtop_tui", "run", "--", sys.executable,
             str(_HERE / "ranks.py"), str(plan)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment(),
        )  # fmt: skip
        self.until(
            lambda: job.poll() is not None or all(map(self.agent, self.nodes)),
            60,
            "an agent on every host",
        )
        assert job.poll() is None, "the job ended before it began"
        self._started = time.monotonic()

    def environment(self) -> dict[str, str]:
        """The same on all hosts, as with shared homes."""
        return {
            **os.environ,
            "FRTOP_DIR": FOLDER,
            "FRTOP_KEY_FILE": str(self.key_file),
            "FRTOP_AGENT_WITH": str(os.getpid()),
            "OMP_NUM_THREADS": "1",
        }

    def _with(self, key: Path | None) -> dict[str, str]:
        return {**self.environment(), "FRTOP_KEY_FILE": str(key or self.key_file)}

    def log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def agent(self, node: str) -> int:
        """The pid of the agent on `node`, 0 for none."""
        card = announcement.find_agent(self.network.hosts[node].file(FOLDER))
        return 0 if card is None else card.pid

    def kill_agent(self, node: str) -> int:
        """Kills the agent of `node`; gives its pid."""
        pid = self.agent(node)
        os.kill(pid, signal.SIGKILL)
        return pid

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """While inside, no rank is in an op or begins one."""
        pause = self.folder / "pause"
        # A rank that paused before removes its own mark, perhaps a little later.
        self.until(lambda: not self._paused(), 20, "all go on")
        pause.touch()
        try:
            self.until(lambda: self._paused() == len(self.nodes), 20, "all pause")
            yield
        finally:
            pause.unlink()

    def _paused(self) -> int:
        return len(list(self.folder.glob("paused.*")))

    def past_start(self) -> None:
        """Waits until the job has a history, so that usual waits are known."""
        time.sleep(max(0.0, self._started + 4.0 - time.monotonic()))

    def hang(self) -> int:
        """Makes the culprit hang from its next step on; gives our monotonic time."""
        if not self._hung_ns:
            self.past_start()
            self._hung_ns = time.monotonic_ns()
            (self.folder / "hang").touch()
        return self._hung_ns

    def frtop(self, *arguments: str, key: Path | None = None) -> Said:
        """Runs the program on the operator's host, with our key or another."""
        command = (sys.executable, "-m", "frtop_tui", *arguments)
        return _said(self.network.hosts[OPERATOR].inside(*command), self._with(key))

    def elsewhere(self, *arguments: str) -> Said:
        """Runs the program without a network and without the job's files."""
        return _said(["unshare", "--net", sys.executable, "-m", "frtop_tui", *arguments], {})

    def screen(self) -> Screen:
        """Opens the screen on the operator's host."""
        command = (sys.executable, "-m", "frtop_tui", "--connect", ALL)
        return Screen(self.network.hosts[OPERATOR].inside(*command), self.environment())

    def watch(self, *arguments: str, key: Path | None = None) -> Watcher:
        """Starts an operator who watches continuously."""
        command = (sys.executable, str(_HERE / "watcher.py"), *arguments)
        inside = self.network.hosts[OPERATOR].inside(*command)
        watcher = Watcher(inside, self._with(key))
        self._watchers.append(watcher)
        return watcher

    def until(self, condition: Callable[[], object], seconds: float, what: str) -> float:
        """Waits for a condition; gives the seconds that took."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > seconds:
                logs = "".join(
                    self.log(n).read_text() for n in range(len(self.nodes)) if self.log(n).exists()
                )
                pytest.fail(f"not within {seconds} s: {what}\n{logs[-3000:]}")
            time.sleep(0.05)
        return time.monotonic() - begin

    def close(self) -> None:
        """Ends the job, the agents, the operators, and the hosts."""
        os.close(self._shard)
        self.network.close()
        for watcher in self._watchers:
            watcher.close()
        if self._job is not None:
            self._job.communicate(timeout=10)


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
        """Waits until `text` was drawn in one piece; gives seconds since the start."""
        end = time.monotonic() + seconds
        while text not in self.written:
            assert time.monotonic() < end, f"not within {seconds} s: {text}\n{self.written[-3000:]}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                self._written += os.read(self._terminal, 65536)
        return time.monotonic() - self._begin

    @property
    def written(self) -> str:
        """The output so far, without colours and cursor moves."""
        return _MOVES.sub("", self._written.decode(errors="replace"))

    def quit(self) -> int:
        """Types `q`; gives the exit status."""
        os.write(self._terminal, b"q")
        end = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < end:
            with suppress(OSError):  # its side is closed when it has ended
                if select.select([self._terminal], [], [], 0.1)[0]:
                    os.read(self._terminal, 65536)
        os.close(self._terminal)
        return self._process.wait(5)


class Watcher:
    """A running `watcher.py`."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def frame(self) -> dict[str, Any]:
        """Its current frame."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seen: dict[str, Any] = json.loads(self._process.stdout.readline())
        return seen

    def close(self) -> None:
        self._process.communicate(timeout=20)
