"""Which rank arrives last at the ops of a line: the one rule, and its words, for screens and text.

We name a rank if it arrives last at the ops of its own groups far more often than by chance: a
line's ops may belong to many alike groups, and a rank takes part in one of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_tui.job.statistics import CallRow
from frtop_tui.job.units import percent

FEWEST: Final = 8
"""With fewer sampled ops of its groups, we name no rank as the last to arrive."""
SURE: Final = 4.5
"""Logarithm of the improbability of chance, as for three standard deviations; the logarithm of the
number of ranks is added, because we look at the most conspicuous of all ranks."""
CANDIDATES: Final = 8
"""How many ranks are considered, starting with those that come last most often."""
NOT_SAMPLED: Final = "not sampled"
WITHIN_ERROR: Final = "clock error"
"""Ranks arrive within the clock error, or nobody compared the clocks."""
EVEN: Final = "even"


@dataclass(frozen=True, slots=True)
class LastToArrive:
    """The rank; `share` is its share of the sampled ops of its own groups."""

    words: str = NOT_SAMPLED
    rank: int | None = None
    share: float = 0.0


def last_to_arrive(calls: Sequence[CallRow]) -> LastToArrive:
    """Who arrives last at the ops of these rows, taken together."""
    sampled = sum(call.sampled for call in calls)
    if not sampled:
        return LastToArrive()
    times: Counter[int] = Counter()
    for call in calls:
        times.update(dict(call.last))
    if not times:
        return LastToArrive(WITHIN_ERROR)
    most = sorted(times.items(), key=lambda item: (-item[1], item[0]))[:CANDIDATES]
    found = [
        (count / ops, -rank) for rank, count in most if (ops := _ops_if_sure(rank, count, calls))
    ]
    if found:
        share, rank = min(1.0, max(found)[0]), -max(found)[1]
        return LastToArrive(f"rank {rank}: {percent(share)}", rank, share)
    return LastToArrive(EVEN if sampled >= FEWEST else f"{sampled} sampled")


def _ops_if_sure(rank: int, times: int, calls: Iterable[CallRow]) -> float:
    """How many sampled ops a rank took part in; 0 if it may be last at `times` ops by chance."""
    ops = expected = 0.0
    ranks = 1
    for call in calls:
        # Its own call may come from another line, or have another size.
        if rank in call.ranks or any(rank == one for one, _ in call.last):
            groups = max(1, len(call.groups))
            members = max(call.members, len(call.ranks) / groups)
            here = call.sampled / groups  # alike groups are sampled alike
            ops += here
            expected += here / max(2.0, members)
            ranks = max(ranks, len(call.ranks), call.members * groups)
    if ops < FEWEST or times <= expected:
        return 0.0
    share, even = min(1.0, times / ops), expected / ops
    rest = (1 - share) * math.log((1 - share) / (1 - even)) if share < 1 else 0.0
    # Chernoff's bound for coming last this often by chance; valid for few ops of many ranks, too.
    surprise = ops * (share * math.log(share / even) + rest)
    return ops if surprise > SURE + math.log(ranks) else 0.0
