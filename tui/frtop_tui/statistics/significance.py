"""By how much a figure has grown between two runs, as an interval that counts the noise.

Nothing is assumed of how values are spread: the interval is that of the Mann-Whitney test, from
the ratios (or differences) of all pairs of a value before and one after. Its one assumption is
that values do not depend on each other. Steps that follow each other do, so medians of blocks of
steps are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import floor, inf, sqrt
from statistics import NormalDist, median
from typing import Final

ERROR: Final = 0.01
"""All checks of a comparison together accuse a run without a change at most this often."""
BLOCKS: Final = 32
"""More blocks are more precise than a run is by itself, and cost their square."""
SHORTEST: Final = 2
"""Values of a block: a slow step is often followed by a fast one."""
FEWEST_BLOCKS: Final = 8
"""With fewer, no interval is as sure as it says."""
FEWEST: Final = SHORTEST * FEWEST_BLOCKS

Interval = tuple[float, float]


def blocks(values: Sequence[int]) -> list[float]:
    """The medians of blocks of values that follow each other, of nearly equal length."""
    count = min(BLOCKS, len(values) // SHORTEST)
    if not count:
        return []
    ends = [len(values) * place // count for place in range(count + 1)]
    return [float(median(values[begin:end])) for begin, end in pairwise(ends)]


def growth(before: Sequence[float], after: Sequence[float], checks: int = 1) -> Interval | None:
    """By what share values have grown, at least and at most; None of too few.

    Args:
        before: values that do not depend on each other, from 0 on.
        after: likewise, of the other run.
        checks: how many such intervals are judged together.
    """
    return _interval(before, after, checks, _ratio)


def excess(before: Sequence[float], after: Sequence[float], checks: int = 1) -> Interval | None:
    """By how much values after are larger than those before, at least and at most."""
    return _interval(before, after, checks, lambda first, second: second - first)


def _ratio(first: float, second: float) -> float:
    if first <= 0:
        return inf if second > 0 else 0.0
    return second / first - 1


def _interval(
    before: Sequence[float],
    after: Sequence[float],
    checks: int,
    pair: Callable[[float, float], float],
) -> Interval | None:
    several, others = len(before), len(after)
    if min(several, others) < FEWEST_BLOCKS:
        return None
    z = NormalDist().inv_cdf(1 - ERROR / checks / 2)
    middle = several * others / 2
    outside = floor(middle - z * sqrt(several * others * (several + others + 1) / 12))
    if outside < 1:
        return None
    pairs = sorted(pair(first, second) for first in before for second in after)
    return pairs[outside - 1], pairs[-outside]
