"""From a slow verdict by keys alone to the straggler's lane, its statistics, host and gauges.

The verdict is of scripted ranks behind agents' real messages and sockets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
import textual.app
import textual.pilot

from frtop_tui.app import FrtopApp
from frtop_tui.demo.scripted.job import ScriptedJob
from frtop_tui.demo.scripted.script import SECOND
from frtop_tui.screens.timeline import TimelineScreen
from frtop_tui.sources.live import LiveSource

from .driving import Driven, all_handled

RANKS = 16
SLOW_FOR_S = 60


@contextmanager
def slow_job() -> Iterator[tuple[int, LiveSource]]:
    """A job that has been slow for a while: its straggler, and an operator that connects."""
    with ScriptedJob(RANKS, "slow") as job:
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
            await app.sees("came last, 6.", "stands still")
            timeline = app.screen
            assert isinstance(timeline, TimelineScreen)
            assert timeline.subject == straggler
            assert timeline.rows.ranks[0] == straggler
            assert {one // 8 for one in timeline.rows.ranks[:8]} == {straggler // 8}

            await app.press("o")  # who came when to that op: the straggler is the last of eight
            await app.sees("one op, by who came first")
            assert timeline.rows.ranks[-1] == straggler
            await app.press("escape", "5")
            await app.sees(f"rank {straggler}: 100 %", "where a step goes")
            assert app.screen.subject == straggler

            await app.press("enter")
            await app.sees(f"rank {straggler}  {host}", "1110 MHz", "slowed by power brake")

            await app.press("3", "space")
            await app.sees(f"─ {host} ─", f"gpu{straggler % 8}: 1,110 of 1,980 MHz", "▇▇▇")
            assert app.screen.subject is None
            await app.press("enter")
            await app.sees(f"host:{host}", f"{straggler}")
