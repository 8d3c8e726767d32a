"""Bandwidths of collectives as nccl-tests defines them.

`algorithm = bytes / time`, and `bus = algorithm * factor`: what each link would have to carry,
whatever the number of ranks, so it can be compared with what the hardware can do. Factors:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md and, for gather, scatter and
send, the sources beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Final

from frtop_tui.job.statistics import SampledOp

_TWICE: Final = ("all_reduce",)
_ONCE: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_UNSCALED: Final = ("broadcast", "reduce", "send", "recv")


CLEAR: Final = 10
"""A transfer must take this many times the clock error to give a bandwidth."""


def algorithm_bandwidth(ops: Iterable[SampledOp]) -> float | None:
    """The median over these ops, in bytes per second; None if clocks are too inaccurate for all.

    Only the clocks of each op's own group matter: ranks of one host share one.
    """
    found = [
        op.bytes / op.transfer_ns * 1e9
        for op in ops
        if op.bytes
        and op.transfer_ns
        and op.error_ns is not None
        and op.transfer_ns >= CLEAR * op.error_ns
    ]
    return median(found) if found else None


def bus_factor(kind: str, members: int) -> float | None:
    """The factor from algorithm to bus bandwidth; None for kinds that nccl-tests lacks."""
    if members < 2:
        return None
    for kinds, factor in (
        (_TWICE, 2 * (members - 1) / members),
        (_ONCE, (members - 1) / members),
        (_UNSCALED, 1.0),
    ):
        if kind.startswith(kinds):
            return factor
    return None
