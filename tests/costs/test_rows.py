"""What `make bench` prints of a step."""

from __future__ import annotations

import pytest

from bench import busy_thread, steps


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
