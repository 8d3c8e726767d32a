"""The list of process groups."""

from __future__ import annotations

from frtop_tui.widgets.groups import group_rows, group_state

from . import scenes


def test_idle_groups_of_a_kind_fold_and_waiting_groups_come_first() -> None:
    rows = group_rows(scenes.hung().groups)
    assert [row.label for row in rows] == ["dp:0", "tp:* x8"]
    assert group_state(rows[0], scenes.NOW) == ("1 late, 63 wait", "late")
    assert group_state(group_rows(scenes.healthy().groups)[0], scenes.NOW) == ("active", "moving")
