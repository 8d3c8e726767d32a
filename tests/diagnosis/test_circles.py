"""Who is odd among ranks that wait for each other, and where that is no matter of numbers."""

from __future__ import annotations

from diagnosis.scenes import Scene, only
from frtop_tui.diagnosis.report import exit_status


def test_one_against_three_that_need_each_other_is_the_odd_one() -> None:
    scene = Scene(4)
    scene.group("checkpoint", range(4), "checkpoint")
    scene.waits([0, 2, 3], "all_reduce", for_s=10)
    scene.waits([1], "barrier", for_s=10, group="checkpoint")
    found = scene.settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits) == ("cycle", (1,))
    assert verdict.parties == ((0, 2, 3), (1,))
    assert verdict.victims == "0,2-3"
    assert "only rank 1 went elsewhere" in verdict.why.text
    assert verdict.next.startswith("compare the calls of rank 1 with those of rank 0")
    assert exit_status(found) == 3


def test_most_are_not_right_where_the_one_is_awaited_by_few() -> None:
    """Rank 0 waits for rank 1 in their own group; that the others do not is no sign."""
    scene = Scene(4)
    scene.group("data", [0, 1], "data")
    scene.waits([0], "all_reduce", for_s=10, group="data")
    scene.waits([1, 2, 3], "all_reduce", for_s=10)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("cycle", ())


def test_who_has_not_called_new_group_is_suspected_in_time() -> None:
    scene = Scene(4)
    scene.in_pseudo([0, 1, 2], "new_group", 10)
    scene.waits([3], "all_reduce", for_s=10)
    found = scene.settle()
    # Of the group may be those only that make it, and slowly.
    assert (found.verdicts, found.health) == ((), "waiting")
    verdict = only(scene.settle(22))
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("cycle", (3,), "suspect")
    assert any("who has to call new_group is not known" in text for text in verdict.missing)
