"""What the agent costs its host, and how fast rings are read."""

from __future__ import annotations

import statistics
import time
from typing import Final

import psutil

from bench.hosts import Hosts
from frtop_probe.ring.layout import Cell
from frtop_probe.ring.reader import Ring

RANKS: Final = 8
RATE: Final = 1000.0
SECONDS: Final = 20.0
SETTLE_S: Final = 10.0
ROUNDS: Final = 20


def main() -> None:
    """Agent CPU and memory while 8 ranks issue 1,000 ops a second each; then the reader."""
    with Hosts(1, RANKS, RATE) as hosts:
        time.sleep(SETTLE_S)
        rings = [Ring(path) for path in sorted(hosts.folders[0].glob("*.ring"))]
        agent = psutil.Process(hosts.agents[0].pid)
        head = sum(ring.cell(Cell.HEAD) for ring in rings)
        before, begin = _cpu_s(agent), time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - begin
        spent = _cpu_s(agent) - before
        issued = sum(ring.cell(Cell.HEAD) for ring in rings) - head
        memory = agent.memory_full_info()
        print(
            f"agent, {RANKS} ranks at {issued / seconds / RANKS:,.0f} ops/s each, nobody drilling"
        )
        print(f"  CPU     {100 * spent / seconds:5.1f} % of a core   (budget 3)")
        print(f"  memory  {memory.rss / 1e6:5.0f} MB resident, {memory.uss / 1e6:.0f} MB its own,"
              " the rest rings and libraries   (budget 80)")  # fmt: skip
        _read(rings)
        for ring in rings:
            ring.close()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _read(rings: list[Ring]) -> None:
    """Checked reads of single ops, and of whole histories, while the ranks write."""
    rates, copies, pending = [], [], []
    for _ in range(ROUNDS):
        for ring in rings:
            begin = time.perf_counter()
            rows, _ = ring.events(0, 1024)
            rates.append(len(rows) / (time.perf_counter() - begin))
            begin = time.perf_counter()
            ring.events(0, ring.shape.slots)
            copies.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            ring.pending()
            pending.append(time.perf_counter() - begin)
    print("ring, read while it is written to, medians")
    print(f"  checked ops     {statistics.median(rates):9,.0f} a second")
    whole = f"{1000 * statistics.median(copies):9.1f} ms"
    print(f"  whole history   {whole} for {rings[0].shape.slots:,} ops")
    print(f"  pending ops     {1e6 * statistics.median(pending):9.0f} µs")


if __name__ == "__main__":
    main()
