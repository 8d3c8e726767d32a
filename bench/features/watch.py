"""The cost of one `frtop watch` for many jobs on one host, and for jobs that come and go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final

import psutil

from frtop_probe.agent import announcement

MANY: Final = (1, 10, 50)
SHORT: Final = 200
AT_ONCE: Final = 10
RATE: Final = 2.0
SETTLE_S: Final = 10.0
SECONDS: Final = 20.0
PATIENCE_S: Final = 300.0


def main() -> None:
    """Prints CPU, memory, threads and descriptors of the watcher and of its agent."""
    print(f"`frtop watch` of jobs of 2 ranks on one host, {SECONDS:.0f} s each")
    with Watched() as watched:
        started = 0
        for jobs in MANY:
            watched.start(started, jobs - started)
            started = jobs
            watched.wait("watching", jobs)
            time.sleep(SETTLE_S)
            watched.print_cost(f"{jobs} jobs")
            if left_out := watched.left_out():
                print(f"  {left_out} of them are not watched")
        watched.stop()
    print(f"{SHORT} jobs that come and go, {AT_ONCE} at a time")
    with Watched() as watched:
        for first in range(0, SHORT, AT_ONCE):
            watched.start(first, AT_ONCE)
            watched.wait("watching", first + AT_ONCE)
            watched.end(first, AT_ONCE)
            watched.wait("left", first)
            if first in (0, 40, 90, 140, SHORT - AT_ONCE):
                watched.print_state(f"after {first + AT_ONCE} jobs")
        watched.wait("left", SHORT)
        watched.print_state("when all are left")
        watched.stop()


class Watched:
    """A folder with jobs, its agent, and a watcher whose lines are counted."""

    def __enter__(self) -> Watched:  # noqa: PYI034 - Self needs Python 3.11
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-bench-", dir="/dev/shm"))
        self.environment = {
            **os.environ, "FRTOP_DIR": str(self.folder), "FRTOP_KEY_FILE": str(self.folder / "key"),
            "FRTOP_BIND": "127.0.0.1", "FRTOP_UNPREPARED": "0", "OMP_NUM_THREADS": "1",
            "FRTOP_AGENT_WITH": str(os.getpid()), "FRTOP_BOXES": "0",
        }  # fmt: skip
        self._jobs = self._run("-m", "bench.small_jobs", str(self.folder), str(RATE),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        self._out = self.folder / "lines"
        with self._out.open("wb") as out:
            self._watcher = self._run("-m", "frtop_tui", "watch", "--state",
                                      str(self.folder / "state"), stdout=out)  # fmt: skip
        return self

    def _run(
        self, *words: str, stdin: int | None = None, stdout: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", *words], env=self.environment, stdin=stdin,
            stdout=stdout,
        )  # fmt: skip

    def start(self, first: int, count: int) -> None:
        self._tell(f"start {first} {count}")

    def end(self, first: int, count: int) -> None:
        self._tell(f"end {first} {count}")

    def _tell(self, command: str) -> None:
        assert self._jobs.stdin is not None
        assert self._jobs.stdout is not None
        self._jobs.stdin.write(f"{command}\n".encode())
        self._jobs.stdin.flush()
        assert self._jobs.stdout.readline() == b"done\n"

    def _lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._out.read_bytes().splitlines()]

    def count(self, event: str) -> int:
        """How many jobs have had a line of this kind."""
        return sum(one["event"] == event for one in self._lines())

    def left_out(self) -> int:
        """How many jobs are beyond the watcher's limit."""
        said = [str(one.get("problem", "")) for one in self._lines() if one["event"] == "trouble"]
        words = [text.split()[0] for text in said if " not watched: " in text]
        return int(words[-1]) if words else 0

    def wait(self, event: str, count: int) -> None:
        """Waits until `count` jobs have had such a line, or are beyond the limit."""
        until = time.monotonic() + PATIENCE_S
        while self.count(event) + self.left_out() < count:
            assert time.monotonic() < until, self._out.read_text()[-2000:]
            time.sleep(0.2)

    def print_cost(self, title: str) -> None:
        """Prints what both cost in `SECONDS`."""
        both = self._both()
        before, begin = [_cpu_s(one) for _, one in both], time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - begin
        for (name, one), spent in zip(both, before, strict=True):
            print(f"  {title:>18}  {name:8} {100 * (_cpu_s(one) - spent) / seconds:6.1f} %"
                  f" of a core, {_state(one)}", flush=True)  # fmt: skip

    def print_state(self, title: str) -> None:
        """Prints what both hold now."""
        for name, one in self._both():
            print(f"  {title:>18}  {name:8} {_state(one)}, {_cpu_s(one):.1f} s of CPU so far",
                  flush=True)  # fmt: skip

    def _both(self) -> list[tuple[str, psutil.Process]]:
        card = announcement.find_agent(self.folder)
        assert card is not None
        return [("watcher", psutil.Process(self._watcher.pid)), ("agent", psutil.Process(card.pid))]

    def stop(self) -> None:
        """Ends the watcher as a service manager would, and prints what it leaves."""
        self._watcher.terminate()
        status = self._watcher.wait(60)
        left = sum(one.is_file() for one in (self.folder / "state").rglob("*"))
        print(f"  the watcher ended with status {status}; files in its state: {left}")

    def __exit__(self, *_: object) -> None:
        card = announcement.find_agent(self.folder)
        for process in (self._watcher, self._jobs):
            process.kill()
            process.wait()
        if card is not None and psutil.pid_exists(card.pid):
            psutil.Process(card.pid).kill()
        shutil.rmtree(self.folder)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _state(process: psutil.Process) -> str:
    sockets = len(process.net_connections("inet"))
    return (f"{process.memory_info().rss / 1e6:.0f} MB, {process.num_threads()} threads,"
            f" {process.num_fds()} descriptors, {sockets} of them TCP")  # fmt: skip


if __name__ == "__main__":
    main()
