"""Lines are cut, wrapped and compared."""

from __future__ import annotations

from frtop_tui.widgets.spans import changed_columns, clip, fit, spread, text_of, width_of, wrap


def test_text_is_fitted_by_cells_not_characters() -> None:
    assert fit("abc", 5) == "abc  "
    assert fit("abc", 5, right=True) == "  abc"
    assert fit("abcdef", 4) == "abc~"
    assert width_of(((fit("日本語データ", 7), ""),)) == 7


def test_a_clipped_line_ends_with_a_tilde() -> None:
    line = (("rank 37", "strong"), (" late", "late"))
    assert text_of(clip(line, 80)) == "rank 37 late"
    assert text_of(clip(line, 10)) == "rank 37 l~"
    assert text_of(clip(line, 7)) == "rank 3~"


def test_spread_clips_the_left_side() -> None:
    line = spread((("left side", ""),), (("right", ""),), 12)
    assert text_of(line) == "left ~ right"


def test_wrapped_text_is_indented_and_ranges_do_not_break() -> None:
    rows = wrap("ranks 0-36,38-63 wait for it", 22, first=("why   ", "dim"))
    assert [text_of(row) for row in rows] == ["why   ranks 0-36,38-63", "      wait for it"]


def test_only_changed_cells_are_repainted() -> None:
    old = (("37 ", ""), ("late ", "late"), ("4m11s", ""))
    new = (("37 ", ""), ("late ", "late"), ("4m12s", ""))
    assert changed_columns(old, new) == [(8, 5)]
    assert changed_columns(old, old) == []
    assert changed_columns(old, (("37 ", ""), ("late ", "dim"), ("4m12s", ""))) == [(3, 5), (8, 5)]


def test_a_span_of_another_width_repaints_the_rest_of_its_line() -> None:
    assert changed_columns((("ab", ""), ("cd", "")), (("abc", ""), ("d", ""))) == [(0, 4)]
    assert changed_columns((("ab", ""), ("cd", "")), (("ab", ""),)) == [(2, 2)]
    assert changed_columns((), (("ab", ""),)) == [(0, 2)]
