"""The filter syntax."""

from __future__ import annotations

import pytest

from frtop_tui.screens.filter import FilterError, matching

from . import scenes


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("", list(range(64))),
        ("rank:0-2,63", [0, 1, 2, 63]),
        ("5,7", [5, 7]),
        ("late", [37]),
        ("late,dead", [37]),
        ("!blocked", [37]),
        ("host:node4", list(range(32, 40))),
        ("host:node[0,7]", [*range(8), *range(56, 64)]),
        ("host:node4 !late", [32, 33, 34, 35, 36, 38, 39]),
        ("group:tp:4", list(range(32, 40))),
        ("group:tp 1-2", [1, 2]),
        ("group:nosuch", []),
        ("!host:node[1-7] !rank:1-7", [0]),
        ("marked", [3]),
        ("silent", []),
        ("!", list(range(64))),
    ],
)
def test_a_filter_selects_ranks(text: str, ranks: list[int]) -> None:
    assert [rank.rank for rank in matching(text, scenes.hung(), {3})] == ranks


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lat", "did you mean `late`"),
        ("host:n[0-999999999]", "is not a list of hosts"),
        ("xyzzy", "known are late"),
        ("node:4", "unknown field `node`"),
        ("rank:a-b", "not a list of ranks"),
        ("rank:9-1", "not a list of ranks"),
        ("rank:0-99999999", "not a list of ranks"),
        ("host:node[0-", "not a list of hosts"),
    ],
)
def test_an_invalid_filter_names_a_valid_one(text: str, sentence: str) -> None:
    with pytest.raises(FilterError, match=sentence):
        matching(text, scenes.hung())
