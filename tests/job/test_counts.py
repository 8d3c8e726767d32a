"""Counts in words: one of something is never in the plural."""

from __future__ import annotations

import pytest

from frtop_tui.job.units import counted, how_often


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "rank", "0 ranks"),
        (1, "rank", "1 rank"),
        (1024, "rank", "1,024 ranks"),
        (1, "more op", "1 more op"),
        (2, "process", "2 processes"),
        (3, "batch", "3 batches"),
    ],
)
def test_one_is_in_the_singular(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said


@pytest.mark.parametrize(("number", "said"), [(1, "once"), (2, "2 times"), (1000, "1,000 times")])
def test_how_often_something_was(number: int, said: str) -> None:
    assert how_often(number) == said
