"""What is shown of groups in which ranks wait."""

from __future__ import annotations

from diagnosis.scenes import Scene, one_sleeps
from frtop_probe import wire
from frtop_tui.diagnosis.blocked.rank_index import _COUNTERS
from frtop_tui.job.model import Rank


def test_groups_show_who_waits_and_who_is_late() -> None:
    scene = one_sleeps()
    group = scene.settle().groups[0]
    assert (group.number, group.waiting, group.late) == (8, (0, 1, 3), (2,))


def test_nobody_is_late_where_nobody_waits() -> None:
    scene = Scene(4)
    scene.does([0, 1, 3], "all_reduce", ago=0.1)
    group = scene.settle(0).groups[0]
    assert (group.number, group.late) == (8, ())


def test_what_changes_in_every_update_is_named_as_its_types_name_it() -> None:
    kinds = (Rank, wire.RankStatus, wire.Process)
    assert {name for kind in kinds for name in kind.__struct_fields__} >= _COUNTERS
