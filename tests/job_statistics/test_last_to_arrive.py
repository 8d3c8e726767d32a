"""Who is said to come last: the rule that screens and text share."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow
from frtop_tui.statistics.last_to_arrive import EVEN, NOT_SAMPLED, WITHIN_ERROR, last_to_arrive

ALIKE = tuple(GroupKey(f"t{n}", f"{8 * n}-{8 * n + 7}") for n in range(8))
ROW = CallRow("all_reduce", (GroupKey("dp", "0-63"),), None, 8, tuple(range(64)), sampled=100)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (replace(ROW, last=((12, 94), (3, 6))), "rank 12: 94 %"),
        (replace(ROW, last=tuple((rank, 2) for rank in range(50))), EVEN),
        (replace(ROW, last=()), WITHIN_ERROR),
        (replace(ROW, sampled=0), NOT_SAMPLED),
        (replace(ROW, sampled=4, last=((3, 4),)), "4 sampled"),
        (replace(ROW, ranks=(0, 1), sampled=64, last=((0, 40), (1, 24))), EVEN),
        (replace(ROW, ranks=(0, 1), sampled=64, last=((0, 60), (1, 4))), "rank 0: 94 %"),
        # Its own group has an eighth of the ops.
        (replace(ROW, groups=ALIKE, last=((45, 12),)), "rank 45: 96 %"),
        (replace(ROW, groups=ALIKE, sampled=512, last=tuple((r, 8) for r in range(64))), EVEN),
    ],
)
def test_a_rank_is_named_where_chance_would_not_have_it(row: CallRow, words: str) -> None:
    assert last_to_arrive([row]).words == words


def test_lines_of_several_groups_are_taken_together() -> None:
    tensor = replace(ROW, groups=ALIKE, last=((45, 12),))
    even = replace(ROW, last=tuple((rank, 2) for rank in range(50)))
    found = last_to_arrive([tensor, replace(tensor, last=((45, 12),))])
    assert (found.rank, found.words) == (45, "rank 45: 96 %")
    assert last_to_arrive([even, even]).words == EVEN
    assert last_to_arrive([]).words == NOT_SAMPLED


@pytest.mark.parametrize("members", [2, 8, 512])
def test_chance_names_nobody(members: int) -> None:
    random_ = random.Random(members)
    named = 0
    for _ in range(200):
        last = [random_.randrange(members) for _ in range(40)]
        counts = sorted(((last.count(rank), rank) for rank in set(last)), reverse=True)
        row = replace(
            ROW,
            ranks=tuple(range(members)),
            sampled=40,
            last=tuple((rank, count) for count, rank in counts),
        )
        named += last_to_arrive([row]).rank is not None
    assert named <= 2
