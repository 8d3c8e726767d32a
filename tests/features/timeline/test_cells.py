"""What a cell of a lane shows, against looking at every op."""

from __future__ import annotations

import random

import pytest

from features.timeline.drawn import Row, ops
from frtop_probe.ring.layout import Flag
from frtop_tui.features.timeline.cells import NOTHING, cells_of, lane_text
from frtop_tui.features.timeline.op_columns import OpColumns


def text(lane: OpColumns, begin: int, step: int, columns: int, waits: dict[int, int]) -> str:
    until = lane.known_until
    cells = cells_of(lane, begin, step, columns, until)
    return "".join(
        lane_text(lane, cells, begin, step, waits, first_known=lane.known_from, until_ns=until)
    )


@pytest.mark.parametrize(
    ("lane", "waits", "drawn"),
    [
        (ops([(1, 1, 20, 20), (1, 2, 60, 5)]), {}, "  AA  A "),
        (ops([(1, 1, 20, 0)], until=50), {}, "  AAA··"),  # pending up to when it was last seen
        (ops([(1, 9, 20, 10)], first=9), {}, "··A "),  # before the oldest op of a ring
        (ops([(1, 1, 20, 30)], flags=int(Flag.LATE)), {}, "  A~~ "),  # its end is an upper bound
        (ops([(1, 1, 20, 50)]), {0: 50}, "  ▒▒▒AA "),  # until the last rank came
    ],
)
def test_letters_stand_where_ops_are_and_gaps_are_empty(
    lane: OpColumns, waits: dict[int, int], drawn: str
) -> None:
    assert text(lane, 0, 10, len(drawn), waits) == drawn


def test_a_long_op_is_drawn_though_many_short_ones_follow() -> None:
    rows: list[Row] = [(2, 1, 0, 1000), *((1, n, n * 10, 1) for n in range(1, 50))]
    lane = ops(rows)
    cells = cells_of(lane, 500, 100, 4, 10**11)
    assert cells.positions == [0] * 4
    assert cells.begun == [0] * 4
    assert cells_of(lane, 200, 100, 2, 10**11).begun == [10, 10]


@pytest.mark.parametrize("seed", range(8))
def test_of_many_ops_in_a_cell_the_one_is_shown_that_takes_most_of_it(seed: int) -> None:
    random_ = random.Random(seed)
    rows: list[Row] = []
    at = 0
    for number in range(1, 200):
        at += random_.randrange(1, 40)
        rows.append((1 + number % 2, number, at, random_.choice((1, 5, 30, 400))))
    lane = ops(rows)
    step = random_.choice((3, 17, 90))
    begin = random_.randrange(0, at)
    cells = cells_of(lane, begin, step, 60, at)
    for column, position in enumerate(cells.positions):
        left = begin + column * step
        right = min(left + step, at)
        parts = [
            min(end, right) - max(issued, left)
            for issued, end in zip(lane.issued, lane.end, strict=True)
            if issued < right and end > left
        ]
        if left >= at or not parts:
            assert position == NOTHING
            continue
        # Of ops that began in the cell and last beyond it, the longest may be another one.
        began = [i for i in lane.issued if left <= i < right]
        shown = min(lane.end[position], right) - max(lane.issued[position], left)
        assert shown == cells.taken[column]
        assert shown == max(parts) or len(began) > 1
        assert cells.begun[column] == len(began)
