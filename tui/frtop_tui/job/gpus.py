"""Figures of GPUs as text, the same in verdicts and on screens."""

from __future__ import annotations

from typing import Final

from frtop_probe import wire

SPINS: Final = "a kernel spins, as NCCL's do while they wait"
"""Describes a GPU that is busy at little more than idle power."""
_THROTTLE: Final = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
"""NVML's reasons for a GPU slowed down involuntarily. The others are settings, or idleness."""


def power_text(power_mw: int | None, limit_mw: int | None) -> str:
    """`96 of 700 W`, `96 W`, or "" if unknown."""
    if power_mw is None:
        return ""
    watts = f"{power_mw / 1000:.0f}"
    return f"{watts} of {limit_mw / 1000:.0f} W" if limit_mw else f"{watts} W"


def shared_text(gpu: wire.Gpu) -> str:
    """Says that several processes share the GPU; "" if not, or if unknown."""
    if gpu.processes > 1:
        return f"shared by {gpu.processes} processes: these are the figures of all"
    return ""


def throttle_text(bits: int | None) -> str:
    """`slowed by power cap, heat (hardware)`; "" if nothing slows it, or if unknown."""
    named = throttle_reasons(bits)
    return f"slowed by {', '.join(named)}" if named else ""


def throttle_reasons(bits: int | None) -> list[str]:
    """`power cap`, `heat (hardware)`: what slows it down involuntarily."""
    return [name for bit, name in _THROTTLE.items() if (bits or 0) & bit]
