"""How far a host's clock is from ours, and how sure that is. Pure."""

from __future__ import annotations

from math import ceil

from frtop_tui.job.model import HostView

SECOND_NS = 1_000_000_000


def _figures(host: HostView, error_ns: int) -> tuple[str, str]:
    """Offset without its sign, and its error, in one unit; an error is rounded up."""
    far = max(abs(host.clock_ns), error_ns) >= SECOND_NS
    scale, unit = (SECOND_NS, "s") if far else (SECOND_NS // 1000, "ms")
    offset, error = abs(host.clock_ns) / scale, ceil(error_ns * 10 / scale) / 10
    return f"{offset:.1f} {unit}", f"{error:.1f}"


def offset(host: HostView) -> str:
    """`+1.2 ms ±0.3`: ahead of ours is plus; empty when it was not measured."""
    if host.clock_error_ns is None:
        return ""
    told, error = _figures(host, host.clock_error_ns)
    return f"{'-' if host.clock_ns > 0 else '+'}{told} ±{error}"


def clock_sentence(host: HostView) -> str:
    """In words, for the host one looks at."""
    if host.clock_error_ns is None:
        return "its clock has not been compared with ours yet"
    if abs(host.clock_ns) <= host.clock_error_ns:
        return f"its clock agrees with ours ({offset(host)})"
    side = "ahead of" if host.clock_ns < 0 else "behind"
    told, error = _figures(host, host.clock_error_ns)
    return f"its clock is {told} {side} ours, ±{error}; times shown here are corrected by that"
