"""The overview: the grid draws what the verdict is about, and its culprit can be seen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_tui.widgets.grid_layout import lay_out
from frtop_tui.widgets.rank_grid import RankGrid
from frtop_tui.widgets.rank_table import most_relevant
from screens import mesh_scenes, scenes
from screens.driving import driven


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (200, 60)])
async def test_of_a_slow_job_the_grid_shows_own_time_and_its_straggler(
    size: tuple[int, int],
) -> None:
    frame = mesh_scenes.mesh_slow_told()
    (culprit,) = frame.verdicts[0].culprits
    async with driven(frame, size=size) as app:
        await app.sees("ranks by own time", f"rank {culprit} ", "more")
        grid = app.screen.query_one(RankGrid)
        row, _ = grid.grid_layout.positions[culprit]
        top = grid.scroll_offset.y
        await app.wait_for(
            lambda: top <= row < grid.scroll_offset.y + grid.scrollable_content_region.height,
            "the row of the culprit",
        )
        assert ("alarm" in [tone for text, tone in grid.row_line(row) if "2" in text]) == (
            grid.grid_layout.cell > 2
        )


async def test_without_statistics_its_straggler_has_a_letter_of_its_own() -> None:
    """For those without colour: it moves, as all ranks of a slow job do."""
    frame = replace(mesh_scenes.mesh_slow_told(), statistics=None)
    (culprit,) = frame.verdicts[0].culprits
    async with driven(frame, size=(120, 30)) as app:
        await app.sees("L  late 1", f"rank {culprit} ")
        grid = app.screen.query_one(RankGrid)
        row, _ = grid.grid_layout.positions[culprit]
        assert sum("L" in text for text, _ in grid.row_line(row)[1:]) == 1


async def test_a_lens_that_somebody_chose_stays() -> None:
    async with driven(mesh_scenes.mesh_slow_told()) as app:
        await app.sees("ranks by own time")
        await app.press("v")
        await app.sees("ranks by arrival skew")
        app.source.give(mesh_scenes.mesh_slow_told())
        app.app.tick()
        await app.drawn()
        await app.sees("ranks by arrival skew")


async def test_the_lenses_go_on_where_nothing_changes() -> None:
    frame = mesh_scenes.mesh_slow_told()  # of a file it is the same one at each tick
    grid = RankGrid(set())
    grid.show(frame)
    seen = []
    for _ in range(6):
        grid.action_lens()
        seen.append(grid.lens)
        grid.show(frame)
    assert seen == ["arrival skew", "device use", "state", "lag", "step time", "own time"]


def test_ranks_have_the_widest_cells_that_fit() -> None:
    hosts = {f"node{n}": range(8 * n, 8 * n + 8) for n in range(8)}
    cells = [lay_out(hosts, width, height).cell for width, height in
             ((78, 4), (78, 3), (78, 2), (78, 1), (58, 8), (40, 8), (20, 8), (10, 8))]  # fmt: skip
    assert cells == [4, 1, 1, 1, 4, 4, 1, 1]
    assert lay_out({"a": range(4096)}, 78, 20).cell == 1


def test_a_few_ranks_stand_for_those_that_are_alike() -> None:
    frame = scenes.hung()
    assert [one.rank for one in most_relevant(frame, 64)] == [37, 0, 1, 2, 3]
    amounts = {9: 5.0, 12: 7.0}
    assert [one.rank for one in most_relevant(frame, 64, amounts)] == [37, 12, 9, 0, 1]
