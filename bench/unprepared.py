"""Jobs that nobody prepared: seconds to a verdict, what following costs, and what the job feels."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from bench.unprepared_rank import COUNT, STEP
from frtop_probe.agent import announcement
from frtop_tui.job.naming import RankPid
from frtop_tui.sources.agent_start import start_agent
from frtop_tui.sources.live import LiveSource

HUNG_RANKS: Final = 4
REPEATS: Final = 3
RANKS: Final = 8
RATE: Final = 1000.0
SETTLE_S: Final = 10.0
COST_S: Final = 30.0
BLOCKS: Final = 6
"""Pairs of a block with frtop and one without."""
BLOCK_S: Final = 15.0
START_S: Final = 120.0


def main() -> None:
    """Prints the three of them."""
    verdict()
    cost()
    step_time()


def verdict() -> None:
    """Seconds from the start of `frtop diagnose` on a hung job, no agent running before."""
    suspects, confirmations, commands = [], [], []
    with _Job(HUNG_RANKS, "hang") as job:
        for _ in range(REPEATS):
            begin = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "frtop_tui", "diagnose", "--json", "--pid", str(job.pid)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            commands.append(time.monotonic() - begin)
            assert '"confirmed"' in done.stdout, done.stdout + done.stderr
            job.end_agent()
            begin = time.monotonic()
            assert start_agent() is None
            source = LiveSource(job=RankPid(job.pid))
            _until(lambda: source.frame().verdicts)  # noqa: B023
            suspects.append(time.monotonic() - begin)
            _until(lambda: source.frame().verdicts[0].confidence == "confirmed")  # noqa: B023
            confirmations.append(time.monotonic() - begin)
            source.close()
            job.end_agent()
    print(
        f"hung job of {HUNG_RANKS} ranks, not prepared, no agent running: medians of {REPEATS}\n"
        f"  suspect                        {statistics.median(suspects):5.1f} s   (budget 3)\n"
        f"  confirmed                      {statistics.median(confirmations):5.1f} s   (budget 8)\n"
        f"  frtop diagnose --json, whole   {statistics.median(commands):5.1f} s"
    )


def cost() -> None:
    """CPU and memory of the agent and its child while a screen follows a healthy job."""
    with _Job(RANKS, str(RATE)) as job, _Following(job) as following:
        time.sleep(SETTLE_S)
        agent = psutil.Process(following.agent)
        before, steps, begin = _cpu_s(agent), job.steps, time.monotonic()
        time.sleep(COST_S)
        seconds = time.monotonic() - begin
        spent = {pid: cpu - before.get(pid, 0.0) for pid, cpu in _cpu_s(agent).items()}
        rate = (job.steps - steps) * STEP / seconds
        own = spent.pop(agent.pid)
        children = agent.children(recursive=True)
        memory = [one.memory_full_info() for one in (agent, *children)]
        print(
            f"agent, {RANKS} ranks without a recorder at {rate:,.0f} ops/s each, followed\n"
            f"  CPU     {100 * own / seconds:5.1f} % of a core, and its child"
            f" {100 * sum(spent.values()) / seconds:.1f} %\n"
            f"  memory  {memory[0].rss / 1e6:5.0f} MB resident, and its child"
            f" {sum(one.rss for one in memory[1:]) / 1e6:.0f} MB; their own"
            f" {sum(one.uss for one in memory) / 1e6:.0f} MB"
        )


def step_time() -> None:
    """Steps of a job with frtop following and without, in alternating blocks.

    The ranks do not pause here, so that whatever takes time from them shows.
    """
    ratios = []
    with _Job(RANKS, "0") as job:
        for _ in range(BLOCKS):
            with _Following(job):
                time.sleep(SETTLE_S / 2)
                on = job.pace(BLOCK_S)
            off = job.pace(BLOCK_S)
            ratios.append(off / on)
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(
        f"step of {RANKS} ranks on {os.cpu_count()} cores with frtop following, against without:"
        f" x {middle:.3f} ({low:.3f} to {high:.3f}, {BLOCKS} pairs of blocks)"
    )


class _Job:
    """A plain torchrun job, and a folder for the agent; `pid` is rank 0's."""

    def __init__(self, ranks: int, what: str) -> None:
        self._ranks = ranks
        self._what = what
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-bench-", dir="/dev/shm"))
        self.pid = 0

    def __enter__(self) -> _Job:  # noqa: PYI034 - Self needs Python 3.11
        os.environ |= {
            "FRTOP_DIR": str(self.folder), "FRTOP_KEY_FILE": str(self.folder / "key"),
            "FRTOP_BIND": "127.0.0.1",
        }  # fmt: skip
        plain = {name: value for name, value in os.environ.items() if "FRTOP" not in name}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
             str(self._ranks), "-m", "bench.unprepared_rank", str(self.folder), self._what],
            env={**plain, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _until(lambda: len(list(self.folder.glob("rank*"))) == self._ranks)
        time.sleep(1)
        self.pid = int((self.folder / "rank0").read_text())
        return self

    @property
    def steps(self) -> int:
        return int(COUNT.unpack((self.folder / "steps").read_bytes())[0])

    def pace(self, seconds: float) -> float:
        """Steps a second."""
        steps, begin = self.steps, time.monotonic()
        time.sleep(seconds)
        return (self.steps - steps) / (time.monotonic() - begin)

    def end_agent(self) -> None:
        card = announcement.find_agent(self.folder)
        if card is not None:
            os.kill(card.pid, signal.SIGTERM)
            _until(lambda: announcement.find_agent(self.folder) is None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_agent()
        ranks = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        for one in ranks:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(ranks, 10)
        shutil.rmtree(self.folder)


class _Following:
    """A screen's source on a job; with it, the agent ends."""

    def __init__(self, job: _Job) -> None:
        self._job = job

    def __enter__(self) -> _Following:  # noqa: PYI034 - Self needs Python 3.11
        assert start_agent() is None
        self._source = LiveSource(job=RankPid(self._job.pid))
        _until(lambda: self._source.frame().ranks)
        card = announcement.find_agent(self._job.folder)
        assert card is not None
        self.agent = card.pid
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._source.close()
        self._job.end_agent()


def _cpu_s(agent: psutil.Process) -> dict[int, float]:
    """CPU seconds of the agent and its children, by pid."""
    found = {}
    for process in (agent, *agent.children(recursive=True)):
        times = process.cpu_times()
        found[process.pid] = float(times.user + times.system)
    return found


def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < end, "it does not come up"
        time.sleep(0.02)


if __name__ == "__main__":
    main()
