"""Bandwidths of collectives as nccl-tests defines them.

`algorithm = bytes / time`, and `bus = algorithm * factor`: what each link would have to carry,
whatever the number of ranks, so it can be compared with what the hardware can do. Factors:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md and, for gather, scatter and
send, the sources beside it.
"""

from __future__ import annotations

from typing import Final

_TWICE: Final = ("all_reduce",)
_ONCE: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_UNSCALED: Final = ("broadcast", "reduce", "send", "recv")


def bus_factor(kind: str, members: int) -> float | None:
    """The factor from algorithm to bus bandwidth; None of kinds that nccl-tests does not have.

    Args:
        kind: of the op, as frtop names it; coalesced ops and the like begin with their kind.
        members: ranks of the group.
    """
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
