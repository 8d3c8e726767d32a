"""The list of process groups, and the places of ranks in the grid."""

from __future__ import annotations

from diagnosis.scenes import Scene
from frtop_tui.widgets.grid_layout import lay_out, natural_key, short_hosts
from frtop_tui.widgets.groups import group_line, group_rows, group_state, with_rank_details
from frtop_tui.widgets.spans import text_of, width_of
from screens import mesh_scenes, scenes


def test_idle_groups_of_a_kind_fold_and_waiting_groups_come_first() -> None:
    rows = group_rows(scenes.hung().groups)
    assert [row.label for row in rows] == ["dp:0", "tp:* x8"]
    assert group_state(rows[0], scenes.NOW) == ("1 late, 63 wait", "late")
    assert group_state(group_rows(scenes.healthy().groups)[0], scenes.NOW) == ("active", "moving")


def test_the_group_of_a_straggler_is_the_first_line_of_its_own() -> None:
    frame = mesh_scenes.mesh_slow_told()
    (verdict,) = frame.verdicts
    rows = group_rows(frame.groups, frame.verdicts)
    assert rows[0].first.key == verdict.group
    assert group_state(rows[0], frame.now_ns) == (f"slow: rank {verdict.culprits[0]}", "late")
    assert sum(len(row.groups) for row in rows) == len(frame.groups)


def test_a_group_whose_ranks_wait_in_different_ops_names_all_of_them() -> None:
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.waits([2], "barrier", for_s=10)
    frame = scene.settle()
    (row,) = with_rank_details(group_rows(frame.groups), frame.ranks)
    wide, narrow = (group_line(row, 10, width, frame.now_ns) for width in (80, 62))
    assert "3 all_reduce, 1 barrier" in text_of(wide)
    assert "4 wait" in text_of(wide)
    assert "different ops" in text_of(narrow)
    assert width_of(narrow) <= 62


def test_hosts_lose_their_domain_only_while_names_differ() -> None:
    assert short_hosts(["a.x.org", "b.x.org"]) == {"a.x.org": "a", "b.x.org": "b"}
    assert short_hosts(["a.x.org", "a.y.org"]) == {"a.x.org": "a.x.org", "a.y.org": "a.y.org"}
    assert sorted(["n10", "n9"], key=natural_key) == ["n9", "n10"]
    assert sorted(["x\u00b2", "9" * 5000, "x1"], key=natural_key) == ["9" * 5000, "x1", "x\u00b2"]


def test_every_rank_has_its_own_position_in_the_grid() -> None:
    for ranks_per_host, width in ((8, 78), (8, 58), (4, 20), (200, 78), (1, 10)):
        hosts = {f"node{h}": range(h * ranks_per_host, (h + 1) * ranks_per_host) for h in range(20)}
        layout = lay_out(hosts, width)
        assert len(set(layout.positions.values())) == 20 * ranks_per_host
        assert max(x for _, x in layout.positions.values()) < width
