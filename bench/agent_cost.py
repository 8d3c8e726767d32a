"""The agent's cost in CPU, memory and traffic, and the speed of reading rings."""

from __future__ import annotations

import statistics
import time
from typing import Final

import msgspec
import psutil
import zmq

from bench.hosts import Hosts
from frtop_probe import keys, wire
from frtop_probe.agent.announcement import Announcement
from frtop_probe.agent.checksum_blocks import BlockReader
from frtop_probe.agent.ring_view import RingView
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import Ring

RANKS: Final = 8
RATE: Final = 1000.0
SECONDS: Final = 20.0
SETTLE_S: Final = 10.0
TRAFFIC_S: Final = 10.0
ROUNDS: Final = 20


def main() -> None:
    """Prints the agent's cost while 8 ranks issue 1,000 ops/s each, then the reader's speed."""
    with Hosts(1, RANKS, RATE) as hosts:
        time.sleep(SETTLE_S)
        rings = [Ring(path) for path in sorted(hosts.folders[0].glob("*.ring"))]
        agent = psutil.Process(hosts.agents[0].pid)
        head = sum(ring.cell(StatusCell.HEAD) for ring in rings)
        before, begin = _cpu_s(agent), time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - begin
        spent = _cpu_s(agent) - before
        issued = sum(ring.cell(StatusCell.HEAD) for ring in rings) - head
        memory = agent.memory_full_info()
        print(
            f"agent, {RANKS} ranks at {issued / seconds / RANKS:,.0f} ops/s each, no rank view open"
        )
        print(f"  CPU     {100 * spent / seconds:5.1f} % of a core   (budget 3)")
        print(f"  memory  {memory.rss / 1e6:5.0f} MB resident, {memory.uss / 1e6:.0f} MB its own,"
              " the rest rings and libraries   (budget 80)")  # fmt: skip
        _traffic(hosts.agents[0])
        _read(rings)
        for ring in rings:
            ring.close()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _traffic(agent: Announcement) -> None:
    """Prints the bytes that the agent publishes, and how many of them are sums over blocks."""
    pair = keys.load(create=False)
    context = zmq.Context()
    sub = context.socket(zmq.SUB)
    sub.curve_serverkey = agent.public_key.encode()
    sub.curve_publickey, sub.curve_secretkey = pair.public, pair.secret
    sub.subscribe(b"")
    sub.connect(f"tcp://{agent.address}:{agent.pub}")
    sub.poll(5000)
    begin, size, sums, ops = time.monotonic(), 0, 0, 0
    while time.monotonic() - begin < TRAFFIC_S:
        if not sub.poll(100):
            continue
        frame = sub.recv()
        size += len(frame)
        for rank in wire.decode_update(wire.from_frame(frame)).ranks:
            blocks = [(one.group, one.first, one.size, one.sums, one.pairs) for one in rank.blocks]
            sums += len(msgspec.msgpack.encode(blocks)) if blocks else 0
            ops += sum(one.size * len(one.sums) // 4 for one in rank.blocks)
    seconds = time.monotonic() - begin
    context.destroy(linger=0)
    each = seconds * RANKS
    print(f"  traffic {size / each:5.0f} B / rank / s, {sums / each:.0f} of them sums over"
          f" {ops / each:,.0f} ops   (budget 2048)")  # fmt: skip


def _read(rings: list[Ring]) -> None:
    """Prints the speed of reading ops, whole histories, pending ops and sums while ranks write."""
    rates, copies, pending, sums = [], [], [], []
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
            blocks = BlockReader(RingView(ring))
            begin = time.process_time()
            blocks.fresh(time.monotonic_ns())
            sums.append((time.process_time() - begin) / ring.shape.slots)
    print("ring, read while it is written to, medians")
    print(f"  checked ops     {statistics.median(rates):9,.0f} a second")
    history = f"{1000 * statistics.median(copies):9.1f} ms"
    print(f"  whole history   {history} for {rings[0].shape.slots:,} ops")
    print(f"  sums over ops   {1e6 * statistics.median(sums):9.2f} µs of CPU an op")
    print(f"  pending ops     {1e6 * statistics.median(pending):9.0f} µs")


if __name__ == "__main__":
    main()
