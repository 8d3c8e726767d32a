"""Traffic and seconds to the verdict, with the demo's job."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import zmq

from frtop_probe import keys
from frtop_probe.agent import announcement
from frtop_probe.ring.folder import folder
from frtop_tui.connect.live import LiveSource
from frtop_tui.demo.faults import FAULTS, RANKS
from frtop_tui.demo.job import DemoJob

TRAFFIC_S = 10.0
REPEATS = 5


def main() -> None:
    traffic()
    verdict()


def traffic() -> None:
    """Prints the bytes per rank and second that an agent publishes while a job trains."""
    with _demo("none") as job:
        _until(lambda: job.step() >= 40, job)
        agent = announcement.find_agent(folder())
        assert agent is not None
        pair = keys.load(create=False)
        context = zmq.Context()
        sub = context.socket(zmq.SUB)
        sub.curve_serverkey, sub.curve_publickey = pair.public, pair.public
        sub.curve_secretkey = pair.secret
        sub.subscribe(b"")
        sub.connect(f"tcp://{agent.address}:{agent.pub}")
        sub.poll(5000)
        begin, step, size = time.monotonic(), job.step(), 0
        while time.monotonic() - begin < TRAFFIC_S:
            if sub.poll(100):
                size += sum(map(len, sub.recv_multipart()))
        seconds = time.monotonic() - begin
        steps = (job.step() - step) / seconds
        context.destroy(linger=0)
    print(f"traffic, training at {steps:.0f} steps/s, no rank view open:"
          f" {size / seconds / RANKS:.0f} B / rank / s   (budget 2048)")  # fmt: skip


def verdict() -> None:
    """Prints the seconds to the verdict: from the freeze, and from a start on a hung job."""
    with _demo("stall") as job:
        source = LiveSource()
        who = confirmed = 0.0
        step, frozen = -1, time.monotonic()
        while not confirmed:
            job.require_alive()
            if (seen := job.step()) != step:
                step, frozen = seen, time.monotonic()
            verdicts = source.frame().verdicts
            who = who or (time.monotonic() if verdicts else 0.0)
            if verdicts and verdicts[0].confidence == "confirmed":
                confirmed = time.monotonic()
            time.sleep(0.02)
        source.close()
        print("stalled data worker, watched from before (the freeze counts from the last step"
              " that the job printed, so up to 20 steps early):")  # fmt: skip
        print(f"  freeze to who and why   {who - frozen:5.1f} s   (budget 5)")
        print(f"  freeze to confirmed     {confirmed - frozen:5.1f} s   (budget 15)")
        print(f"the same job, hung, median of {REPEATS} fresh starts:")
        first = [_first_verdict() for _ in range(REPEATS)]
        diagnosed = [_diagnose() for _ in range(REPEATS)]
        print(f"  connect to first verdict          {statistics.median(first):5.2f} s   (budget 2)")
        print(f"  `frtop diagnose`, start to exit   {statistics.median(diagnosed):5.2f} s"
              "   (two snapshots 2 s apart confirm)")  # fmt: skip


def _first_verdict() -> float:
    begin = time.monotonic()
    source = LiveSource()
    while not source.frame().verdicts:
        time.sleep(0.01)
    seconds = time.monotonic() - begin
    source.close()
    return seconds


def _diagnose() -> float:
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose"], stdout=subprocess.DEVNULL, check=False
    )
    return time.monotonic() - begin


def _demo(fault: str) -> DemoJob:
    job = DemoJob(FAULTS[fault])
    os.environ.update(job.environment())
    job.start()
    return job


def _until(condition: Callable[[], bool], job: DemoJob) -> None:
    while not condition():
        job.require_alive()
        time.sleep(0.1)
