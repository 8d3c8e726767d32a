"""The GPUs that a rank uses, a line each."""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.evidence.gpu_activity import is_fresh, spinning
from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.job.gpus import power_text, throttle_text
from frtop_tui.job.naming import printable
from frtop_tui.job.units import byte_size, duration
from frtop_tui.widgets.spans import Line, join, plain

_NOT_MOVING: Final = frozenset({"blocked", "late", "silent", "stopped"})
"""States in which a rank's GPU should have nothing to do. One that moves may have small kernels."""


def gpu_lines(rank: JudgedRank, now_ns: int) -> list[Line]:
    """One line per GPU, then what is not known of them; nothing for a rank without devices."""
    if rank.gauges is None or rank.exit_info is not None:
        return []
    host_now_ns = now_ns - rank.clock_ns
    spins = "a kernel spins" if rank.state in _NOT_MOVING else "at little power"
    lines = [_line(gpu, host_now_ns, spins) for gpu in rank.gauges.gpus]
    if rank.gauges.note:
        lines.append(plain(f"GPU: {printable(rank.gauges.note)}", "dim"))
    return lines


def _line(gpu: wire.Gpu, host_now_ns: int, low_power: str) -> Line:
    """One GPU; `low_power` is what is said of one that is busy at little more than idle power."""
    title = plain(f"GPU {gpu.index}", "strong")
    name = plain(printable(gpu.name).removeprefix("NVIDIA "), "dim")
    if gpu.error:
        return join((title, name, plain(printable(gpu.error), "warn")))
    if not gpu.samples:
        return join((title, name, plain("no figures yet", "dim")))
    last = gpu.samples[-1]
    fresh = is_fresh(gpu, host_now_ns)
    age = duration(max(0, host_now_ns - last.at_ns) / 1e9)
    busy = "busy: not known" if last.utilization is None else f"{last.utilization} % busy"
    memory = "" if last.memory_used is None else byte_size(last.memory_used)
    if memory and gpu.memory_total:
        memory += f" of {byte_size(gpu.memory_total)}"
    low = fresh and spinning(gpu) is not None
    return join(
        (
            title,
            plain("" if fresh else f"{age} ago:", "warn"),
            plain(busy, "strong"),
            plain(power_text(last.power_mw, gpu.power_limit_mw), "strong"),
            plain(low_power if low else "", "warn"),
            plain(f"shared by {gpu.processes} processes" if gpu.processes > 1 else ""),
            plain(memory),
            plain("" if last.sm_mhz is None else f"{last.sm_mhz} MHz", "dim"),
            plain(throttle_text(last.throttle), "warn"),
            plain("MIG: figures of all parts" if gpu.mig else "", "dim"),
            name,
        )
    )
