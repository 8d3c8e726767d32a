"""What somebody wants to know about what the ranks did, and what it may cost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics

MOST_TIMES: Final = 250_000
"""Most issue times of sampled ops of all ranks in a window: some 100 bytes each."""
FEW_TIMES: Final = 50_000
"""Up to this many are searched for late ranks each time they arrive."""
ENOUGH_SAMPLES: Final = 32
"""Ops of one group in one slice: enough for how often each rank is late, and for a median."""
MOST_SAMPLES: Final = 256
"""The same with few ranks: then a rank that is late to one op of a step shows sooner."""
MOST_STEPS: Final = 16
"""Steps of one rank in one slice. Splitting them costs the agent up to a microsecond an op."""
LONG_WINDOW_S: Final = 600.0
"""Window of verdicts if steps are so long that a minute has few of them."""
FEW_OPS: Final = 32
"""With no more ops per minute than this in any group, a minute does not show which of few ranks is
slow."""
ENOUGH_OPS: Final = 64
"""With this many ops of a group in a minute, the window is a minute again."""


class StatisticsWanted(Struct, frozen=True):
    """A window of time up to now, and which statistics of it.

    Without `calls`, we request only sampled ops and steps, which costs little. `ranks` and `groups`
    limit whose calls count; None: all.
    """

    window_s: float = 60.0
    calls: bool = False
    ranks: frozenset[int] | None = None
    groups: frozenset[GroupKey] | None = None


def samples_for(memberships: Collection[int], slices: int) -> int:
    """How many ops of each group to request in a slice, to keep the total small."""
    each_op = max(1, sum(memberships)) * max(1, slices)
    wanted = max(ENOUGH_SAMPLES, min(MOST_SAMPLES, FEW_TIMES // each_op))
    return max(1, min(wanted, MOST_TIMES // each_op))


def most_ops(statistics: JobStatistics, since_ns: int) -> int:
    """About how many ops the busiest group has had since then."""
    counts = (
        one.stride * sum(1 for op in one.arrivals if op.last_ns >= since_ns)
        for one in statistics.groups
    )
    return max(counts, default=0)


def joint_wanted(several: Collection[StatisticsWanted]) -> StatisticsWanted | None:
    """What serves everybody who wants something; None if nobody does."""
    if not several:
        return None
    with_calls = [one for one in several if one.calls]
    narrow = with_calls[0] if len(with_calls) == 1 else StatisticsWanted()
    return StatisticsWanted(
        max(one.window_s for one in several), bool(with_calls), narrow.ranks, narrow.groups
    )
