"""What somebody wants to know of what the ranks did, and what it may cost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics

MOST_TIMES: Final = 250_000
"""Issue times of sampled ops of all ranks in a window: some 100 bytes each."""
FEW_TIMES: Final = 50_000
"""Up to this many are searched for late ranks each time they come."""
ENOUGH_SAMPLES: Final = 32
"""Ops of one group in one slice: enough for who is late how often, and for a median."""
MOST_SAMPLES: Final = 256
"""The same, of few ranks: who is late to one op of a step shows in less time."""
MOST_STEPS: Final = 16
"""Steps of one rank in one slice. Splitting them costs the agent up to a microsecond an op."""
LONG_WINDOW_S: Final = 600.0
"""Window of verdicts where steps are so long that a minute has few of them."""
FEW_OPS: Final = 32
"""With no more ops a minute in any group, a minute does not show which of few ranks is slow."""
ENOUGH_OPS: Final = 64
"""With this many ops of a group in a minute, the window is a minute again."""


class StatisticsWanted(Struct, frozen=True):
    """A window of time up to now, and what of it.

    Without `calls` only sampled ops and steps are asked for, which costs little. `ranks` and
    `groups` limit whose calls are counted; None: all.
    """

    window_s: float = 60.0
    calls: bool = False
    ranks: frozenset[int] | None = None
    groups: frozenset[GroupKey] | None = None


def samples_for(memberships: Collection[int], slices: int) -> int:
    """How many ops of each group to ask for in a slice, so that all together stay few."""
    each_op = max(1, sum(memberships)) * max(1, slices)
    wanted = max(ENOUGH_SAMPLES, min(MOST_SAMPLES, FEW_TIMES // each_op))
    return max(1, min(wanted, MOST_TIMES // each_op))


def most_ops(statistics: JobStatistics, since_ns: int) -> int:
    """About how many ops the group with the most of them has had since then."""
    counts = (
        one.stride * sum(1 for op in one.arrivals if op.last_ns >= since_ns)
        for one in statistics.groups
    )
    return max(counts, default=0)


def joint_wanted(several: Collection[StatisticsWanted]) -> StatisticsWanted | None:
    """What serves all who want something; None if nobody does."""
    if not several:
        return None
    with_calls = [one for one in several if one.calls]
    narrow = with_calls[0] if len(with_calls) == 1 else StatisticsWanted()
    return StatisticsWanted(
        max(one.window_s for one in several), bool(with_calls), narrow.ranks, narrow.groups
    )
