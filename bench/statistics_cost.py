"""What statistics cost: an agent of 8 busy ranks, and the operator's side of 64 and 4,096 ranks."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

import psutil
from msgspec.structs import replace

from bench.hosts import Hosts
from frtop_probe import wire
from frtop_probe.garbage import collect_rarely
from frtop_probe.history_columns import pack
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import Ring
from frtop_probe.statistics.call_columns import CallFields, pack_calls
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.connect.live import LiveSource
from frtop_tui.statistics.answers import RankAnswer
from frtop_tui.statistics.merger import StatisticsMerger
from frtop_tui.statistics.wanted import StatisticsWanted, samples_for

RANKS: Final = 8
RATE: Final = 1000.0
SECONDS: Final = 25.0
SLICES: Final = 12
LINES: Final = 12
"""Rows for each rank and group."""


def main() -> None:
    """Prints the agent's cost, then the operator's."""
    _agent()
    collect_rarely()  # as a screen does
    for ranks in (64, 4096):
        _operator(ranks)


def _agent() -> None:
    with Hosts(1, RANKS, RATE) as hosts:
        agent = psutil.Process(hosts.agents[0].pid)
        rings = [Ring(path) for path in sorted(hosts.folders[0].glob("*.ring"))]
        source = LiveSource(hosts.connect)
        try:
            time.sleep(8)
            head, begin = _issued(rings), time.monotonic()
            idle = _share(agent)
            rate = (_issued(rings) - head) / (time.monotonic() - begin) / RANKS
            print(f"agent, {RANKS} ranks at {rate:,.0f} ops/s each: {idle:.1f} % of a core without")
            for calls, budget in ((False, 1), (True, 4)):
                source.want_statistics(StatisticsWanted(calls=calls), whom="bench")
                time.sleep(6)  # the first look asks for everything in the rings
                what = "rows of calls, too" if calls else "samples and steps every 5 s"
                print(f"  {what:<28}{_share(agent) - idle:+6.2f} % of a core   (budget {budget})")
        finally:
            source.close()
            for ring in rings:
                ring.close()


def _issued(rings: list[Ring]) -> int:
    return sum(ring.cell(StatusCell.HEAD) for ring in rings)


def _share(process: psutil.Process) -> float:
    before, begin = _cpu_s(process), time.monotonic()
    time.sleep(SECONDS)
    return 100 * (_cpu_s(process) - before) / (time.monotonic() - begin)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _operator(ranks: int) -> None:
    """A job of three groups for each rank: all, 8 by 8, and every 8th."""
    before = psutil.Process().memory_info().rss
    merger = StatisticsMerger()
    samples = samples_for([3] * ranks, SLICES)
    groups = [_groups(rank, ranks) for rank in range(ranks)]
    adding, building, size = [], [], 0
    found = None
    errors: dict[str, int | None] = {f"node{n}": 100_000 for n in range(ranks // 8)}
    for number in range(SLICES):
        merger.begin(number, number * 5_000_000_000, (number + 1) * 5_000_000_000)
        told = _told(number, samples)
        data = [
            wire.encode(
                wire.StatisticsResponse(1, "node", 0, 1, (replace(told, key=rank),), _SITES)
            )
            for rank in range(ranks)
        ]
        size = sum(map(len, data))
        begin = time.thread_time()
        for one in data:
            response = wire.decode_response(one)
            assert isinstance(response, wire.StatisticsResponse)
            rank, host = response.ranks[0], f"node{response.ranks[0].key // 8}"
            merger.add(number, RankAnswer(rank.key, host, 0, groups[rank.key], rank, _SITES))
        adding.append(time.thread_time() - begin)
        begin = time.thread_time()
        found = merger.build(errors, range(ranks))
        building.append(time.thread_time() - begin)
    memory = (psutil.Process().memory_info().rss - before) / 1e6
    assert found is not None
    times = sum(len(op.arrivals) for group in found.groups for op in group.arrivals)
    print(
        f"operator, {ranks:,} ranks, {samples} ops of a group in a slice, {times:,} issue times:"
        f" {size / 1e6:.1f} MB a slice, {1e3 * median(adding):.0f} ms to take in (at most"
        f" {1e3 * max(adding):.0f}), {1e3 * median(building):.0f} ms to build (at most"
        f" {1e3 * max(building):.0f}), {memory:.0f} MB"
    )


_SITES: Final = (wire.Site("/srv/train.py", 40, "train"),)


def _groups(rank: int, ranks: int) -> dict[int, wire.Group]:
    tp = rank // 8
    strided = ",".join(map(str, range(rank % 8, ranks, 8)))
    return {
        1: wire.Group(1, "0", "default_pg", "nccl", f"0-{ranks - 1}"),
        2: wire.Group(2, f"{1 + tp}", "tp", "nccl", f"{8 * tp}-{8 * tp + 7}"),
        3: wire.Group(3, f"{9999 + rank % 8}", "dp", "nccl", strided),
    }


def _told(number: int, samples: int) -> wire.RankStatistics:
    """What each rank reports of a slice with 2,000 ops of each group."""
    histogram = {150 + n: 3 for n in range(20)}
    calls: list[CallFields] = [
        ("all_reduce", group, 1, line, False, False, 60, 10**9, 60, 10**9, 10**8, 0, 0, 0,
         histogram)
        for group in (1, 2, 3) for line in range(LINES)
    ]  # fmt: skip
    first, stride = 2000 * number + 1, 1
    while len(numbers := [n for n in range(first, first + 2000) if is_chosen(n, stride)]) > samples:
        stride *= 2
    told: tuple[wire.SampledOps, ...] = ()
    if numbers:
        number_column = pack(numbers)
        issued = pack([10**9 + n * 10**6 for n in numbers])
        took, size, call = (pack([value] * len(numbers)) for value in (10**6, 1 << 20, LINES))
        told = tuple(
            wire.SampledOps(
                group, stride, number_column, issued, took, size, call, count=len(numbers)
            )
            for group in (1, 2, 3)
        )
    return wire.RankStatistics(0, number * 5_000_000_000, samples=told, rows=pack_calls(calls))


if __name__ == "__main__":
    main()
