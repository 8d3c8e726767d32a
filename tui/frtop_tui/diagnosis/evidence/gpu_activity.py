"""Whether a GPU is busy with a kernel that only waits, as NCCL's do.

An NCCL kernel that waits for other ranks polls memory: NVML shows 100 % utilization at little more
than idle power. That is never a verdict by itself, and does not show which kernel it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.diagnosis.thresholds import (
    GPU_STALE_NS,
    MAX_IDLE_SHARE,
    SPIN_LIMIT_SHARE,
    SPIN_NS,
    SPIN_RISE,
    SPIN_SAMPLES,
    SPIN_UTILIZATION,
)
from frtop_tui.job.model import Rank


class SpinningGpu(Struct, frozen=True):
    """A GPU of one rank that is busy at little more than idle power."""

    gpu: wire.Gpu
    utilization: int
    power_mw: int
    limit_mw: int


def spinning_gpus(view: Rank, now_ns: int) -> tuple[SpinningGpu, ...]:
    """The spinning GPUs of a living, reporting rank, by recent samples."""
    if view.gauges is None or view.exit_info is not None or not view.evidence.has_ages:
        return ()
    host_now_ns = now_ns - view.clock_ns
    found = (spinning(gpu) for gpu in view.gauges.gpus if is_fresh(gpu, host_now_ns))
    return tuple(one for one in found if one is not None)


def is_fresh(gpu: wire.Gpu, host_now_ns: int) -> bool:
    """Whether its last sample is recent."""
    return bool(gpu.samples) and host_now_ns - gpu.samples[-1].at_ns <= GPU_STALE_NS


def spinning(gpu: wire.Gpu) -> SpinningGpu | None:
    """The GPU, if all its last samples show it busy at little power; else None.

    Nothing is concluded for a partitioned GPU (MIG), whose power is that of all partitions.
    """
    samples = gpu.samples[-SPIN_SAMPLES:]
    limit_mw = gpu.power_limit_mw
    if gpu.mig or gpu.error or not limit_mw or len(samples) < SPIN_SAMPLES:
        return None
    if samples[-1].at_ns - samples[0].at_ns < SPIN_NS:
        return None
    use = _known([one.utilization for one in samples])
    power = _known([one.power_mw for one in samples])
    if use is None or power is None or min(use) < SPIN_UTILIZATION:
        return None
    if max(power) > _highest_mw(gpu.idle_mw, limit_mw):
        return None
    return SpinningGpu(gpu, use[-1], power[-1], limit_mw)


def _highest_mw(idle_mw: int | None, limit_mw: int) -> float:
    """The highest power at which a busy GPU does no work, from its idle power if known."""
    if idle_mw is not None and idle_mw <= MAX_IDLE_SHARE * limit_mw:
        return idle_mw + SPIN_RISE * (limit_mw - idle_mw)
    return SPIN_LIMIT_SHARE * limit_mw


def _known(values: Sequence[int | None]) -> list[int] | None:
    """The values; None if one is missing."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None
