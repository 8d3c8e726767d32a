"""What pairs of measurements show: a median, and how far it can be trusted. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with its confidence interval; infinite ends if there are too few values."""

    low: float
    median: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Returns it in another unit; `factor` is positive."""
        return Interval(self.low * factor, self.median * factor, self.high * factor)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Returns the median of independent values, with a confidence interval for the true median.

    The interval comes from order statistics (the sign test turned round). It assumes no
    distribution, so outliers of a busy machine only widen it. It is at least as sure as requested.

    Args:
        values: at least one.
        confidence: between 0 and 1.
    """
    ordered = sorted(values)
    left_out = _left_out(len(ordered), (1 - confidence) / 2)
    if left_out < 0:
        return Interval(-math.inf, statistics.median(ordered), math.inf)
    return Interval(
        ordered[left_out], statistics.median(ordered), ordered[len(ordered) - 1 - left_out]
    )


def _left_out(count: int, tail: float) -> int:
    """Returns how many values at each end are outside; -1 if there are too few values.

    That is one less than the largest k for which fewer than k of `count` fair coins show heads
    with a probability of at most `tail`.
    """
    ways, below, at_most = 1, 0, Fraction(tail) * 2**count
    for heads in range(count):
        below += ways
        if below > at_most:
            return heads - 1
        ways = ways * (count - heads) // (heads + 1)
    return count - 1


def differences(with_it: Sequence[float], without: Sequence[float]) -> list[float]:
    """Returns the difference of each pair, in its unit."""
    return [a - b for a, b in zip(with_it, without, strict=True)]
