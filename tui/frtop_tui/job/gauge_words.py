"""Figures of gauges as text, the same in verdicts and on screens."""

from __future__ import annotations

from typing import Final

_STEPS: Final = ("B", "K", "M", "G", "T", "P")
_DECIMAL: Final = ("B", "kB", "MB", "GB", "TB")


def percent(permille: int) -> str:
    """`0.4 %`, `61 %`."""
    return f"{permille / 10:.0f} %" if permille >= 10 or not permille else f"{permille / 10:.1f} %"


def amount(size: int) -> str:
    """`812 B`, `1.5 G`: powers of 1024, as memory and disks are counted here."""
    value, unit = _scaled(size, 1024, _STEPS)
    return f"{value:.1f} {unit}" if unit != "B" and value < 10 else f"{value:.0f} {unit}"


def per_second(rate: int) -> str:
    """`3.1 GB/s`: powers of 1000, as links are sold."""
    value, unit = _scaled(rate, 1000, _DECIMAL)
    return f"{value:.1f} {unit}/s" if unit != "B" and value < 10 else f"{value:.0f} {unit}/s"


def cores(thousandths: int) -> str:
    """`0.04`, `7.9`, `61` cores."""
    value = thousandths / 1000
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _scaled(value: int, base: int, units: tuple[str, ...]) -> tuple[float, str]:
    """The value in the unit in which it has the fewest digits before the point."""
    scaled = float(value)
    for unit in units[:-1]:
        if round(scaled) < base:
            return scaled, unit
        scaled /= base
    return scaled, units[-1]
