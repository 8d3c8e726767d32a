"""Lists of ranks as text, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.ring.rank_ranges import LONG, fold, fold_short, unfold


@given(st.sets(st.integers(0, 300)))
def test_unfold_is_the_inverse_of_fold(ranks: set[int]) -> None:
    assert unfold(fold(ranks)) == unfold(fold_short(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(3, 99_996, 8), "3-99995/8"),
        (range(100_000), "0-99999"),
        (range(0, 64, 8), "0,8,16,24,32,40,48,56"),  # short enough for people and older readers
    ],
)
def test_long_lists_of_evenly_spaced_ranks_are_short(ranks: range, text: str) -> None:
    assert fold_short(ranks) == text
    assert unfold(text) == tuple(ranks)


def test_long_lists_of_other_ranks_are_written_in_full() -> None:
    uneven = [*range(0, 1000, 8), 1001]
    assert fold_short(uneven) == fold(uneven)
    assert len(fold(uneven)) > LONG


@pytest.mark.parametrize(
    "text", ["3-1", "a", "0-99999999", "1--2", "0-8/0", "8-0/-1", "0-8/", "4/2"]
)
def test_invalid_lists_of_ranks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        unfold(text)
