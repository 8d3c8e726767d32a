"""The statistics behind `make bench`: a median of differences, and its confidence interval."""

from __future__ import annotations

import math
import random

import pytest

from bench.paired import Interval, differences, median_interval


@pytest.mark.parametrize(
    ("count", "lowest", "highest"),
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (25, 8, 18), (50, 18, 33),
     (100, 40, 61)],
)  # fmt: skip
def test_the_ends_are_the_order_statistics_of_published_tables(
    count: int, lowest: int, highest: int
) -> None:
    found = median_interval(random.Random(1).sample(range(1, count + 1), count))
    assert found == Interval(lowest, (count + 1) / 2, highest)


@pytest.mark.parametrize(
    ("values", "median"), [([3.0], 3.0), ([1.0, 5.0], 3.0), ([1.0, 2.0, 3.0, 4.0, 5.0], 3.0)]
)
def test_too_few_values_say_little_about_the_true_median(
    values: list[float], median: float
) -> None:
    assert median_interval(values) == Interval(-math.inf, median, math.inf)


@pytest.mark.parametrize(
    ("confidence", "low", "high"), [(0.5, 3.0, 6.0), (0.9, 2.0, 7.0), (0.99, 1.0, 8.0)]
)
def test_more_confidence_is_a_wider_interval(confidence: float, low: float, high: float) -> None:
    found = median_interval([float(n) for n in range(1, 9)], confidence)
    assert (found.low, found.high) == (low, high)


def test_an_outlier_of_a_busy_machine_moves_nothing() -> None:
    quiet = [1.0 + n / 100 for n in range(30)]
    assert median_interval([*quiet[:-1], 1e6]) == median_interval(quiet)


@pytest.mark.parametrize("count", range(6, 200, 7))
def test_the_interval_is_the_narrowest_with_its_confidence(count: int) -> None:
    found = median_interval(range(count))
    left_out = int(found.low)
    assert _coverage(count, left_out) >= 0.95 > _coverage(count, left_out + 1)
    assert found.high == count - 1 - left_out


def _coverage(count: int, left_out: int) -> float:
    """How often the true median lies between these two values: the binomial sum."""
    inside: int = sum(math.comb(count, n) for n in range(left_out + 1, count - left_out))
    return inside / 2.0**count


def test_differences_are_those_of_pairs() -> None:
    assert differences([3.0, 5.0], [1.0, 6.0]) == [2.0, -1.0]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        differences([1.0], [1.0, 2.0])
