"""The cost of a live screen: repainted cells are counted, times and bytes printed."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.rank_grid import RankGrid
from frtop_tui.widgets.rank_table import RankTable

from . import rare_scenes, scenes
from .driving import driven


def painted(view: LineView) -> int:
    before, view.cells_repainted = view.cells_repainted, 0
    return before


def with_states(frame: Frame, changed: dict[int, str]) -> Frame:
    ranks = dict(frame.ranks)
    for number, state in changed.items():
        ranks[number] = replace(ranks[number], state=state)
    return replace(frame, ranks=ranks)


async def test_an_equal_frame_repaints_nothing() -> None:
    async with driven(scenes.hung(), size=(200, 60)) as app:
        for key in ("1", "2", "3", "4", "1", "t", "1", "enter"):
            await app.press(key)
            await app.sees("64/64 reporting")
            views = list(app.screen.query(LineView))
            for view in views:
                painted(view)
            await app.give(replace(scenes.hung()))
            assert {view.id: painted(view) for view in views} == {view.id: 0 for view in views}


async def test_what_changes_repaints_only_its_cells() -> None:
    async with driven(scenes.healthy()) as app:
        grid = app.screen.query_one(RankGrid)
        painted(grid)
        await app.give(with_states(scenes.healthy(), {3: "late", 9: "blocked", 60: "dead"}))
        assert painted(grid) == 3
        await app.give(scenes.hung())
        await app.press("2", "less_than_sign")
        table = app.screen.query_one(RankTable)
        painted(table)
        await app.give(with_states(scenes.hung(), {2: "silent"}))
        # The state, and the heartbeat, which is shown in the state's tone.
        assert painted(table) == 2


async def test_changes_out_of_sight_repaint_nothing() -> None:
    async with driven(rare_scenes.many()) as app:
        await app.press("2", "less_than_sign")
        table = app.screen.query_one(RankTable)
        painted(table)
        await app.give(with_states(rare_scenes.many(), dict.fromkeys(range(2000, 2400), "late")))
        assert painted(table) == 0


async def test_thousands_of_live_ranks_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [rare_scenes.many(4096, tick) for tick in range(8)]
    async with driven(frames[0], size=(160, 50)) as app:
        # the grid: two hundred letters in all places; then rows in place
        for keys in (("1",), ("2", "less_than_sign")):
            await app.give(frames[0])
            await app.press(*keys)
            await app.sees("4096/4096 reporting")
            for view in app.screen.query(LineView):
                painted(view)
            sent: list[str] = []
            spent, waited = [], []
            with monkeypatch.context() as patch:
                # A headless app draws nothing; let it draw into a list instead of a terminal.
                assert app.app._driver is not None
                patch.setattr(type(app.app), "is_headless", property(lambda _: False))
                patch.setattr(app.app._driver, "write", sent.append)
                for frame in frames[1:]:
                    begin = time.process_time()
                    await app.give(frame)
                    spent.append(time.process_time() - begin)
                    begin = time.process_time()
                    await app.drawn()  # now there is nothing to draw
                    waited.append(time.process_time() - begin)
            middle, idle = (sorted(times)[len(times) // 2] * 1e3 for times in (spent, waited))
            size = sum(map(len, sent)) / len(spent)
            own = f"{idle:.1f} of them the test's own waits"
            print(f"4,096 ranks, {keys}: {middle:.1f} ms CPU, {own}, {size:.0f} bytes a tick")
            cells = sum(painted(view) for view in app.screen.query(LineView))
            assert 0 < cells < len(spent) * 900
            assert size < 4096
