"""From a slow verdict by keys alone to the straggler's lane, its statistics, host and gauges.

The verdict is of scripted ranks behind agents' real messages and sockets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import pytest
import textual.app
import textual.pilot

from frtop_tui.app import FrtopApp
from frtop_tui.connect.live import LiveSource
from frtop_tui.demo.scripted.job import ScriptedJob
from frtop_tui.demo.scripted.script import SECOND
from frtop_tui.features.statistics.rows import StatisticsRow
from frtop_tui.features.statistics.table import CallStatisticsTable
from frtop_tui.features.statistics.view import StatisticsScreen
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.waits import WaitsScreen
from screens.driving import Driven, all_handled, driven
from screens.mesh_scenes import mesh_slow_told
from screens.statistics_scenes import straggling

with_timeline = pytest.mark.skipif(
    find_spec("frtop_tui.features.timeline") is None, reason="there is no timeline"
)
RANKS = 16
SLOW_FOR_S = 60


@contextmanager
def slow_job(ranks: int = RANKS) -> Iterator[tuple[int, LiveSource]]:
    """A job that has been slow for a while: its straggler, and an operator that connects."""
    with ScriptedJob(ranks, "slow") as job:
        before = SLOW_FOR_S * SECOND
        job.script = replace(job.script, begin_ns=job.script.begin_ns - before)
        source = LiveSource(agents=job.start())
        try:
            yield job.script.culprit, source
        finally:
            source.close()


@asynccontextmanager
async def driven_live(source: LiveSource, size: tuple[int, int]) -> AsyncIterator[Driven]:
    app = FrtopApp(source, auto_capture=False)
    with (
        patch.object(textual.app, "wait_for_idle", all_handled),
        patch.object(textual.pilot, "wait_for_idle", all_handled),
    ):
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Driven(app, source, pilot)  # type: ignore[arg-type]  # no frames are given


@with_timeline
@pytest.mark.long
async def test_keys_alone_lead_from_the_verdict_to_lane_statistics_host_and_gauges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FRTOP_KEY_FILE", "")  # the job sets it, and it is put back
    with slow_job() as (straggler, source):
        host = f"node{straggler // 8}"
        async with driven_live(source, (120, 40)) as app:
            await app.sees("slow · confirmed", f"rank {straggler} ({host}", "power brake")

            await app.press("T")  # its lane is the first, those of its group follow
            await app.sees("arrived last, 6.", "stands still")
            timeline: Any = app.screen
            assert timeline.crumb == "timeline"
            assert timeline.subject == straggler
            assert timeline.rows.ranks[0] == straggler
            assert {one // 8 for one in timeline.rows.ranks[:8]} == {straggler // 8}

            await app.press("o")  # who came when to that op: the straggler is the last of eight
            await app.sees("one op, by order of arrival")
            assert timeline.rows.ranks[-1] == straggler
            await app.press("escape", "5")
            await app.sees(f"rank {straggler}: 100 %", "where a step goes")
            assert app.screen.subject == straggler

            await app.press("enter")
            await app.sees(f"rank {straggler}  {host}", "1,110 MHz", "slowed by power brake")

            await app.press("3", "space")
            await app.sees(f"─ {host} ─", f"gpu{straggler % 8}: 1,110 of 1,980 MHz", "▇▇▇")
            assert app.screen.subject is None
            await app.press("enter")
            await app.sees(f"host:{host}", f"{straggler}")


@with_timeline
@pytest.mark.long
async def test_statistics_and_timeline_of_a_mesh_lead_to_the_straggler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FRTOP_KEY_FILE", "")  # the job sets it, and it is put back
    with slow_job(128) as (straggler, source):
        async with driven_live(source, (120, 40)) as app:
            await app.sees("slow · confirmed", f"rank {straggler}")
            await app.press("5")
            await app.sees("└ tp:10", f"rank {straggler}: 100 %")
            assert _row_under_the_cursor(app).group == "tp:10"
            assert app.screen.subject == straggler
            await app.press("T")
            await app.sees("timeline of ranks of tp:10", "· tp:10 ·", "arrived last, 6.")
            assert app.screen.subject == straggler


def _row_under_the_cursor(app: Driven) -> StatisticsRow:
    assert isinstance(app.screen, StatisticsScreen)
    row = app.screen.table.chosen
    assert isinstance(row, StatisticsRow)
    return row


async def test_statistics_of_a_mesh_begin_where_the_straggler_is_late_by_itself() -> None:
    """All of its stage come last to other groups: there they pass the delay on."""
    frame = mesh_slow_told()
    (verdict,) = frame.verdicts
    (straggler,) = verdict.culprits
    async with driven(frame, size=(120, 60)) as app:
        await app.press("5")
        await app.sees("by line: 9", "tp:*", "dp:*", "pp:*")
        table = app.screen.query_one(CallStatisticsTable)
        await app.sees("stragglers first")
        assert table.rows[0].last.rank == straggler
        apart = [row for row in table.rows if row.of_row]
        late = {row.group for row in apart if not table.at.stragglers.pass_on(row.last, row.calls)}
        assert late == {"tp:10"}, "only the group that differs from its like"
        below = [row.group for row in apart]
        await app.press("space")
        unfolded = [row.group for row in table.rows if row.of_row]
        assert {f"tp:{n}" for n in range(16)} <= set(unfolded)
        assert _row_under_the_cursor(app).group == "tp:10", "the cursor stays on its row"
        await app.press("space")
        assert [row.group for row in table.rows if row.of_row] == below

        await app.press("1")
        await app.resize(120, 40)
        await app.press("5")
        await app.sees(f"rank {straggler}: 100 %", "passed on", "└ tp:10", "waited", "bus", "size")
        await app.sees("of a step", "moved", "ops sampled")
        row = _row_under_the_cursor(app)
        assert row.groups == (verdict.group,)
        assert verdict.op is not None
        assert row.kinds == {verdict.op.kind}
        table = app.screen.query_one(CallStatisticsTable)
        assert table.cursor < 1 + table.size.height  # in view
        passed = [row for row in table.rows if row.group == "pp:*"]
        assert [table.at.stragglers.pass_on(row.last, row.calls) for row in passed] == [True]
        await app.press("enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == straggler


@with_timeline
async def test_the_timeline_opens_on_the_ops_of_the_row_or_says_why_not() -> None:
    frame = mesh_slow_told()
    async with driven(frame, size=(120, 40)) as app:
        await app.press("5")
        await app.sees("└ tp:10")
        site = _row_under_the_cursor(app).calls[0].site
        await app.press("T")
        timeline: Any = app.screen
        assert timeline.crumb == "timeline"
        assert timeline.subject == frame.verdicts[0].culprits[0]
        assert timeline.late is not None
        assert (timeline.late.group[0], timeline.late.site) == ("tp10", site)
    async with driven(straggling()) as app:
        await app.press("5", "j", "T")
        assert isinstance(app.screen, StatisticsScreen)
        await app.sees("No rank is known to arrive last at these ops (even)")
        await app.press("colon", *"queues", "enter", "w")
        assert isinstance(app.screen, WaitsScreen)
