"""What `make bench` prints of a step."""

from __future__ import annotations

import pytest

from bench import steps


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
