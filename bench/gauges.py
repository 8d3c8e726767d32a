"""What the gauges of a host cost: its child, the agent, the network, the operator."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable
from typing import Final

import psutil

from frtop_probe import wire
from frtop_probe.agent.gauges.gauge_table import MINUTE_NS, MOST_MINUTES, GaugeTable
from frtop_probe.agent.gauges.host_watch import HostWorker
from frtop_probe.gauges.readings import HostReading, SubjectReading
from frtop_tui.connect.gauge_histories import ROW_GAUGES
from frtop_tui.diagnosis.evidence.host_facts import facts_of
from frtop_tui.job.host_gauges import GaugeRecord

RANKS: Final = 8
WORKERS: Final = 4
READINGS: Final = 60
PERIOD_S: Final = 2.0
"""The time between two readings of an agent; the bench reads as fast as it can."""
PAUSE_S: Final = 0.2
POINTS: Final = 300
HOSTS: Final = 512
_RANK: Final = (
    "import subprocess, sys, time\n"
    "own = [subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])"
    " for _ in range(int(sys.argv[1]))]\n"
    "print(1, flush=True)\n"
    "try:\n    time.sleep(3600)\nfinally:\n    [one.kill() for one in own]"
)


def main() -> None:
    """Prints the cost of a host with ranks that have workers, on this machine's own /proc."""
    print(f"gauges of a host, {RANKS} ranks with {WORKERS} children each, every {PERIOD_S:.0f} s")
    ranks = [
        subprocess.Popen([sys.executable, "-c", _RANK, str(WORKERS)], stdout=subprocess.PIPE)
        for _ in range(RANKS)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            rank.stdout.readline()
        readings = asyncio.run(_child([rank.pid for rank in ranks]))
    finally:
        for rank in ranks:
            for child in psutil.Process(rank.pid).children():
                child.kill()
            rank.kill()
            rank.wait()
            assert rank.stdout is not None
            rank.stdout.close()
    _agent(readings)


async def _child(pids: list[int]) -> list[HostReading]:
    """Reads through the child process, and prints what that process costs."""
    worker = HostWorker()
    try:
        readings = [await worker.read(pids)]
        (process,) = [one for one in psutil.Process().children() if "frtop_probe.gauges.host"
                      in one.cmdline()]  # fmt: skip
        before = sum(process.cpu_times()[:2])
        for _ in range(READINGS):
            await asyncio.sleep(PAUSE_S)
            readings += [await worker.read(pids)]
        spent = (sum(process.cpu_times()[:2]) - before) / READINGS
        memory = process.memory_full_info()
        print(f"  child   {1000 * spent:6.1f} ms of CPU a reading,"
              f" {100 * spent / PERIOD_S:.2f} % of a core; {memory.rss / 1e6:.0f} MB resident,"
              f" {memory.uss / 1e6:.0f} MB its own")  # fmt: skip
        return readings
    finally:
        await worker.close()


def _gpus(number: int) -> Iterable[SubjectReading]:
    """Eight invented GPUs as NVML would show them."""
    for index in range(8):
        values = {
            "use": 980 - (number + index) % 7, "power_mw": 690_000 + 137 * (number % 11),
            "power_limit_mw": 700_000, "idle_mw": 71_000, "mem_used": 71 << 30,
            "mem_total": 139 << 30, "sm_mhz": 1980 - 15 * (number % 3), "max_sm_mhz": 1980,
            "throttle": 4, "temperature": 61 + number % 2, "processes": 1, "others": 0, "xids": 0,
        }  # fmt: skip
        yield SubjectReading("gpu", str(index), values, "NVIDIA H200", pids=(index,))


def _agent(readings: list[HostReading]) -> None:
    """Takes the readings as an agent does, with GPUs, and then as an operator does."""
    table, sizes, spent = GaugeTable(), [], []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(POINTS):
        reading = readings[number % len(readings)]
        subjects = (*reading.subjects, *_gpus(number))
        begin = time.process_time()
        table.add(number * 2_000_000_000, subjects, reading.notes, lambda pid: pid)
        sample = table.changes()
        size = len(wire.encode(wire.Update("", "", 0, 0, 0, gauges=sample)))
        spent.append(time.process_time() - begin)
        sizes.append(size - len(wire.encode(wire.Update("", "", 0, 0, 0))))
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    full = table.full()
    assert full is not None
    series = len(full.series)
    print(f"  agent   {1000 * statistics.median(spent):6.2f} ms of CPU a reading (traced);"
          f" ten minutes of {series} series take {memory / 1e6:.1f} MB")  # fmt: skip
    print(
        f"  traffic {statistics.mean(sizes[1:]) / PERIOD_S:6.0f} B/s for the host,"
        f" {len(wire.encode(wire.Update('', '', 0, 0, 0, gauges=full))):,} B its full state"
    )
    kinds = ((ROW_GAUGES, 60, "a row"), ((), 60, "a host in full"), ((), 0, "in a file"))
    for gauges, points, what in kinds:
        begin = time.process_time()
        history = table.history(gauges, points)
        data = wire.encode(wire.GaugeHistoryResponse(1, "h", history))
        took = time.process_time() - begin
        print(f"  history {len(data):6,} B and {1000 * took:.1f} ms for {history.points} points,"
              f" {what}")  # fmt: skip
    _run(readings)
    _operator(table, full)


def _run(readings: list[HostReading]) -> None:
    """Takes a reading a minute for a day, and prints what the minutes of a run cost."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    table = GaugeTable()
    for minute in range(MOST_MINUTES - 1):
        reading = readings[minute % len(readings)]
        subjects = (*reading.subjects, *_gpus(minute))
        table.add(1 + minute * MINUTE_NS, subjects, reading.notes, lambda pid: pid)
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    begin = time.process_time()
    minutes = table.minutes(0)
    assert minutes is not None
    data = wire.encode(wire.GaugeHistoryResponse(1, "h", minutes))
    took = time.process_time() - begin
    print(f"  a day   {len(data):,} B and {1000 * took:.0f} ms for minutes of"
          f" {len(minutes.columns)} series in a box; {memory / 1e6:.1f} MB of memory")  # fmt: skip


def _operator(table: GaugeTable, full: wire.HostSample) -> None:
    """Prints what an update of gauges costs an operator: the new host, and its facts."""
    record = GaugeRecord()
    record.apply(full, full=True)
    record.apply_history(table.history((), 60))
    changed = wire.HostSample(full.at_ns, ids=full.ids[:40], values=full.values[:40])
    begin = time.process_time()
    for _ in range(HOSTS):
        record.apply(changed, full=False)
        facts_of(record.view())
    took = (time.process_time() - begin) / HOSTS
    share = HOSTS * took / PERIOD_S
    print(f"  operator {1e6 * took:5.0f} µs an update with the facts of a host:"
          f" {100 * share:.0f} % of a core for {HOSTS} hosts")  # fmt: skip


if __name__ == "__main__":
    main()
