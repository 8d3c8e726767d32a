"""Unprepared jobs: seconds to a verdict, what following costs, and how the job suffers."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Final

import psutil

from bench import unprepared_memory
from bench.unprepared_job import Following, UnpreparedJob, until
from bench.unprepared_rank import STEP
from frtop_tui.connect.agent_start import start_agent
from frtop_tui.connect.live import LiveSource
from frtop_tui.job.naming import RankPid

HUNG_RANKS: Final = 4
REPEATS: Final = 3
RANKS: Final = 8
RATE: Final = 1000.0
SETTLE_S: Final = 10.0
COST_S: Final = 30.0
BLOCKS: Final = 6
"""Pairs of blocks, one with frtop and one without."""
BLOCK_S: Final = 15.0


def main() -> None:
    """Prints all measurements."""
    verdict()
    cost()
    step_time()
    unprepared_memory.main()


def verdict() -> None:
    """Prints the seconds from the start of `frtop diagnose` on a hung job without an agent."""
    suspects, confirmations, commands = [], [], []
    with UnpreparedJob(HUNG_RANKS, "hang") as job:
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
            until(lambda: source.frame().verdicts)  # noqa: B023
            suspects.append(time.monotonic() - begin)
            until(lambda: source.frame().verdicts[0].confidence == "confirmed")  # noqa: B023
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
    """Prints CPU and memory of the agent and its child while a screen follows a healthy job."""
    with UnpreparedJob(RANKS, str(RATE)) as job, Following(job) as following:
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
    """Compares steps of a job that frtop follows, and of one without, in alternating blocks.

    The ranks do not pause here, so whatever takes time from them shows.
    """
    ratios = []
    with UnpreparedJob(RANKS, "0") as job:
        for _ in range(BLOCKS):
            with Following(job):
                time.sleep(SETTLE_S / 2)
                on = job.pace(BLOCK_S)
            off = job.pace(BLOCK_S)
            ratios.append(off / on)
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(
        f"step of {RANKS} ranks on {os.cpu_count()} cores with frtop following, against without:"
        f" x {middle:.3f} ({low:.3f} to {high:.3f}, {BLOCKS} pairs of blocks)"
    )


def _cpu_s(agent: psutil.Process) -> dict[int, float]:
    """CPU seconds of the agent and its children, by pid."""
    found = {}
    for process in (agent, *agent.children(recursive=True)):
        times = process.cpu_times()
        found[process.pid] = float(times.user + times.system)
    return found


if __name__ == "__main__":
    main()
