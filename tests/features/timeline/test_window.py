"""Times and columns of a timeline, where it begins and whose lanes it has."""

from __future__ import annotations

import pytest

from features.timeline.drawn import GROUP, Row, history, lane
from frtop_probe import wire
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.letters import letter_of
from frtop_tui.features.timeline.op_columns import columns_of
from frtop_tui.features.timeline.window import (
    TimeWindow,
    first_window,
    next_op,
    next_step,
    window_of,
)

MS = 1_000_000


def test_a_window_is_as_narrow_as_holds_the_time() -> None:
    found = window_of(0, 1_900 * MS, 100)
    assert found.step_ns == 20 * MS
    assert found.end_ns == 1_900 * MS
    assert found.column(1_900 * MS - 1) == 99
    assert window_of(5, 5, 0).columns == 1


def test_zooming_keeps_what_is_under_the_cursor() -> None:
    window = TimeWindow(0, 20 * MS, 100)
    at = window.time(30) + 10 * MS
    for by in (1, 1, 3, -2, -9, 20, -60):
        window = window.zoomed(by, 30)
        assert 1_000 <= window.step_ns <= 50_000 * 10**9
        assert window.column(at) == 30


def test_a_jump_shows_its_target_with_a_margin() -> None:
    window = TimeWindow(0, MS, 100)
    assert window.showing(50 * MS, 8) == window
    assert window.showing(500 * MS, 8).column(500 * MS) == 91
    assert window.showing(-500 * MS, 8).column(-500 * MS) == 8


def test_the_first_window_has_all_of_a_wait_and_what_was_before_it() -> None:
    rows: list[Row] = [(1, n, n * MS, MS // 2) for n in range(1, 100)]
    waits = lane(0, [*rows, (1, 100, 100 * MS, 0)])
    found = first_window([waits, lane(1, rows)], 100)
    assert found is not None
    assert found.begin_ns < 80 * MS
    assert found.end_ns >= 1000 * MS
    assert first_window([lane(0, [])], 100) is None


def test_of_ranks_that_ended_long_ago_their_last_ops_are_in_view() -> None:
    rows: list[Row] = [(1, n, n * 1000, 500) for n in range(1, 100)]
    found = first_window([lane(0, rows)], 100)
    assert found is not None
    assert found.end_ns < 10 * MS


def test_jumps_go_from_op_to_op_of_a_group_and_from_step_to_step() -> None:
    rows: list[Row] = [(1, 1, 10, 1), (2, 1, 20, 1), (1, 2, 30, 1)]
    marks = tuple(wire.Mark("step", n * 10, n * 10 + 10, n) for n in range(3))
    ops = columns_of(history(rows, marks=marks), known_until=100)
    one = Lane(0, "n0", ops, 1000, 0, {1: GROUP})
    assert next_op(one, 0, 1, 1) == 2
    assert next_op(one, 2, -1, 1) == 0
    assert next_op(one, 2, 1, 1) is None
    assert next_op(one, 0, 1, None) == 1
    assert next_step(one, 1010, 1) == 1020
    assert next_step(one, 1020, -1) == 1010
    assert next_step(one, 1030, 1) is None


@pytest.mark.parametrize(
    ("kind", "letter"),
    [
        ("all_reduce", "A"),
        ("_allgather_base", "G"),
        ("reduce_scatter_tensor", "S"),
        ("reduce", "R"),
        ("scatter", "D"),
        ("irecv", "<"),
        ("coalesced", "X"),
        ("", "?"),
    ],
)
def test_each_kind_has_its_letter(kind: str, letter: str) -> None:
    assert letter_of(kind) == letter
