"""Which ranks stand beside a culprit."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from diagnosis.scenes import Scene
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame, Slowness, Verdict, Why
from frtop_tui.features.timeline.choice import ranks_in_lanes, to_compare
from frtop_tui.job.naming import GroupKey

PAIRS = 4


def slow(culprits: tuple[int, ...], group: Iterable[int], world: int = 16) -> Frame:
    """Four ranks of each host share a group; the verdict is about one of these groups."""
    scene = Scene(world)
    for first in range(0, world, PAIRS):
        scene.group(f"tp{first}", range(first, first + PAIRS), "tp")
    scene.settle()
    frame = Engine().judge(scene.frame()).frame
    members = fold(group)
    verdict = Verdict(
        "slow", "confirmed", "active", culprits, f"rank {culprits} is late", Why.of("unknown"),
        "", frozenset(range(world)) - {*culprits}, group=GroupKey("tp", members),
        slow=Slowness(10, 10, 1, 0, 0.1, world - 1, 0),
    )  # fmt: skip
    return replace(frame, verdicts=(verdict,))


def test_a_straggler_stands_beside_its_own_group_and_then_the_others_that_wait() -> None:
    found = to_compare(slow((10,), range(8, 12)), (), None)
    assert found[:4] == [10, 8, 9, 11]
    assert found[4:] == [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]


def test_the_rank_under_the_cursor_stays_first() -> None:
    assert to_compare(slow((10, 11), range(8, 12)), (), 11)[:4] == [11, 8, 9, 10]
    assert to_compare(slow((10,), range(8, 12)), (3, 9), 10) == [3, 9]


def test_lanes_have_the_same_ranks_first() -> None:
    ranks, words = ranks_in_lanes(slow((10,), range(8, 12)), ())
    assert ranks[:4] == [10, 8, 9, 11]
    assert words == "culprits first"
