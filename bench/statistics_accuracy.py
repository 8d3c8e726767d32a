"""The accuracy of skew, transfer and bandwidth, compared with what ranks on gloo measure."""

from __future__ import annotations

import base64
import json
import random
import sys
import time
from statistics import median
from typing import Any, Final

from bench import gloo_job
from frtop_probe import wire

RANKS: Final = 4
ROUNDS: Final = 48
SLEEPS_S: Final = (0.0, 0.002, 0.01, 0.03)
BUDGET_MS: Final = 1.0
GROUP: Final = wire.Group(1, "0", "default_pg", "gloo", f"0-{RANKS - 1}")

Truth = dict[str, list[list[int]]]
"""By kind: when this rank called each op, and when the call returned."""


def measure() -> dict[str, Any]:
    """Runs in a rank: issues ops of known size after sleeps of known length."""
    import torch  # noqa: PLC0415 - only the ranks need torch
    import torch.distributed as dist  # noqa: PLC0415

    from frtop_probe.agent.ring_rank import RingRank  # noqa: PLC0415
    from frtop_probe.agent.statistics_requests import ring_statistics  # noqa: PLC0415
    from frtop_probe.recorder.process.lifecycle import lifecycle  # noqa: PLC0415
    from frtop_probe.ring.reader import Ring  # noqa: PLC0415
    from frtop_probe.statistics.calls import SiteTable  # noqa: PLC0415
    from frtop_probe.statistics.rank_summary import Window  # noqa: PLC0415

    lifecycle.start()
    dist.init_process_group("gloo")
    assert lifecycle.recorder is not None
    rank, chance = dist.get_rank(), random.Random(7)
    buffer, part = torch.ones(1 << 20), torch.ones((1 << 20) // RANKS)
    dist.barrier()
    begin = time.monotonic_ns()
    truth: Truth = {"all_reduce": [], "all_gather_into_tensor": [], "broadcast": []}
    for n in range(ROUNDS):
        sleeper, sleep = chance.randrange(RANKS), SLEEPS_S[n % len(SLEEPS_S)]
        for kind, times in truth.items():
            if rank == sleeper:
                time.sleep(sleep)
            called = time.monotonic_ns()
            match kind:
                case "all_reduce":
                    dist.all_reduce(buffer)
                case "broadcast":
                    dist.broadcast(buffer, 0)
                case _:
                    dist.all_gather_into_tensor(buffer, part)
            times.append([called, time.monotonic_ns()])
    dist.barrier()
    sites, now = SiteTable(), time.monotonic_ns()
    ring = Ring(lifecycle.recorder.ring.path)
    work = ring_statistics(
        RingRank(rank, ring, lives=True, pidfd=None), Window(begin, now, samples=4096), sites, now
    )
    while True:
        try:
            next(work)
        except StopIteration as end:
            response = wire.StatisticsResponse(1, "", begin, now, (end.value,), tuple(sites.places))
            break
    encoded = base64.b64encode(wire.encode(response)).decode()
    dist.barrier()
    return {"rank": rank, "truth": truth, "told": encoded}


def main() -> None:
    """Prints how much frtop's figures differ from what the ranks measured."""
    from frtop_tui.statistics.answers import RankAnswer  # noqa: PLC0415
    from frtop_tui.statistics.bandwidth import bus_factor  # noqa: PLC0415
    from frtop_tui.statistics.merger import StatisticsMerger  # noqa: PLC0415

    printed = gloo_job.run("bench.statistics_accuracy", "rank", ranks=RANKS)
    ranks = [json.loads(out.splitlines()[-1]) for out in printed]
    merger = StatisticsMerger()
    merger.begin(0, 0, 2**62)
    for one in ranks:
        told = wire.decode_response(base64.b64decode(one["told"]))
        assert isinstance(told, wire.StatisticsResponse)
        merger.add(0, RankAnswer(one["rank"], "", 0, {1: GROUP}, told.ranks[0], told.sites))
    found = merger.build({"": 0}, range(RANKS))
    assert found is not None
    print(
        f"{RANKS} ranks on gloo, {ROUNDS} ops of 4 MiB of each kind, one rank sleeps up to 30 ms:"
    )
    print(f"{'ms (budget 1)':<26}{'skew: median':>13}{'worst':>8}{'transfer: median':>18}"
          f"{'worst':>8}{'bus bandwidth':>16}")  # fmt: skip
    for kind in ranks[0]["truth"]:
        ops = [op for group in found.groups for op in group.arrivals if op.kind == kind]
        times = list(zip(*(one["truth"][kind] for one in ranks), strict=True))
        skews, transfers, bandwidths = [], [], []
        assert len(ops) == len(times) == ROUNDS
        for op, of_ranks in zip(ops, times, strict=True):
            called, ended = zip(*of_ranks, strict=True)
            skews.append(abs(op.skew_ns - (max(called) - min(called))) / 1e6)
            if op.ended_ns is not None:
                truth = max(ended) - max(called)
                transfers.append(abs(op.ended_ns - op.last_ns - truth) / 1e6)
                factor = bus_factor(kind, RANKS) or 0.0
                bandwidths.append(factor * op.bytes / truth)
        (row,) = (row for row in found.calls if row.kind == kind and row.bus_bandwidth)
        bus = f"{(row.bus_bandwidth or 0.0) / 1e9:.3f} of {median(bandwidths):.3f} GB/s"
        print(f"{kind:<26}{median(skews):>13.3f}{max(skews):>8.3f}{median(transfers):>18.3f}"
              f"{max(transfers):>8.3f}  {bus}")  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gloo_job.report(measure())
    else:
        main()
