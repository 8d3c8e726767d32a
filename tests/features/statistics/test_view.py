"""The screen of statistics: what it is of, by what, in which order, and where `enter` leads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_tui.features.statistics.rows import call_rows, rank_rows
from frtop_tui.features.statistics.table import CallStatisticsTable, change_text, range_text
from frtop_tui.features.statistics.view import StatisticsScreen, step_lines
from frtop_tui.job.statistics import SampledGroup, SampledOp
from frtop_tui.job.units import timing, timings
from frtop_tui.screens.commands import COMMANDS
from frtop_tui.screens.completion import CommandError, CommandScope, complete, interpret
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.statistics.step_table import step_rows
from frtop_tui.text.statistics_words import alike_words, labels_of
from frtop_tui.widgets.spans import text_of
from screens import scenes
from screens.driving import driven
from screens.statistics_scenes import MS, STRAGGLER, even, straggling, with_statistics


def rows_of(text: str) -> list[str]:
    """The first words of the table's rows."""
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("─ by ")) + 2
    return [line.split()[0] for line in lines[begin:] if line.strip() and not line.startswith("─")]


async def test_it_says_what_it_is_of_at_every_size() -> None:
    async with driven(straggling()) as app:
        await app.press("5")
        assert rows_of(app.text())[:3] == ["train.py:231", "parallel.py:88", "train.py:260"]
        for size in ((60, 15), (80, 24), (120, 30), (200, 60)):
            await app.resize(*size)
            await app.sees("job > statistics", "timed 98,232 of 98,592 ops", "clocks ±400 µs")
            await app.sees("2 missing: 62-63", "train.py:231", "rank 12: 94 %")
            if size[1] > 20:
                await app.sees("where a step goes", "rank 12", "399 ms", "140-400 ms")
            if size[0] > 120:
                await app.sees("67.1 MB")


async def test_enter_opens_the_last_to_arrive_or_lists_the_ranks_of_an_even_line() -> None:
    async with driven(straggling()) as app:
        await app.press("5", "enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == STRAGGLER
        await app.press("escape", "j", "enter")
        assert isinstance(app.screen, RanksScreen)
        await app.sees("ranks 64 of 64, filter rank:0-63")


async def test_of_a_hang_longer_than_the_window_all_that_is_recorded_is_asked_for() -> None:
    frame = straggling()
    assert frame.statistics is not None
    nothing = replace(frame.statistics, calls=(), groups=(), steps={})
    last = frame.now_ns - 252_000 * MS
    groups = tuple(replace(group, issued_ns=last) for group in frame.groups)
    hung = replace(frame, statistics=nothing, groups=groups)
    async with driven(hung) as app:
        await app.press("5")
        await app.sees("no op for 60 s, the last one 4m12s ago", "as far as rings reach, asked")
        await app.sees("no step ended here: step 2,203 began 4m2")
        assert "; w" not in app.text()
        await app.press("W")
        await app.sees("no op for 60 s, the last one 4m12s ago; w w: as far as rings reach")
        await app.press("W")
        await app.sees("the last one 4m12s ago; w: as far as rings reach")


async def test_of_a_young_slowdown_no_step_from_before_it_counts() -> None:
    frame = straggling()
    for age_s, wanted_s in ((30, 10.0), (90, 60.0)):
        slow = replace(frame, health="slow", since_ns=frame.now_ns - age_s * 1000 * MS)
        async with driven(slow) as app:
            await app.press("5")
            app.app.tick()
            assert (wanted := app.source.statistics_wanted["screen"]) is not None
            assert wanted.window_s == wanted_s


async def test_a_key_goes_through_lines_ops_groups_and_ranks() -> None:
    async with driven(straggling()) as app:
        await app.press("5")
        table = app.screen.query_one(CallStatisticsTable)
        before = table.cells_repainted
        await app.give(replace(straggling()))
        assert table.cells_repainted == before  # an equal frame
        await app.press("v")
        await app.sees("by op: 3", "all_gather")
        await app.press("v")
        await app.sees("by group: 2", "<=131 ms")
        await app.press("v")
        await app.sees("by rank: 64", "60 of 64", "131 ms")
        assert rows_of(app.text())[0] == str(STRAGGLER)
        await app.press("enter")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == STRAGGLER
        await app.press("escape", "v")
        await app.sees("by line: 3")


async def test_rows_are_sorted_reversed_and_filtered() -> None:
    async with driven(straggling(), size=(92, 24)) as app:
        await app.press("5", "greater_than_sign")
        await app.sees("skew v")
        await app.press(*["less_than_sign"] * 4, "I")
        await app.sees("line ^")
        assert rows_of(app.text())[0] == "train.py:260"
        await app.press("slash", *"train !barrier", "enter")
        await app.sees("by line: 1, filter train !barrier")
        await app.press("escape")
        await app.sees("by line: 3")
        await app.press("slash", *"nothing", "enter")
        await app.sees("no row matches the filter")


async def test_the_mark_shows_what_changed_since() -> None:
    async with driven(even()) as app:
        await app.press("5", "c")
        await app.sees("change since the mark at")
        await app.give(with_statistics(131.0, at_ns=scenes.NOW + 5 * scenes.S))
        await app.sees("+131 ms", "rank 12: 94 %")
        line = next(line for line in app.text().splitlines() if "parallel.py:88" in line)
        assert line.split().count("=") == 2
        await app.press("c")
        await app.sees(" 131 ms")
        assert "since the mark" not in app.text()


async def test_the_source_gathers_statistics_while_the_screen_is_open() -> None:
    async with driven(scenes.healthy()) as app:
        await app.press("5")
        await app.sees("waiting for the ranks' answers (0 of 64)")
        wanted = app.source.statistics_wanted["screen"]
        assert wanted is not None
        assert (wanted.window_s, wanted.calls) == (60.0, True)
        await app.press("W")
        app.app.tick()
        assert (wanted := app.source.statistics_wanted["screen"]) is not None
        assert wanted.window_s == 10.0
        await app.press("W")
        await app.sees("as far as rings reach")
        await app.press("1")
        assert app.source.statistics_wanted["screen"] is None


def test_each_line_says_who_comes_last_to_it() -> None:
    frame = straggling()
    assert frame.statistics is not None
    rows = call_rows(frame.statistics, "line", labels_of(frame.groups))
    assert {row.line: row.last.words for row in rows} == {
        "train.py:231": "rank 12: 94 %",
        "parallel.py:88": "even",
        "train.py:260": "1 sampled",
    }


def test_the_time_that_others_waited_is_what_the_last_one_cost_them() -> None:
    frame = straggling()
    assert frame.statistics is not None
    op = SampledOp(8, {0: 0, 1: 10 * MS, 2: 110 * MS}, True, error_ns=MS)
    unseen = SampledOp(16, {0: 0, 1: 900 * MS}, complete=False)
    group = SampledGroup(scenes.DP_KEY, (0, 1, 2), (op, unseen))
    rows = rank_rows(replace(frame.statistics, ranks=(0, 1, 2), groups=(group,)), {})
    assert [(row.last, row.ops, row.others_ns, row.after_ns) for row in rows] == [
        (0, 1, 0, 0),
        (0, 1, 0, 10 * MS),
        (1, 1, 200 * MS, 110 * MS),
    ]


def test_how_long_communication_took_is_between_two_bounds() -> None:
    assert timings(9 * MS, 400 * MS) == "9.00-400 ms"
    assert timings(9 * MS, 9 * MS) == "9.00 ms"
    assert timings(2e9, 12e9) == "2.00-12.0 s"
    assert timings(0, 40_000) == "40.0 µs"


def test_steps_without_phases_say_what_is_missing() -> None:
    statistics = with_statistics(phases=False).statistics
    assert statistics is not None
    text = "\n".join(text_of(line) for line in step_lines(step_rows(statistics), statistics, 80))
    assert "not recorded: forward, backward, optimizer" in text
    assert "data" in text
    whole = straggling().statistics
    assert whole is not None
    wide, narrow = (text_of(step_lines(step_rows(whole), whole, width)[0]) for width in (120, 60))
    assert "optim" in wide
    assert "optim" not in narrow
    assert "communication" in narrow


def test_small_differences_are_none() -> None:
    assert change_text(1.05, 1.0, timing)[0] == "="
    assert change_text(30 * MS, 20 * MS, timing) == ("+10.0 ms", "warn")
    assert change_text(20 * MS, 30 * MS, timing) == ("-10.0 ms", "good")
    assert range_text((1.0 * MS, 3.0 * MS), timing) == "<=3.00 ms"
    assert range_text(None, timing) == "-"


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (("tp:0", "tp:1"), "tp:*"),
        (("tp_0", "tp_1"), "tp:*"),
        (("group 3", "group 14"), "group:*"),
        (("mesh_tp", "mesh_tp"), "mesh_tp:*"),
        (("mesh_dim_0", "mesh_dim_0"), "mesh_dim_0:*"),
        (("dp",), "dp"),
        (("tp:0",), "tp:0"),
        (("a", "b", "c"), "a +2"),
        ((), ""),
    ],
)
def test_groups_that_are_alike_have_one_name(names: tuple[str, ...], one: str) -> None:
    assert alike_words(names) == one


async def test_a_command_opens_it_with_a_window() -> None:
    situation = CommandScope(straggling(), set())
    assert complete("stats a", COMMANDS, situation).text == "stats all"
    with pytest.raises(CommandError, match="no window 1h; known are 10s, 60s, all"):
        interpret("stats 1h", COMMANDS, situation)
    async with driven(straggling()) as app:
        await app.press("colon", *"stats 10s", "enter")
        assert isinstance(app.screen, StatisticsScreen)
        assert app.screen.window_s == 10.0
