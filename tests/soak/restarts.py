"""Thousands of ranks that come and go under one agent: nothing of them may stay. `make restarts`

Each is a real process with a recorder, forked from one that has loaded torch. Some end well, some
with an error, some are killed, eight at a time, each eight a job of its own. Beside them run the
agent, a live screen and `frtop watch`. It fails if their memory, descriptors or threads grow, or
if a file or a process is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from e2e.conftest import family, kill_family
from frtop_probe import keys
from frtop_tui.prepare import prepare
from soak.__main__ import MIB, TRACEBACK, Reader, Screen, Soak, environment_of, new_folder
from soak.samples import growth, shifted
from waiting import wait_for

ALIVE: Final = 8
"""Ranks at a time."""
OPS: Final = 50
GROWTH: Final = 100
"""Bytes a restart: less than one small object of Python that stays."""
PIECES: Final = 2 * MIB
"""What memory may grow by beyond that: Python's allocator takes pieces of 1 MiB, one of which is
131 bytes a restart in 8,000, and keeps those in which one object lives."""
LEAVE_ONE: Final = 1000
"""Restarts that may leave one descriptor, thread or file: what lives at the moment varies by three
in thousands of restarts. At the end no file may be left at all."""
EVERY_S: Final = 1.6
"""From the start of one job to the next: what ended is kept for minutes, so more of it would be
there where ranks come faster. Two cores with other work manage a job in 1.3 s."""
WARM: Final = 0.2
END_S: Final = 90.0
CHANCES: Final = (0.75, 0.125, 0.125)
"""Of a good end, an error, a kill."""


def main() -> int:
    """Returns the exit status: 1 if anything has grown or stayed."""
    parser = argparse.ArgumentParser(prog="restarts", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, metavar="N")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write what was read, as JSON")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder = new_folder("frtop-restarts-")
    soak = Soak(folder, environment_of(folder))
    os.environ["FRTOP_KEY_FILE"] = soak.environment["FRTOP_KEY_FILE"]
    try:
        problems = run(soak, options.count)
    except KeyboardInterrupt:
        problems = ["stopped"]
    finally:
        for one in soak.lasting.values():
            one.kill()
        kill_family(folder / "frtop")
        shutil.rmtree(folder, ignore_errors=True)
        soak.write(options.samples)
    print("\n".join(problems) or "nothing has grown, nothing is left")
    return 1 if problems else 0


def run(soak: Soak, count: int) -> list[str]:
    """Restarts ranks, and returns what has grown or stayed."""
    home, environment = soak.folder / "frtop", soak.environment
    ranks = Ranks(prepare({**environment, "FRTOP_NATIVE": "0", "OMP_NUM_THREADS": "1"}))
    frtop = [sys.executable, "-m", "frtop_tui"]
    keys.load(create=True)
    with (soak.folder / "agent.log").open("w") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "frtop_probe.agent"], env=environment, stdout=log, stderr=log
        )
    wait_for(lambda: any(home.glob("agent-*.json")), "an agent", END_S)
    screen = Screen(frtop, environment, soak.folder)
    watch = Reader(
        [*frtop, "watch", "--captures", "none", "--state", str(soak.folder / "state")],
        environment, soak.folder / "watch.log",
    )  # fmt: skip
    soak.lasting = {"screen": screen.process, "watch": watch.process, "agent": agent}
    soak.named = {process.pid: name for name, process in soak.lasting.items()}
    files, begin = list[int](), time.monotonic()
    late, due = 0, begin
    with suppress(KeyboardInterrupt):  # a run that is ended early has its figures, too
        while ranks.started < count:
            ranks.next()
            soak.look(ranks.started)
            files.append(len(list(home.iterdir())))
            due, now = due + EVERY_S, time.monotonic()
            if now > due:
                late, due = late + 1, now
            time.sleep(due - now)
    took = time.monotonic() - begin
    ranks.end()
    problems = [f"{name} has ended" for name, one in soak.lasting.items() if one.poll() is not None]
    print(f"{ranks.started:,} ranks in {took:.0f} s, ended with {dict(ranks.ended)}")
    print(f"{late} of {ranks.started // ALIVE} jobs began late")
    problems += _grown(soak, ranks.started)
    after = files[int(len(files) * WARM) :]
    print(f"files in FRTOP_DIR: {min(after)}-{max(after)}")
    if (more := shifted(after)) > _left_by(ranks.started):
        problems.append(f"FRTOP_DIR has {more:.0f} more files")
    for one in soak.lasting.values():
        one.terminate()
        one.wait(END_S)
    return problems + _left(soak, home)


def _grown(soak: Soak, count: int) -> list[str]:
    problems = []
    for (name, _), samples in sorted(soak.samples.items()):
        after = [one for one in samples if one.at_s >= count * WARM]
        if not after or after[-1].at_s - after[0].at_s < count * (1 - WARM) * 0.9:
            continue
        # here time is counted in restarts
        slope, stays = (growth(after, what) / 3600 for what in ("memory", "allocated"))
        descriptors, threads = ([getattr(one, what) for one in after] for what in COUNTED)
        print(
            f"{name:24} {after[0].memory / MIB:7.1f} {after[-1].memory / MIB:7.1f} MiB"
            f" {slope:+7.1f} bytes a restart  descriptors {min(descriptors)}-{max(descriptors)}"
            f"  threads {min(threads)}-{max(threads)}\n"
            f"  of that allocated{'':7} {after[0].allocated / MIB:7.1f}"
            f" {after[-1].allocated / MIB:7.1f} MiB {stays:+7.1f} bytes a restart"
        )
        if stays > GROWTH:
            problems.append(f"{name} keeps {stays:.0f} bytes a restart")
        if slope > GROWTH + PIECES / (count * (1 - WARM)):
            problems.append(f"{name} grows by {slope:.0f} bytes a restart")
        problems += [
            f"{name} has {more:.0f} more {what}"
            for what, counts in zip(COUNTED, (descriptors, threads), strict=True)
            if (more := shifted(counts)) > _left_by(count)
        ]
    return problems


def _left_by(count: int) -> float:
    """How many of each may be left from the middle of the first third to that of the last."""
    return count * (1 - WARM) * 2 / 3 / LEAVE_ONE


COUNTED: Final = ("descriptors", "threads")


def _left(soak: Soak, home: Path) -> list[str]:
    """Ends the agent, and looks for what it leaves."""
    wait_for(lambda: _told_to_end(home), lambda: f"frtop leaves: {family(home)}", END_S, 0.2)
    left = sorted(path.name for path in home.iterdir() if path.suffix != ".log")
    logs = [path.read_bytes() for path in home.glob("*.log")]
    failed = [text[-1000:].decode(errors="replace") for text in logs if TRACEBACK in text]
    return [f"{len(left)} files are left: {left[:8]}"] * bool(left) + failed


def _told_to_end(home: Path) -> bool:
    found = family(home)
    for process in found:
        process.terminate()
    return not found


class Ranks:
    """Asks a process for them that has loaded torch, and has one thread: it can be forked."""

    def __init__(self, environment: dict[str, str]) -> None:
        order, told = os.pipe(), os.pipe()
        if not os.fork():
            os.close(order[1])
            os.close(told[0])
            _be_parent(environment, order[0], told[1])
        os.close(order[0])
        os.close(told[1])
        self._order, self._told = order[1], os.fdopen(told[0])
        self.started = 0
        self.ended = Counter[int]()

    def next(self) -> None:
        """Starts a job, and waits until it is over."""
        os.write(self._order, b".")
        statuses = json.loads(self._told.readline())
        self.started += ALIVE
        self.ended.update(map(os.waitstatus_to_exitcode, statuses))

    def end(self) -> None:
        """Checks that they ended as they were told to."""
        os.close(self._order)
        os.wait()
        assert set(self.ended) <= {0, 1, -signal.SIGKILL}, self.ended


def _be_parent(environment: dict[str, str], order: int, told: int) -> None:
    """Forks a job of ranks for each byte that is read, and writes how they ended."""
    import torch.distributed  # noqa: PLC0415 - once for all of them
    import torch.testing._internal.distributed.fake_pg  # noqa: F401, PLC0415

    chance, job = random.Random(1), 0
    while os.read(order, 1):
        pids = []
        for rank in range(ALIVE):
            how = chance.choices(("well", "error", "killed"), CHANCES)[0]
            if not (pid := os.fork()):
                _be_rank(environment, job, rank, how)
            pids.append(pid)
        job += 1
        statuses = [os.waitpid(pid, 0)[1] for pid in pids]
        os.write(told, json.dumps(statuses).encode() + b"\n")
    os._exit(0)


def _be_rank(environment: dict[str, str], job: int, rank: int, how: str) -> None:
    """Issues a few ops, and ends."""
    status = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.environ |= {
            "RANK": str(rank), "WORLD_SIZE": str(ALIVE), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "restarts", "MASTER_PORT": str(10_000 + job % 50_000),
        }  # fmt: skip
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

        import frtop_probe  # noqa: PLC0415

        torch.set_num_threads(1)
        frtop_probe.start()
        dist.init_process_group("fake", rank=rank, world_size=ALIVE, store=FakeStore())
        for n in range(OPS):
            dist.all_reduce(torch.ones(1 + n % 5))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "well":
            dist.destroy_process_group()
            frtop_probe.stop()
            status = 0
    except Exception:  # noqa: BLE001 - as an interpreter that has been forked
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
