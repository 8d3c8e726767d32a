"""The timeline, walked by keys."""

from __future__ import annotations

import dataclasses
import re

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.features.timeline.histories import Histories, histories_in
from frtop_tui.features.timeline.letters import WAITS
from frtop_tui.features.timeline.op_columns import columns_of_ops
from frtop_tui.features.timeline.pane import LanePane
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.screens.rank import RankScreen
from frtop_tui.widgets.queue_pane import queue_lines
from frtop_tui.widgets.spans import text_of
from screens import lane_scenes, scenes
from screens.driving import Driven, driven


def lane_of(app: Driven, rank: int) -> str:
    """What is drawn of one rank, after its name."""
    name = f" rank  {rank} "
    return next(line for line in app.text().splitlines() if line.startswith(name))[len(name) :]


async def test_from_the_ranks_to_the_straggler_and_back() -> None:
    async with driven(lane_scenes.trains(), size=(120, 30)) as app:
        await app.press("2", "T")
        assert isinstance(app.screen, TimelineScreen)
        await app.sees("timeline of all ranks", "clocks ±400 µs")
        assert WAITS in lane_of(app, 0)
        assert WAITS not in lane_of(app, lane_scenes.STRAGGLER)
        await app.press("p")
        await app.sees("waited 60.0 ms ±400 µs for rank 5", "then 42.0 ms until all were done")
        await app.press(*["j"] * lane_scenes.STRAGGLER)
        await app.press("n", "p")
        await app.sees("arrived last, 60.0 ms ±400 µs after the first", "rank 5 (node1)")
        await app.press("o")
        await app.sees("one op, by order of arrival", "+60.0 ms")
        app.screen.query_one(LanePane).action_last()
        await app.drawn()
        await app.press("enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == lane_scenes.STRAGGLER
        await app.press("escape", "escape")
        await app.sees("timeline of all ranks")
        await app.press("escape")
        assert not isinstance(app.screen, TimelineScreen)


async def test_the_ruler_marks_when_it_went_wrong() -> None:
    trains = lane_scenes.trains()
    since_ns = trains.now_ns - 500_000_000
    hung = replace(trains, health="hung", since_ns=since_ns, verdicts=scenes.hung().verdicts)
    async with driven(hung, size=(120, 30)) as app:
        await app.press("2", "T")
        await app.sees("┃HUNG")
        screen = app.screen
        assert isinstance(screen, TimelineScreen)
        assert screen.window is not None
        line = next(line for line in app.text().splitlines() if "┃HUNG" in line)
        assert line.index("┃") == 1 + screen.rows.label_width + screen.window.column(since_ns)
    async with driven(trains, size=(120, 30)) as app:
        await app.press("2", "T")
        await app.sees("a column is")
        assert "┃" not in app.text()


async def test_zooming_in_shows_what_is_under_the_cursor() -> None:
    async with driven(lane_scenes.trains(), size=(120, 30)) as app:
        await app.press("T")
        await app.sees("a column is")  # the first window is laid out
        await app.press("p")
        before = app.text()
        op = re.search(r"all_reduce #\d+", before)  # more may have come until the p
        assert op is not None
        await app.press("plus", "plus")
        await app.sees("a column is 5.00 ms", op[0])
        assert lane_of(app, 0).count("A") > before.count("A") / 8
        await app.press("minus", "minus")
        await app.sees("a column is 20.0 ms")
        await app.press("h")
        await app.press(*["L"] * 3)
        await app.sees("not known yet")


async def test_lanes_are_of_groups_of_a_rank_of_its_group_and_of_marked_ranks() -> None:
    async with driven(lane_scenes.trains(), size=(120, 30)) as app:
        await app.press("T", "v")
        await app.sees("timeline of the groups of rank 0", "\n dp:0", "\n tp:0")
        await app.press("escape")
        await app.sees("timeline of all ranks")
        await app.press("1", "enter", "T")
        await app.sees("timeline of ranks of dp:0")
        await app.press("1", "2", "space", "space", "T")
        await app.sees("timeline of marked ranks")
        assert app.screen.query_one(LanePane).count == 2
        app.app.tick()
        assert app.source.orders["timeline"][-1].ranks == (0, 1)
        await app.press("escape")
        app.app.tick()
        assert app.source.orders["timeline"][-1].ranks == ()


async def test_what_is_not_recorded_is_said() -> None:
    view = lane_scenes.lane_view(2)
    bare = replace(view, snapshot=None, identity=replace(view.identity, prepared=False))
    async with driven(lane_scenes.trains(bare), size=(120, 30)) as app:
        await app.press("T")
        await app.sees("not recorded: no recorder in its process", "clocks ±400 µs")
        app.source.given["timeline"] = Histories(why_none={1: "asking its agent"})
        app.app.tick()
        await app.sees("asking its agent")


async def test_a_culprit_is_the_first_lane_and_the_others_wait_beside_it() -> None:
    async with driven(scenes.hung(), size=(100, 30)) as app:
        await app.press("T")
        await app.sees("timeline of culprits first", "clocks of hosts not compared")
        lines = [line for line in app.text().splitlines() if line.startswith(" rank")]
        assert lines[0].startswith(" rank  37")
        assert lines[0].rstrip().endswith("!!!!!!!!!!")
        await app.sees("! in no op, and others wait for it")
        assert lines[1].rstrip().endswith("AAAAAAAAAA")
        await app.press("j", "h")
        await app.sees("pending for 4m12s", "rank 37 has not issued it")


async def test_nothing_is_drawn_of_a_process_after_its_end() -> None:
    frame = scenes.hung()
    ended = wire.ExitInfo(scenes.HOST_NOW - 60 * scenes.S, signal=9)
    dead = replace(frame.ranks[4], state="dead", exit_info=ended)
    async with driven(replace(frame, ranks={**frame.ranks, 4: dead}), size=(100, 30)) as app:
        await app.press("T")
        await app.sees("† its process ended")
        lines = {line.split()[1]: line.rstrip() for line in app.text().splitlines()
                 if line.startswith(" rank")}  # fmt: skip
        assert lines["4"].endswith("AAAAAAAAAA†")
        assert len(lines["4"]) < len(lines["3"])
        await app.press(*"jjjjj", "h")
        await app.sees("still pending after 3m12s, when its process ended")
    pending, op, *_ = map(text_of, queue_lines(dead, frame.now_ns, 100))
    assert "1, when its process ended" in pending
    assert "3m12s" in op


async def test_the_end_of_an_op_is_not_made_up_where_a_rank_died_between_two_reads() -> None:
    view = lane_scenes.lane_view(4)
    *before, last = lane_scenes.ops_of_rank(4)
    read = columns_of_ops(
        [*before, replace(last, done_ns=0)],
        known_until=last.issued_ns + lane_scenes.MS,
        open_ops=[last.sequence],
    )
    later = replace(view.group_progress[scenes.WORLD], number=last.number + 2)
    died = replace(
        view,
        identity=replace(view.identity, prepared=False),
        state="dead",
        exit_info=wire.ExitInfo(last.issued_ns + 90 * lane_scenes.MS, signal=9),
        group_progress={**view.group_progress, scenes.WORLD: later},
        snapshot=None,
    )
    async with driven(lane_scenes.trains(died), size=(120, 30)) as app:
        others = histories_in(lane_scenes.trains()).ops
        app.source.given["timeline"] = Histories({**others, 4: read})
        await app.press("2", "T")
        await app.sees("†")  # the lanes are drawn, so the cursor is on one
        await app.press("g", *"jjjj")
        await app.sees("rank 4 (")
        await app.press(*"nnnnnnnn")
        await app.sees("all_reduce #8811", "its end is not known")
        assert re.search("A·+†$", lane_of(app, 4).strip())
        await app.press("l")
        await app.sees("not read before its process ended")


async def test_marks_are_drawn_and_jumped_to() -> None:
    host = lane_scenes.clock(0)
    begins = [lane_scenes.BEGIN + n * lane_scenes.STEP_NS - host for n in range(4)]
    marks = [wire.Mark("step", at, at + lane_scenes.STEP_NS, 70 + n) for n, at in enumerate(begins)]
    marks += [wire.Mark("fetch", at, at + 40_000_000) for at in begins]
    marks += [wire.Mark("note", begins[2], begins[2], text="checkpoint")]
    async with driven(lane_scenes.trains(), size=(120, 30)) as app:
        known = app.source.news()["timeline"]
        ops = dataclasses.replace(known.ops[0], marks=tuple(marks))
        app.source.given["timeline"] = Histories({**known.ops, 0: ops})
        await app.press("T")
        await app.sees("72│", "d data", "│ step", "* note")
        assert "dd" in lane_of(app, 0)
        await app.press("left_parenthesis")
        await app.sees("step 72 240 ms ends")
        await app.press("right_parenthesis", "right_parenthesis")
        await app.sees("step 73 240 ms ends", "No further step is recorded of rank 0.")


async def test_a_recorded_job_has_nothing_to_follow() -> None:
    async with driven(lane_scenes.trains(recorded=True), size=(120, 30)) as app:
        await app.press("T", "F")
        await app.sees("Nothing new will come: this was recorded.")
        await app.sees("timeline of all ranks")


async def test_live_lanes_move_on_until_somebody_looks_at_a_time() -> None:
    async with driven(lane_scenes.trains(), size=(120, 30)) as app:
        await app.press("T")
        await app.sees("· follows")
        pane = app.screen.query_one(LanePane)
        pane.cells_repainted = 0
        await app.give(replace(lane_scenes.trains()))
        assert pane.cells_repainted == 0  # an equal frame
        screen = app.screen
        assert isinstance(screen, TimelineScreen)
        assert screen.window is not None
        before = screen.window.end_ns
        frame = lane_scenes.trains()
        await app.give(
            replace(frame, now_ns=frame.now_ns + scenes.S, wall_ns=scenes.WALL + scenes.S)
        )
        assert screen.window.end_ns > before
        await app.press("H")
        await app.sees("· stands still")
        await app.press("F")
        await app.sees("· follows")


async def test_a_pause_holds_the_lanes_and_one_that_opens_in_it_is_filled() -> None:
    async with driven(lane_scenes.trains(), size=(120, 30)) as app:
        await app.press("Z", "T")
        await app.sees("timeline of all ranks", "AAA")
        shown = lane_of(app, 0)
        known = app.source.news()["timeline"]
        app.source.given["timeline"] = Histories({**known.ops, 0: known.ops[5]})
        app.app.tick()
        await app.drawn()
        assert lane_of(app, 0) == shown
        await app.press("Z")
        await app.wait_for(lambda: lane_of(app, 0) != shown)


async def test_small_terminals_and_empty_jobs_have_a_timeline_too() -> None:
    async with driven(lane_scenes.trains(), size=(60, 15)) as app:
        await app.press("T", "plus", "n", "p", "o", "v", "escape")
        await app.sees("job > timeline", "all ranks ·")
        await app.give(scenes.connecting())
        await app.press(
            "1", "T", "n", "s", "o", "v", "plus", "enter", "space", "f", "c", "n", "plus"
        )
        await app.sees("no op")


async def test_at_80_columns_the_title_is_whole() -> None:
    async with driven(lane_scenes.trains(), size=(80, 24)) as app:
        await app.press("T")
        await app.sees("job > timeline · follows", "clocks ±400 µs")
        await app.press("p", "o")
        await app.sees("job > timeline · stands still", "one op, by order of arrival", "±400 µs")
        assert "…" not in app.text()


async def test_the_op_that_was_jumped_to_stays_when_older_ops_come() -> None:
    frame = lane_scenes.trains()
    async with driven(lane_scenes.newest(frame, 4), size=(120, 30)) as app:
        await app.press("T")
        await app.sees("a column is")  # the first window is laid out
        await app.press("p")
        await app.sees("all_reduce #8810")
        await app.give(frame)
        assert "all_reduce #8810" in app.text()
