"""Real jobs and frtop beside them for an hour: nothing may grow. `make soak MINUTES=60`

Three jobs of two ranks: with kernels in Python, with native ones where they are built, and without
frtop, to compare with. Beside them run their agent, a live screen on a terminal whose views change,
`frtop stream` with all ops and `frtop watch`. Now and then rank 1 of each job is stopped for some
seconds, so that there is something to name. Every few seconds memory, descriptors and threads are
read. It fails if those of any process grow after the first quarter, or if another rank is named.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Final

import psutil

from chaos.__main__ import possible_ways
from chaos.stream import Gaps
from e2e.conftest import family, kill_family
from free_port import free_port
from frtop_probe.ring import layout
from frtop_probe.ring.layout import StatusCell
from frtop_tui.prepare import prepare
from soak.samples import WINDOWS, Sample, growth, risen, sample
from waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
MIB: Final = 2**20
GROWTH: Final = MIB
"""Bytes an hour that a process may grow.

What grows with the load is far above it: one leaked object of 16 bytes for every op would be
50 MB an hour here, 150 bytes at each of an agent's ticks are 1 MiB. And a month adds at most 0.7 GB
to a host. An hour does not resolve much less: allocators take memory in pieces of up to 1 MiB."""
WARM: Final = 0.25
"""Share of the run that does not count: histories of ten minutes fill, code is loaded."""
EVERY_S: Final = 5.0
KEYS_S: Final = 15.0
INCIDENT_S: Final = 120.0
STOPPED_S: Final = 20.0
"""From one incident to the next, and how long a rank is stopped in each. What the first of them
loads stays, and is not growth: it is there before the first quarter is over."""
RANKS: Final = 2
CULPRIT: Final = 1
BEGIN_S: Final = 300.0
END_S: Final = 240.0
ALLOCATED: Final = "allocated"
"""Folder to which processes write what they have allocated."""
TRACEBACK: Final = b"Traceback (most recent call last)"
Growths = Mapping[tuple[str, int], float]
KEYS: Final = "1234567"
"""Views of the screen."""


class Screen:
    """`frtop` on a terminal of its own; somebody reads it, and looks at one view after another."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self._main, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("4H", 50, 160, 0, 0))
        self.process = subprocess.Popen(
            command, env={**environment, "TERM": "xterm-256color"}, stdin=child, stdout=child,
            stderr=child, start_new_session=True, cwd=folder,
        )  # fmt: skip
        os.close(child)
        self.drawn = 0
        self.last = b""
        threading.Thread(target=self._read, daemon=True).start()

    def press(self, key: str) -> None:
        with suppress(OSError):
            os.write(self._main, key.encode())

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._main, 65_536):
                self.drawn += len(data)
                self.last = (self.last + data)[-20_000:]


class Reader:
    """A command whose lines are read and counted, by event."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.named: dict[str, int] = defaultdict(int)
        """How often each verdict was given."""
        self.innocent: list[int] = []
        """Ranks that were named, and that nobody had stopped."""
        self.gaps = Gaps()
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.counts[event.get("event", "?")] += 1
            if "event" in event:
                self.gaps.take(event)
            if event.get("event") == "lost":
                self.counts["ops lost"] += event["counts"].get("op_issued", 0)
            if "culprits" in event:
                ranks = [one["rank"] for one in event["culprits"]]
                self.named[f"{event['event']}, ranks {ranks}: {event['cause']}"] += 1
                self.innocent += [one for one in ranks if one != CULPRIT]


@dataclass(slots=True)
class Soak:
    """What runs, and what was read of it."""

    folder: Path
    environment: dict[str, str]
    lasting: dict[str, subprocess.Popen[Any]] = field(default_factory=dict)
    named: dict[int, str] = field(default_factory=dict)
    """Names of processes that were started here, by pid."""
    ranks: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)
    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)
    """How many processes of frtop there were at each moment."""

    def start_job(self, way: str) -> str:
        """Starts two ranks, and returns the job's address."""
        port = str(free_port())
        environment = {
            **self.environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "WORLD_SIZE": str(RANKS), "SOAK_WAY": way, "FRTOP_NATIVE": str(int(way == "native")),
            "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        if way == "none":
            environment = {
                name: one for name, one in environment.items() if not name.startswith("FRTOP_")
            }
        else:
            environment = prepare(environment, phases=True)
        self.ranks[way] = []
        for rank in range(RANKS):
            with (self.folder / f"{way}.{rank}.log").open("w") as log:
                one = subprocess.Popen(
                    [sys.executable, str(ROOT / "tests/soak/job.py")], stdout=log, stderr=log,
                    env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                )  # fmt: skip
            self.ranks[way].append(one)
            self.named[one.pid] = f"rank {rank}, {KERNELS[way]}"
        return f"127.0.0.1:{port}"

    def signal_culprits(self, number: int) -> None:
        """Stops the same rank of each job, or lets it go on."""
        for ranks in self.ranks.values():
            ranks[CULPRIT].send_signal(number)

    def look(self, at_s: float) -> None:
        """Reads all processes; ranks that run without frtop are none of its family."""
        found = {process.pid: process for process in family(self.folder / "frtop")}
        self.others.append(len(found))
        for pid in {*found, *self.named}:
            name = self.named.get(pid) or self._name(found[pid])
            one = sample(pid, at_s, self.folder / ALLOCATED)
            if name and one is not None:
                self.samples.setdefault((name, pid), []).append(one)

    def write(self, file: Path | None) -> None:
        """Writes what was read, as JSON: `[[name, pid, [[field of `Sample`, ...], ...]], ...]`."""
        if file:
            found = [[*key, [astuple(one) for one in them]] for key, them in self.samples.items()]
            file.write_text(json.dumps(found))

    def _name(self, process: psutil.Process) -> str:
        """Those that last; what an agent or a screen starts for a moment has no name."""
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            for part, name in NAMES.items():
                if part in words:
                    return name
        return ""


KERNELS: Final = {"python": "Python kernels", "native": "native kernels", "none": "without frtop"}
NAMES: Final = {
    "frtop_probe.agent": "agent",
    "frtop_probe.gauges.host": "gauges of the host",
    "frtop_probe.gauges": "gauges of GPUs",
    "frtop_probe.unprepared": "reader of ranks",
}


def main() -> int:
    """Returns the exit status: 1 if anything has grown or failed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write what was read, as JSON")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = new_folder("frtop-soak-")
    soak = Soak(folder, environment_of(folder))
    try:
        problems = run(soak, options.minutes * 60)
        problems += report(soak, options.minutes * 60)
    except KeyboardInterrupt:
        problems = ["stopped"]
    finally:
        for one in (*soak.lasting.values(), *(one for each in soak.ranks.values() for one in each)):
            one.kill()
        kill_family(folder / "frtop")
        shutil.rmtree(folder, ignore_errors=True)
        soak.write(options.samples)
    print("\n".join(problems) or "nothing has grown")
    return 1 if problems else 0


def new_folder(prefix: str) -> Path:
    """Returns one in memory, with folders for frtop and for what processes say of themselves."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/dev/shm"))
    for one in ("frtop", ALLOCATED):
        (folder / one).mkdir(mode=0o700)
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    """Returns what ranks, agents and operators get."""
    return {
        **{name: one for name, one in os.environ.items() if not name.startswith("FRTOP_")},
        "PYTHONPATH": os.pathsep.join(
            str(ROOT / one) for one in ("tests/soak/allocated", "probe", "tui")
        ),
        "SOAK_ALLOCATED": str(folder / ALLOCATED),
        "FRTOP_DIR": str(folder / "frtop"),
        "FRTOP_KEY_FILE": str(folder / "key"),
        "FRTOP_BIND": "127.0.0.1",
        "FRTOP_BOXES": "0",
        "FRTOP_UNPREPARED": "0",
        "FRTOP_AGENT_WITH": str(os.getpid()),
        "SOAK_END": str(folder / "end"),
    }


def run(soak: Soak, seconds: float) -> list[str]:
    """Starts everything, looks until the time is over, and ends it; returns what went wrong."""
    folder, environment = soak.folder, soak.environment
    home = folder / "frtop"
    ways = ("python", "native", "none") if native() else ("python", "none")
    jobs = {way: soak.start_job(way) for way in ways}
    rings = RANKS * (len(ways) - 1)
    wait_for(lambda: len(list(home.glob("*.ring"))) == rings, "all ranks record", BEGIN_S)
    frtop = [sys.executable, "-m", "frtop_tui"]
    screen = Screen([*frtop, "--job", jobs["python"]], environment, folder)
    stream = Reader(
        [*frtop, "stream", "--job", jobs[ways[-2]], "--only", "states,verdicts,progress,ops"],
        environment, folder / "stream.log",
    )  # fmt: skip
    watch = Reader(
        [*frtop, "watch", "--state", str(folder / "state")], environment, folder / "watch.log"
    )
    soak.lasting = {"screen": screen.process, "stream": stream.process, "watch": watch.process}
    soak.named |= {process.pid: name for name, process in soak.lasting.items()}
    problems, turn, stopped, begin = list[str](), 0, False, time.monotonic()
    while (at_s := time.monotonic() - begin) < seconds and not problems:
        soak.look(at_s)
        if stopped != (stop := at_s % INCIDENT_S > INCIDENT_S - STOPPED_S):
            stopped = stop
            soak.signal_culprits(signal.SIGSTOP if stop else signal.SIGCONT)
        if at_s > turn * KEYS_S:
            turn += 1
            screen.press(KEYS[turn % len(KEYS)])
        problems = [
            f"{soak.named[one.pid]} ended with {one.returncode}"
            for one in (
                *soak.lasting.values(),
                *(one for each in soak.ranks.values() for one in each),
            )
            if one.poll() is not None
        ]
        time.sleep(EVERY_S)
    soak.signal_culprits(signal.SIGCONT)
    ops = {path.name: ops_of(path) for path in sorted(home.glob("*.ring"))}
    print(f"{sum(ops.values()):,} ops recorded in {time.monotonic() - begin:.0f} s", flush=True)
    problems += _end(soak, screen, stream, watch)
    print(
        f"stream: {dict(stream.counts)}; watch: {dict(watch.counts)};"
        f" screen: {screen.drawn:,} bytes drawn"
    )
    print("\n".join(f"watch, {count} times: {words}" for words, count in watch.named.items()))
    if hidden := stream.gaps.hidden:
        problems.append(f"ops neither shown nor counted as lost: {hidden}")
    return problems + [f"ranks {watch.innocent} were named"] * bool(watch.innocent)


def ops_of(path: Path) -> int:
    """How many ops a rank has recorded."""
    data = path.read_bytes()[layout.CELLS_OFFSET : layout.GROUPS_OFFSET]
    return int(memoryview(data).cast("q")[StatusCell.HEAD])


def native() -> bool:
    """Whether the native kernels were built for this torch."""
    return "native" in possible_ways()


def _end(soak: Soak, screen: Screen, stream: Reader, watch: Reader) -> list[str]:
    """Ends everything as a person does; returns what went wrong."""
    problems = []
    for process in (screen.process, stream.process, watch.process):
        process.send_signal(signal.SIGTERM if process is screen.process else signal.SIGINT)
    (soak.folder / "end").touch()
    for each in soak.ranks.values():
        for rank in each:
            with suppress(subprocess.TimeoutExpired):
                rank.wait(END_S)
            if rank.returncode != 0:
                problems.append(f"{soak.named[rank.pid]} ended with {rank.returncode}")
    for process in (screen.process, stream.process, watch.process):
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        if process.returncode is None:
            problems.append(f"{soak.named[process.pid]} does not end")
    logs = [*soak.folder.glob("*.log"), *(soak.folder / "frtop").glob("*.log")]
    problems += [
        f"{log.name}: {text[-2000:].decode(errors='replace')}"
        for log in logs
        if TRACEBACK in (text := log.read_bytes())
    ]
    if TRACEBACK in screen.last or not screen.drawn:
        problems.append(f"the screen: {screen.last[-2000:]!r}")
    return problems


def report(soak: Soak, seconds: float) -> list[str]:
    """Prints a row for each process; returns what has grown."""
    warm, problems, rows = seconds * WARM, [], []
    lasting = {
        key: after
        for key, samples in soak.samples.items()
        if len(after := [one for one in samples if one.at_s >= warm]) > 2 * WINDOWS
        and after[-1].at_s - after[0].at_s > 0.9 * (seconds - warm)
    }
    memory = {key: growth(samples) for key, samples in lasting.items()}
    allocated = {
        key: growth(samples, "allocated")
        for key, samples in lasting.items()
        if all(one.allocated for one in samples)
    }
    for (name, pid), samples in sorted(lasting.items()):
        descriptors = [one.descriptors for one in samples]
        threads = [one.threads for one in samples]
        rows.append(
            f"{name:24} {samples[0].memory / MIB:7.1f} {samples[-1].memory / MIB:7.1f} MiB"
            f" {memory[name, pid] / 1024:+8.0f} KiB/h"
            f"  descriptors {min(descriptors)}-{max(descriptors)}"
            f"  threads {min(threads)}-{max(threads)}"
        )
        if (name, pid) in allocated:
            rows.append(
                f"  of that allocated{'':7} {samples[0].allocated / MIB:7.1f}"
                f" {samples[-1].allocated / MIB:7.1f} MiB"
                f" {allocated[name, pid] / 1024:+8.0f} KiB/h"
            )
        if KERNELS["none"] in name:
            continue
        problems += [
            f"{name} has {more} more {what}"
            for what, counts in (("descriptors", descriptors), ("threads", threads))
            if (more := risen(counts)) > 0
        ]
    problems += grown(memory, allocated)
    others = soak.others[int(len(soak.others) * WARM) :]
    if (more := risen(others)) > 0:
        problems.append(f"frtop has {more} more processes")
    print("\n".join(rows))
    print(f"processes of frtop: {min(others)}-{max(others)}")
    return problems


def grown(memory: Growths, allocated: Growths) -> list[str]:
    """What has grown, given bytes an hour by name and pid.

    Ranks are compared with those without frtop: each in what it has allocated, and in memory all
    ranks of a job together, since it differs by 2 MiB an hour between two ranks without frtop.
    """
    problems, of_jobs = [], defaultdict[str, list[float]](list)
    known = {name: slope for (name, _), slope in allocated.items()}
    for (name, _), slope in memory.items():
        rank, _, kernels = name.partition(", ")
        of_jobs[kernels or name].append(slope)
        if kernels and kernels != KERNELS["none"]:
            own = known[name] - max(0.0, known[f"{rank}, {KERNELS['none']}"])
            if own > GROWTH:
                problems.append(f"{name} keeps {own / MIB:.1f} MiB an hour")
    without = max(0.0, mean(of_jobs.pop(KERNELS["none"], [0.0])))
    for name, slopes in of_jobs.items():
        own = mean(slopes) - without if name in KERNELS.values() else max(slopes)
        if own > GROWTH:
            problems.append(f"{name}: memory grows by {own / MIB:.1f} MiB an hour")
    return problems


if __name__ == "__main__":
    sys.exit(main())
