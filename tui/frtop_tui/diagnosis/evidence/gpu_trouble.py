"""Whether a GPU's clocks are held down, somebody else computes on it, or it has reported errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frtop_tui.diagnosis.evidence.host_fact import HostFact, risen, since
from frtop_tui.diagnosis.thresholds import CAPPED_SHARE, WORKING_GPU
from frtop_tui.job.host_gauges import GaugedSubject, HostGauges

FORCED: Final = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's reasons that no setting asks for: slowdown by hardware, heat, a power brake."""
POWER_CAP: Final = 0x4
"""The power limit, at which a GPU that works hard usually is."""


def gpu_facts(gauges: HostGauges) -> tuple[HostFact, ...]:
    """Of all GPUs that the agent of the host reads."""
    return tuple(fact for one in gauges.of_kind("gpu") for fact in _facts(gauges, one))


def _facts(gauges: HostGauges, gpu: GaugedSubject) -> Iterator[HostFact]:
    if gpu.problem:
        yield HostFact("gpu error", gpu.name, gpu.keys, text=gpu.problem)
    if (bits := slow_bits(gpu)) and (slow := _slow(gauges, gpu, bits)):
        yield slow
    others = gpu.values.get("others", 0)
    if others:
        begin, at_least = since(gauges, gpu, "others", (1).__le__)
        memory = gpu.values.get("others_mem", 0)
        yield HostFact("gpu shared", gpu.name, gpu.keys, others, memory, begin, at_least)
    by, last_ns = risen(gauges, gpu, "xids")
    known = gpu.values.get("xids", 0)
    if by or known:
        xid = gpu.values.get("xid", 0)
        yield HostFact("gpu error", gpu.name, gpu.keys, max(by, known), xid, last_ns)


def slow_bits(gpu: GaugedSubject) -> int:
    """The reasons for which its clocks are out of the ordinary now, 0 for none.

    At its power limit a GPU is slower than it could be, and well. Only far below its highest clock,
    while it works, that is said.
    """
    throttle = gpu.values.get("throttle", 0)
    bits = throttle & FORCED
    clock, highest = gpu.values.get("sm_mhz"), gpu.values.get("max_sm_mhz")
    if throttle & POWER_CAP and clock is not None and highest:
        capped = clock < CAPPED_SHARE * highest and gpu.values.get("use", 0) >= WORKING_GPU
        bits |= POWER_CAP if capped else 0
    return bits


def _slow(gauges: HostGauges, gpu: GaugedSubject, bits: int) -> HostFact:
    begin, at_least = since(gauges, gpu, "throttle", lambda value: bool(value & bits))
    clock, highest = gpu.values.get("sm_mhz", 0), gpu.values.get("max_sm_mhz", 0)
    return HostFact("gpu slow", gpu.name, gpu.keys, clock, highest, begin, at_least, bits)
