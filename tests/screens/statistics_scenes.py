"""Frames with statistics: a job in which one rank comes last, and an even one."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledGroup, SampledOp, StepSplit

from .scenes import DP_KEY, NOW, SITE, TP_SITE, S, healthy

MS = 1_000_000
STRAGGLER = 12
EVERYONE = tuple(range(64))
TP_KEYS = tuple(GroupKey(f"t{base}", f"{base}-{base + 7}") for base in range(0, 64, 8))


def calls(late_ms: float) -> tuple[CallRow, ...]:
    """An all_reduce that waits for the straggler, and a gather that waits for nobody."""
    late = int(late_ms * MS)
    return (
        CallRow(
            "all_gather", TP_KEYS, TP_SITE, 64 << 20, EVERYONE, count=38_112,
            bytes=38_112 * (64 << 20), rate=635.2, timed=38_112, p50_ns=1_100_000,
            p95_ns=1_300_000, max_ns=4 * MS, total_ns=41 * S, waited_ns=900 * MS, sampled=512,
            skew_ns=600_000, transfer_ns=900_000, algorithm_bandwidth=242e9, bus_bandwidth=212e9,
            last=tuple((rank, 8) for rank in EVERYONE),
        ),
        CallRow(
            "all_reduce", (DP_KEY,), SITE, 64 << 20, EVERYONE, count=60_416,
            bytes=60_416 * 52_428_800, rate=1006.9, timed=60_100, p50_ns=18_200_000 + late,
            p95_ns=19_900_000 + late, max_ns=151 * MS, total_ns=9_000 * S,
            waited_ns=63 * late * 944,
            sampled=100, skew_ns=late or 300_000, transfer_ns=18 * MS, algorithm_bandwidth=20.8e9,
            bus_bandwidth=41e9,
            last=((STRAGGLER, 94), (3, 6)) if late else tuple((r, 2) for r in range(50)),
        ),
        CallRow(
            "barrier", (DP_KEY,), wire.Site(SITE.file, 260, "save"), 0, EVERYONE, count=64,
            rate=1.1, timed=20, p50_ns=350_000, p95_ns=800_000, max_ns=900_000, total_ns=MS,
            late=44, sampled=1, last=((4, 1),), skew_ns=100_000,
        ),
    )  # fmt: skip


def sampled(late_ms: float) -> SampledGroup:
    """A hundred ops of the group of all ranks."""
    ops = []
    for number in range(100):
        begin = NOW - 60 * S + number * 600 * MS
        late = int(late_ms * MS) if number % 16 else 0
        times = {
            rank: begin + rank * 1000 + (late if rank == STRAGGLER else 0) for rank in EVERYONE
        }
        ops.append(SampledOp(number * 8, times, True, "all_reduce", SITE, 52_428_800))
    return SampledGroup(DP_KEY, EVERYONE, tuple(ops), 8)


def steps(rank: int, late_ms: float, *, phases: bool = True) -> tuple[StepSplit, ...]:
    """Twenty steps; the straggler's forward takes longer, and it waits for nobody."""
    late = int(late_ms * MS) if rank == STRAGGLER else 0
    made = []
    for number in range(20):
        end = NOW - (20 - number) * 884 * MS
        made.append(
            StepSplit(
                2200 + number, end, 884 * MS, 21 * MS, max(0, int(late_ms * MS) - late) + 9 * MS,
                400 * MS - late,
                268 * MS + late if phases else None,
                402 * MS if phases else None,
                18 * MS if phases else None,
            )
        )  # fmt: skip
    return tuple(made)


def with_statistics(late_ms: float = 131.0, *, phases: bool = True, at_ns: int = NOW) -> Frame:
    """The healthy job; rank 12 comes `late_ms` after the others."""
    statistics = JobStatistics(
        at_ns - 60 * S,
        at_ns,
        at_ns - 60 * S,
        EVERYONE[:-2],
        EVERYONE[-2:],
        calls(late_ms),
        (sampled(late_ms),),
        {rank: steps(rank, late_ms, phases=phases) for rank in EVERYONE},
        clock_error_ns=400_000,
    )
    return replace(healthy(), statistics=statistics, now_ns=at_ns)


def straggling() -> Frame:
    return with_statistics()


def even() -> Frame:
    return with_statistics(0.0)


SCENES = {"straggling": straggling, "even": even}
