"""Lists of ranks as text, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe.ring.rank_ranges import fold, unfold


@given(st.sets(st.integers(0, 300)))
def test_unfold_is_the_inverse_of_fold(ranks: set[int]) -> None:
    assert unfold(fold(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize("text", ["3-1", "a", "0-99999999", "1--2"])
def test_invalid_lists_of_ranks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        unfold(text)
