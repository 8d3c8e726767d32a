"""GPUs of late ranks that are seldom busy, and what their hosts do instead, as far as it was seen.

NVML counts the time in which any kernel ran, and a kernel that waits for other ranks is one. So low
use means that the host gives a GPU too little to do; of a busy GPU it says nothing. We name a
reason only if it accounts for most of the idle time. Never tried on a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.cases.slow.looks import FEWEST, Looks
from frtop_tui.diagnosis.evidence.gpu_activity import is_fresh
from frtop_tui.diagnosis.thresholds import (
    ALWAYS_COMPUTES,
    EXPLAINED_SHARE,
    LOW_GPU_USE,
    SPIN_NS,
    SPIN_SAMPLES,
)
from frtop_tui.job.model import Rank
from frtop_tui.job.statistics import JobStatistics

IdleReason = Literal[
    "data",  # its host waits for batches
    "starved",  # its host's main thread has no processor
    "ranks",  # its host waits in ops
    "launches",  # its host computes all the time, mostly in torch's code, which starts kernels
    "host",  # its host computes all the time
    "",  # not seen
]


class LowGpuUse(NamedTuple):
    """How busy GPUs are, in percent, and what takes at least half of the rest.

    `share` is the part of the time that the reason takes. `gpu` is the index of the only one; None:
    they are those of several ranks.
    """

    use: int
    gpu: int | None = None
    reason: IdleReason = ""
    share: float = 0.0
    cores: float = 0.0  # that the rank's process uses
    in_torch: int = 0  # of `looks`, those that found it in torch's code
    looks: int = 0
    others: int | None = None  # how busy the other ranks' GPUs are


def low_gpu_use(
    views: Sequence[Rank],
    others: Sequence[Rank],
    ranks: Mapping[int, Rank],
    statistics: JobStatistics,
    *,
    looks: Looks,
    now_ns: int,
    ready: float | None,
    cores: float | None,
) -> tuple[LowGpuUse, ...]:
    """Of the first late rank, if its GPU is seldom busy; of the others, if they wait for it.

    `ready` is the share of the time in which late ranks had no processor, and `cores` how many they
    use; None if not known.
    """
    own = Counter(_key(view, gpu) for view in ranks.values() for gpu in _gpus(view))
    theirs, compared = (list(_uses(those, own, now_ns)) for those in (views[:1], others))
    usual = round(median(use for _, use in compared)) if compared else None
    found = []
    if len(theirs) == 1 and theirs[0][1] < LOW_GPU_USE:
        (index, use), rank = theirs[0], views[0].rank
        seen = LowGpuUse(use, index)
        idle = EXPLAINED_SHARE * (1 - use / 100)
        share, reason = max(_waits([rank], statistics, ready))
        in_torch, looked = looks.in_torch(rank)
        if share >= idle:
            seen = seen._replace(reason=reason, share=share)
        elif cores is not None and cores >= ALWAYS_COMPUTES:
            starts = looked >= FEWEST and 2 * in_torch >= looked
            seen = seen._replace(reason="launches" if starts else "host", cores=cores,
                                 in_torch=in_torch, looks=looked)  # fmt: skip
        if usual is not None and usual >= LOW_GPU_USE:
            seen = seen._replace(others=usual)
        found.append(seen)
    if usual is not None and usual < LOW_GPU_USE:
        share, reason = max(_waits([view.rank for view in others], statistics, None))
        if reason == "ranks" and share >= EXPLAINED_SHARE * (1 - usual / 100):
            found.append(LowGpuUse(usual, None, reason, share))
    return tuple(found)


def _waits(
    ranks: Iterable[int], statistics: JobStatistics, ready: float | None
) -> Iterator[tuple[float, IdleReason]]:
    """What hosts wait for, with the share of the time."""
    steps = [step for rank in ranks for step in statistics.steps.get(rank, ())]
    took_ns = sum(step.took_ns for step in steps)
    yield 0.0, ""
    if took_ns:
        yield sum(step.blocked_ns for step in steps) / took_ns, "ranks"
        yield sum(step.data_ns or 0 for step in steps) / took_ns, "data"
    if ready is not None:
        yield ready, "starved"


def _uses(
    views: Iterable[Rank], own: Counter[tuple[str, str, int]], now_ns: int
) -> Iterator[tuple[int, int]]:
    """Index and median use of each GPU that only one rank computes on, over some seconds."""
    for view in views:
        for gpu in _gpus(view):
            alone = own[_key(view, gpu)] == 1 and gpu.processes == 1
            if gpu.mig or gpu.error or not alone or not is_fresh(gpu, now_ns - view.clock_ns):
                continue
            known = [one.utilization for one in gpu.samples if one.utilization is not None]
            lasts_ns = gpu.samples[-1].at_ns - gpu.samples[0].at_ns
            if len(known) >= SPIN_SAMPLES and lasts_ns >= SPIN_NS:
                yield gpu.index, round(median(known))


def _gpus(view: Rank) -> tuple[wire.Gpu, ...]:
    return view.gauges.gpus if view.gauges is not None else ()


def _key(view: Rank, gpu: wire.Gpu) -> tuple[str, str, int]:
    return view.host, gpu.uuid, gpu.index
