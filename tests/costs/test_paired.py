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
     (100, 40, 61), (1000, 469, 532)],
)  # fmt: skip
def test_the_ends_are_the_order_statistics_of_published_tables(
    count: int, lowest: int, highest: int
) -> None:
    found = median_interval(random.Random(1).sample(range(1, count + 1), count))
    assert found == Interval(lowest, (count + 1) / 2, highest)


def test_too_few_values_say_little_about_the_true_median() -> None:
    for values in ([3.0], [1.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]):
        assert median_interval(values) == Interval(-math.inf, 3.0, math.inf)


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
    assert "(-inf … +inf)" in steps.row([10.0] * 5, [10.0] * 5, 6)
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
