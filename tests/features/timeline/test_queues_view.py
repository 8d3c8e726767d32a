"""Queues side by side, walked by keys."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.features.timeline.queues_view import QueuesScreen, QueueTable
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.screens.rank import RankScreen
from screens import lane_scenes, scenes
from screens.driving import driven


async def test_the_first_difference_is_in_view_and_said_in_words() -> None:
    async with driven(lane_scenes.differs(), size=(120, 30)) as app:
        for _ in range(8):
            await app.press(*(["2", "space"] if app.screen.crumb == "job" else ["space"]))
        await app.press("c")
        assert isinstance(app.screen, QueuesScreen)
        await app.sees("queues of 8 ranks, 15 ops: the first difference is marked with !: missing")
        await app.sees("! #8811 dp:0 all_reduce")
        await app.sees(
            "missing: ranks 0-5,7 issued it; rank 6 has not issued it, 5.1s after the first",
            "dtype: ranks 0-2,4-5,7 bf16[26214400]; rank 3 f32[26214400]",
        )
        await app.press(*["l"] * 3)
        await app.press("enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == 3


async def test_an_op_is_called_what_most_ranks_called() -> None:
    """The culprit's column is the first one, but its op is the odd one."""
    ops = list(lane_scenes.ops_of_rank(0))
    ops[-1] = replace(ops[-1], signature=wire.Signature("barrier"), done_ns=0)
    waits = [
        lane_scenes.lane_view(rank, (*lane_scenes.ops_of_rank(rank)[:-1],
                                     replace(lane_scenes.ops_of_rank(rank)[-1], done_ns=0)))
        for rank in range(1, 8)
    ]  # fmt: skip
    frame = lane_scenes.trains(lane_scenes.lane_view(0, tuple(ops)), *waits)
    async with driven(frame, size=(120, 30)) as app:
        await app.press("c")
        await app.sees("! #8811 dp:0 all_reduce", "kind: rank 0 barrier; ranks 1-3 all_reduce")


async def test_a_rank_stands_beside_others_and_more_can_be_added() -> None:
    async with driven(lane_scenes.trains(), size=(80, 24)) as app:
        await app.press("c")
        await app.sees("queues of 4 ranks", "no difference in what is recorded", "102 ms")
        await app.press("plus")
        await app.sees("queues of 5 ranks")
        await app.press(*["minus"] * 4)
        await app.sees("queues of 2 ranks", "Queues of 2 to 8 ranks")
        await app.press("n")
        await app.sees("No further difference")
        await app.press("T")
        assert isinstance(app.screen, TimelineScreen)


async def test_the_culprit_stands_first_beside_those_that_wait_for_it() -> None:
    async with driven(scenes.hung(), size=(120, 30)) as app:
        await app.press("enter", "c")
        await app.sees("rank 37", "not issued")
        await app.press("G")
        await app.sees(
            "#8812 dp:0 all_reduce",
            "rank 37 has not issued it, 4m12s after the first",
        )
        app.app.tick()
        assert app.source.orders["timeline"][-1].ranks == (37, 0, 1, 2)


async def test_an_op_lasts_no_longer_than_its_process() -> None:
    frame = scenes.hung()
    ended = wire.ExitInfo(scenes.HOST_NOW - 60 * scenes.S, signal=9)
    dead = replace(frame.ranks[0], state="dead", exit_info=ended)
    async with driven(replace(frame, ranks={**frame.ranks, 0: dead}), size=(120, 30)) as app:
        await app.press("enter", "c", "G")
        await app.sees("3m12s†", "4m12s+")


async def test_new_ops_are_appended_and_the_cursor_stays_on_its_op() -> None:
    views = [
        lane_scenes.lane_view(rank, lane_scenes.ops_of_rank(rank)[:6])
        for rank in range(lane_scenes.RANKS)
    ]
    async with driven(lane_scenes.trains(*views), size=(120, 30)) as app:
        await app.press("c", "g")
        await app.sees("6 ops", "#1 tp:0 all_gather · the same on all of them")
        await app.give(lane_scenes.trains())
        await app.sees("10 ops", "#1 tp:0 all_gather · the same on all of them")
        await app.press("G")
        await app.sees("#8811 dp:0 all_reduce · the same on all of them")


async def test_the_first_difference_stays_in_view_when_older_ops_come_until_somebody_scrolls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest ops of a running job are fetched first."""
    monkeypatch.setattr(lane_scenes, "STEPS", 40)
    frame = lane_scenes.differs()
    async with driven(lane_scenes.newest(frame, 10), size=(120, 40)) as app:
        await app.press("c")
        await app.sees("! #8846 dp:0 all_reduce")
        await app.give(frame)
        await app.sees("80 ops")
        await app.sees("! #8846 dp:0 all_reduce")
        table = app.screen.query_one(QueueTable)
        table.scroll_to(y=0, animate=False)  # with the mouse: the cursor stays behind
        await app.sees("#1 tp:0")
        await app.give(replace(lane_scenes.differs()))
        await app.pilot.pause()
        assert table.scroll_offset.y == 0
