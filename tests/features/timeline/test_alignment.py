"""Queues side by side: what is aligned with what, and what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.timeline.drawn import GROUP, REDUCE, SITE, Row, lane
from frtop_probe import wire
from frtop_tui.features.timeline.alignment import (
    NO_MEMBER,
    NOT_THERE,
    OLDER,
    UNREAD,
    Alignment,
    aligned,
)
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.op_columns import columns_of
from history_rows import HistoryRow, packed


def numbers(found: Alignment) -> list[tuple[str, int]]:
    return [(group[0], number) if group is not None else ("", 0) for group, number in found.keys]


def columns(found: Alignment) -> list[list[int]]:
    return [list(column) for column in found.cells]


def test_ops_of_one_number_stand_beside_each_other() -> None:
    rows: list[Row] = [(1, 1, 100, 5), (2, 1, 150, 5), (1, 2, 200, 5)]
    late = [(group, number, issued + 90, took) for group, number, issued, took in rows]
    found = aligned([lane(0, rows), lane(1, late)], 100)
    assert numbers(found) == [("0", 1), ("1", 1), ("0", 2)]
    assert columns(found) == [[0, 1, 2], [0, 1, 2]]
    assert found.first_difference() is None


def test_ops_of_a_group_of_its_own_do_not_disturb_the_order() -> None:
    first = lane(0, [(1, 1, 100, 5), (2, 1, 110, 5), (2, 2, 120, 5), (1, 2, 200, 5)])
    third = lane(3, [(1, 1, 190, 5), (1, 2, 195, 5)])
    found = aligned([first, third], 100)
    assert not found.out_of_order
    assert columns(found)[1] == [0, NO_MEMBER, NO_MEMBER, 1]


def test_the_first_difference_is_the_op_that_one_has_not_issued() -> None:
    rows: list[Row] = [(1, 1, 100, 5), (1, 2, 200, 0)]
    found = aligned([lane(0, rows), lane(1, rows[:1])], 100)
    assert columns(found)[1] == [0, NOT_THERE]
    first = found.first_difference()
    assert first is not None
    assert (first.row, first.fields, first.legal) == (1, ("missing",), False)


def test_who_is_on_the_way_to_an_op_is_no_difference_yet() -> None:
    rows: list[Row] = [(1, 1, 100, 5), (1, 2, 200, 0)]
    lanes = [lane(0, rows), lane(1, rows[:1])]
    late = [replace(one, ops=replace(one.ops, known_until=2_000_000_000)) for one in lanes]
    found = aligned(late, 100)
    assert columns(found)[1] == [0, NOT_THERE]
    differing = found.differing(1)
    assert differing is not None
    assert (differing.fields, differing.legal) == (("missing",), True)
    assert found.first_difference() is None


def test_what_was_issued_after_a_history_was_read_is_not_missing_in_it() -> None:
    rows: list[Row] = [(1, 1, 100, 5), (1, 2, 200, 0)]
    early = lane(1, rows[:1])
    found = aligned([lane(0, rows), replace(early, ops=replace(early.ops, known_until=150))], 100)
    assert columns(found)[1] == [0, UNREAD]
    assert found.differing(1) is None


def test_what_a_ring_has_no_more_is_not_called_missing() -> None:
    rows: list[Row] = [(1, 1, 100, 5), (1, 2, 200, 5)]
    younger = lane(1, rows[1:])
    unseen = lane(2, [], front=2)
    unreachable = Lane(3, "n3", groups={1: GROUP})
    found = aligned([lane(0, rows), younger, unseen, unreachable], 100)
    assert columns(found)[1] == [OLDER, 0]
    assert columns(found)[2] == columns(found)[3] == [OLDER, OLDER]
    assert found.first_difference() is None


def test_another_order_is_a_difference() -> None:
    one: list[Row] = [(1, 1, 100, 5), (2, 1, 110, 5), (1, 2, 120, 5)]
    other: list[Row] = [(2, 1, 100, 5), (1, 1, 110, 5), (1, 2, 120, 5)]
    found = aligned([lane(0, one), lane(1, other)], 100)
    assert len(found) == 3
    first = found.first_difference()
    assert first is not None
    assert first.fields == ("order",)


@pytest.mark.parametrize(
    ("signature", "site", "field", "legal"),
    [
        (wire.Signature("broadcast", inputs=REDUCE.inputs), SITE, "kind", False),
        (
            wire.Signature("all_reduce", "sum", inputs=(wire.TensorSpec("float16", (8,)),)),
            SITE,
            "dtype",
            False,
        ),
        (
            wire.Signature("all_reduce", "sum", inputs=(wire.TensorSpec("float32", (9,)),)),
            SITE,
            "size",
            False,
        ),
        (REDUCE, wire.Site("/src/train.py", 11, "train"), "line", True),
    ],
)
def test_what_differs_is_named(
    signature: wire.Signature, site: wire.Site, field: str, legal: bool
) -> None:
    sent = wire.History((signature,), (site,), packed([HistoryRow(1, 1, 1, 1, 1, 100, 5, 7)]))
    other = Lane(1, "n1", columns_of(sent, known_until=10**9), 0, 0, {1: GROUP}, {1: 1})
    found = aligned([lane(0, [(1, 1, 100, 5)]), other], 100)
    differing = found.differing(0)
    assert differing is not None
    assert (differing.fields, differing.legal) == ((field,), legal)
    assert (found.first_difference() is None) == legal


def test_a_number_that_is_there_twice_ends_the_merge_all_the_same() -> None:
    rows: list[Row] = [(1, 1, 100, 5), (1, 1, 110, 5), (1, 2, 120, 5), (1, 1, 130, 5)]
    found = aligned([lane(0, rows), lane(1, [*rows, *rows])], 100)
    assert len(found) < 20


def test_only_the_newest_ops_are_aligned() -> None:
    rows: list[Row] = [(1, n, n * 10, 5) for n in range(1, 50)]
    found = aligned([lane(0, rows), lane(1, rows)], 5)
    assert [number for _, number in numbers(found)] == [45, 46, 47, 48, 49]
