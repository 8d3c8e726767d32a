"""The statistics behind `make bench`, and what it prints of them."""

from __future__ import annotations

import math
import random

import pytest

from bench import busy_thread, steps
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


def test_the_interval_is_the_narrowest_with_its_confidence() -> None:
    for count in range(6, 200, 7):
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


def test_a_row_has_difference_percent_and_the_cost_of_an_op() -> None:
    off = [10.0] * 20
    text = steps.row([value + 0.12 for value in off], off, 6)
    assert text.split() == [
        "10.00", "ms", "+120", "(+120", "…", "+120)", "+1.20", "(+1.20", "…", "+1.20)",
        "+20.0", "20",
    ]  # fmt: skip


@pytest.mark.parametrize(("pairs", "interval"), [(5, "(-inf … +inf)"), (6, "(+0 … +0)")])
def test_a_few_pairs_give_no_interval(pairs: int, interval: str) -> None:
    assert interval in steps.row([10.0] * pairs, [10.0] * pairs, 6)


def test_a_step_without_ops_has_no_cost_of_an_op() -> None:
    assert "+0.0" in steps.row([11.0] * 6, [10.0] * 6, 0)


def test_percentiles_are_values_that_were_seen() -> None:
    assert busy_thread.percentiles([float(n) for n in range(1001)]) == (500.0, 990.0, 999.0)
    assert busy_thread.percentiles([7.0]) == (7.0, 7.0, 7.0)


def test_delays_are_added_pair_by_pair() -> None:
    off = [busy_thread.Block([20.0, 40.0], 5.0 + n, 0.0) for n in range(8)]
    on = [busy_thread.Block([30.0, 80.0], 6.0 + n, 0.0) for n in range(8)]
    text = busy_thread.added(on, off)
    assert text.startswith("mean +25 (+25 … +25), p50 +10, ")
    assert text.endswith("step +1.00 (+1.00 … +1.00) ms, 8 pairs")
