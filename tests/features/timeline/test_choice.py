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
    frame = slow((10,), range(8, 12))
    found = to_compare(frame, (), None)
    assert found == [10, 8, 9, 11, 0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15]
    # The rank under the cursor stays first, and marked ranks are the only ones.
    assert to_compare(slow((10, 11), range(8, 12)), (), 11)[:4] == [11, 8, 9, 10]
    assert to_compare(frame, (3, 9), 10) == [3, 9]
    ranks, words = ranks_in_lanes(frame, ())
    assert ranks[:4] == [10, 8, 9, 11]
    assert words == "culprits first"
