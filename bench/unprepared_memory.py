"""The agent's memory while it follows one job, and other ranks come and go on the same host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

import psutil

from bench.unprepared_job import Following, UnpreparedJob

BUDGET_MB: Final = 60
RANKS: Final = 4
RATE: Final = 1000.0
SETTLE_S: Final = 30.0
WAVES: Final = 4
CROWD: Final = 16
STAY_S: Final = 15
AFTER_S: Final = 20.0


def main() -> None:
    """Prints the resident memory before, at its peak, and after."""
    with UnpreparedJob(RANKS, str(RATE)) as job, Following(job) as following:
        agent = psutil.Process(following.agent)
        alone = _highest(agent, time.monotonic() + SETTLE_S)
        print(f"agent, memory while a screen follows {RANKS} ranks at {RATE:,.0f} ops/s each")
        _say(f"that job alone, {SETTLE_S:.0f} s", alone, agent)
        crowd = subprocess.Popen(
            [sys.executable, "-m", "bench.unprepared_crowd", str(job.folder),
             str(WAVES), str(CROWD), str(STAY_S)],
            env={name: value for name, value in os.environ.items() if "FRTOP" not in name},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        peak = (0.0, 0.0)
        while crowd.poll() is None:
            peak = tuple(map(max, peak, _highest(agent, time.monotonic() + 1)))  # type: ignore[assignment]
        _say(f"{WAVES} waves of {CROWD} other ranks, full rings", peak, agent)
        _say(f"{AFTER_S:.0f} s after the last", _highest(agent, time.monotonic() + AFTER_S), agent)


def _highest(agent: psutil.Process, end: float) -> tuple[float, float]:
    """The peak of resident MB until `end` (monotonic): of the agent, and of all its children."""
    own = children = 0.0
    while time.monotonic() < end:
        own = max(own, _mb([agent]))
        children = max(children, _mb(agent.children(recursive=True)))
        time.sleep(0.25)
    return own, children


def _mb(processes: list[psutil.Process]) -> float:
    total = 0.0
    for one in processes:
        try:
            total += one.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
    return total


def _say(when: str, highest: tuple[float, float], agent: psutil.Process) -> None:
    own, children = highest
    print(
        f"  {when:44} at most {own:4.0f} MB (budget {BUDGET_MB}), its children {children:4.0f} MB;"
        f" now {_mb([agent]):4.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    main()
