"""What is shown of groups in which ranks wait."""

from __future__ import annotations

from diagnosis.scenes import Scene, one_sleeps


def test_groups_show_who_waits_and_who_is_late() -> None:
    scene = one_sleeps()
    group = scene.settle().groups[0]
    assert (group.number, group.waiting, group.late) == (8, (0, 1, 3), (2,))


def test_nobody_is_late_where_nobody_waits() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=0.1)
    group = scene.settle(0).groups[0]
    assert (group.number, group.late) == (8, ())
