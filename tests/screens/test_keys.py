"""Every key on scripted frames: which screen it opens and what that shows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_tui.app import FrtopApp, run_app
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.hosts import HostsScreen
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.stacks import STILL_NS, StacksScreen
from frtop_tui.widgets.rank_grid import RankGrid

from . import scenes
from .driving import Driven, driven


async def test_the_verdict_shows_culprit_cause_and_next_step_at_every_size() -> None:
    async with driven(scenes.hung()) as app:
        for size in ((60, 15), (80, 24), (100, 30), (200, 60)):
            await app.resize(*size)
            await app.sees("rank 37 (node4) has not entered all_reduce #8812", "HUNG for 4m12s")
            await app.sees("why", "times out in 5m48s", "64/64 reporting")
            await app.sees("read of", "/data/shard-0412")
            if size[1] >= 24:
                await app.sees("next", "[L]", "1 late, 63 wait")


async def test_enter_opens_the_culprit_n_and_p_its_neighbours_and_esc_returns() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("escape")  # does nothing on the first screen
        assert isinstance(app.screen, Overview)
        await app.press("enter")
        await app.sees("job > rank 37  dp:0 · ", "◀ yours", "read /data/shard-0412")
        assert app.source.watched[-1] == (37,)
        await app.press("b")
        assert app.source.dumped == [(37,)]
        await app.press("n")
        await app.sees("rank 38")
        await app.wait_for(lambda: app.source.watched[-1] == (38,))
        await app.press("p", "p")
        await app.sees("rank 36")
        await app.wait_for(lambda: app.source.watched[-1] == (36,))
        await app.press("escape")
        assert isinstance(app.screen, Overview)
        await app.wait_for(lambda: app.source.watched[-1] == ())


async def test_letters_and_arrows_move_the_cursor_of_the_grid_and_it_stays() -> None:
    async with driven(scenes.hung()) as app:
        grid = app.app.screen.query_one(RankGrid)
        await app.sees("rank 37")
        keys = ("l", "h", "right", "left", "h", "h", "k", "j", "g", "G", "h")
        for key, rank in zip(keys, (38, 37, 38, 37, 36, 35, 19, 35, 0, 63, 62), strict=True):
            await app.press(key)
            assert grid.chosen == rank, key
        await app.give(replace(scenes.hung(), now_ns=scenes.NOW + scenes.S))
        assert app.app.screen.query_one(RankGrid).chosen == 62


async def test_quit_and_help_are_visible_in_a_small_terminal() -> None:
    async with driven(scenes.hung()) as app:
        await app.sees(" enter open  b stacks  w waits  ? help  q quit  e capture  / filter")
        for key in ("1", "enter", "2", "4", "J", "t", "question_mark"):
            await app.press("1", key)
            await app.sees("q quit" if key == "1" else "Q quit", "? help")
            last = app.text().splitlines()[-1]
            if key != "1":
                assert last.index("esc back") < last.index("? help")
            assert last.count("stacks") <= 1


async def test_the_users_frame_is_visible_beside_the_innermost_one() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("enter")
        await app.sees("◀ yours")
        assert "unfold" not in app.text()
        await app.resize(80, 20)
        await app.sees("… 5 frames, enter unfolds", "wait ", "◀ yours", "enter unfold ")
        await app.press("enter")
        await app.sees("_try_get_data")
        await app.press("space")
        await app.sees("… 5 frames")


async def test_rank_classes_out_of_sight_are_counted() -> None:
    ranks = dict(scenes.hung().ranks)
    for number, state in ((1, "moving"), (2, "silent"), (3, "stopped")):
        ranks[number] = replace(ranks[number], state=state, blocked_on=None)
    async with driven(replace(scenes.hung(), ranks=ranks)) as app:
        await app.press("enter")
        await app.sees("other ranks, +3 more")
        await app.resize(120, 50)
        await app.wait_for(lambda: "+3 more" not in app.text())


async def test_numbers_switch_between_views_and_the_palette_lists_them() -> None:
    async with driven(scenes.hung()) as app:
        views = (("2", RanksScreen), ("3", HostsScreen), ("4", StacksScreen), ("1", Overview))
        for key, kind in views:
            await app.press(key)
            assert type(app.screen) is kind
        assert len(app.app.screen_stack) == 1
        names = [command.title for command in app.app.get_system_commands(app.app.screen)]
        assert "stacks" in names
        assert "Theme" not in names


def with_new_stacks(frame: Frame, ranks: Iterable[int], seconds: int) -> Frame:
    """The frame some seconds later, with the stacks of these ranks taken just then."""
    now_ns = frame.now_ns + seconds * 10**9
    taken = {
        rank: replace(frame.ranks[rank], stacks_taken_ns=now_ns - frame.ranks[rank].clock_ns)
        for rank in ranks
    }
    return replace(frame, now_ns=now_ns, ranks={**frame.ranks, **taken})


async def test_the_stacks_that_are_there_are_counted_until_no_more_are_expected() -> None:
    frame = scenes.hung()
    async with driven(frame) as app:
        await app.press("b")
        await app.sees("5 of 64 ranks; taking: 0 of 64 ")
        await app.give(with_new_stacks(frame, range(24), 2))
        await app.sees("; taking: 24 of 64 ")
        await app.give(with_new_stacks(frame, range(64), 5))
        assert "taking" not in app.text()
        await app.press("b")
        await app.give(with_new_stacks(app.source.frame(), range(8), 2))
        await app.sees("; taking: 8 of 64 ")
        await app.give(replace(app.source.frame(), now_ns=app.source.frame().now_ns + STILL_NS))
        assert "taking" not in app.text()
        await app.press("1", "space", "l", "space", "4")
        await app.wait_for(lambda: app.source.dumped[-1] == (37, 38))
        await app.sees("stacks of marked ranks: 2 of 2 ranks")


async def test_a_chain_of_frames_unfolds_and_folds() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        await app.press("4")
        await app.sees("… 5 frames")
        assert "_try_get_data" not in app.text()
        await app.press("j", "j", "enter")
        await app.sees("_try_get_data", "dataloader.py:1275")
        await app.press("space")
        await app.sees("… 5 frames")


async def test_the_filter_applies_while_it_is_typed_and_esc_clears_it() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("slash", *"lat")
        await app.sees("unknown word `lat`; did you mean `late`?", "DataLoader worker 2")
        await app.press("e")
        await app.sees("ranks 1 of 64, filter late", "DataLoader worker 2")
        await app.press("enter", "enter")
        await app.sees("rank 37")
        assert isinstance(app.screen, RankScreen)
        await app.press("escape", "escape")
        await app.sees("ranks 64")
        await app.press("escape")
        assert isinstance(app.screen, Overview)


async def test_the_table_sorts_by_neighbouring_columns_and_reverses() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("2")
        await app.sees("state v")
        await app.press("less_than_sign")
        await app.sees("rank v")
        await app.press("I")
        await app.sees("rank ^")
        assert app.text().index("    63") < app.text().index("    62")
        await app.press("greater_than_sign", "greater_than_sign")
        await app.sees("for ^")


async def test_pause_freezes_the_frame_and_says_so() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("Z")
        await app.give(replace(scenes.healthy(), now_ns=scenes.NOW + 9 * scenes.S))
        await app.sees("PAUSED, 9.0s behind", "HUNG for 4m12s")
        await app.press("enter")
        await app.sees("rank 37", "PAUSED")
        await app.press("Z")
        await app.sees("HEALTHY")
        assert "PAUSED" not in app.text()


async def test_a_screen_that_waits_says_that_nothing_is_asked_while_paused_or_in_the_past() -> None:
    frame = replace(scenes.hung(), statistics=None)
    async with driven(frame, size=(160, 40)) as app:
        await app.press("Z")
        for view in ("modules", "stats", "waits", "tensors 12", "stacks"):
            await app.press("1", "colon", *view, "enter")
            if view == "stacks":
                await app.press("b")
            await app.sees("paused: answers are shown when Z resumes")
            shown = app.text()
            assert not any(one in shown for one in ("waiting for the", "no answer yet")), view
            assert "finding out" not in shown
        await app.press("Z", "1")
        await app.give(replace(frame, now_ns=frame.now_ns + 9 * scenes.S))
        await app.press("left_square_bracket", "colon", *"modules", "enter")
        await app.sees("ago, and asking nothing: Z returns to live")


async def test_help_lists_the_keys_of_the_previous_screen() -> None:
    async with driven(scenes.hung(), size=(100, 150)) as app:
        await app.press("question_mark")
        await app.sees("help: keys of job", "open: show the rank", "other ranks wait for it")
        await app.sees("host:node[0-3]")
        await app.press("question_mark", "enter", "question_mark")
        await app.sees("help: keys of rank 37", "to the newest op")
        await app.press("escape")
        assert isinstance(app.screen, RankScreen)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets a terminal that takes text, as far as anybody knows, and a folder for files."""
    monkeypatch.chdir(tmp_path)
    for name in ("TMUX", "STY", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


@pytest.mark.usefixtures("terminal")
async def test_y_copies_the_row_or_pane_under_the_cursor_and_again_writes_a_file(
    tmp_path: Path,
) -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        await app.press("2", "j", "y")
        await app.sees("Line copied, ", "If nothing arrives")
        assert app.app.clipboard.startswith("0  b blocked")
        assert list(tmp_path.iterdir()) == []
        await app.press("y")
        await app.sees("Line written, ")
        (path,) = tmp_path.iterdir()
        assert path.read_text() == f"{app.app.clipboard}\n"
        await app.press("1", "enter", "y")
        await app.sees("Pane copied, ")
        assert "◀ yours" in app.app.clipboard


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("TERM", "linux", "No clipboard: a console has no clipboard. Verdict written, "),
        ("STY", "17.pts", "No clipboard: screen does not pass it on. Verdict written, "),
        ("TMUX", "/tmp/none,1,0", "Verdict copied"),
    ],
)
async def test_where_a_terminal_takes_no_text_a_file_has_it(
    terminal: pytest.MonkeyPatch, name: str, value: str, why: str, tmp_path: Path
) -> None:
    terminal.setenv(name, value)
    async with driven(scenes.hung(), size=(160, 30)) as app:
        await app.press("y")
        await app.sees(why)
        files = [path.read_text() for path in tmp_path.iterdir()]
        assert files == ([f"{app.app.clipboard}\n"] if "written" in why else [])


@pytest.mark.usefixtures("terminal")
async def test_y_copies_the_verdict_or_says_that_there_is_none() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("y")
        assert "has not entered all_reduce #8812" in app.app.clipboard
        assert "next  check the mount" in app.app.clipboard
        await app.sees("Verdict copied")
        await app.give(scenes.healthy())
        await app.press("y")
        await app.sees("Nothing to copy")


async def test_q_goes_back_and_quits_from_the_overview() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("enter", "T", "q")
        assert isinstance(app.screen, RankScreen)
        await app.press("q")
        assert isinstance(app.screen, Overview)
        await app.press("q")
        assert not app.app.is_running or app.app._exit
    assert app.app.return_code == 0
    # Textual closes the screens, then stops the timer: a tick may come in between.
    assert not app.app.screen_stack
    app.app.tick()


async def test_capital_q_quits_anywhere_and_asks_where_a_job_would_end() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("2", "enter", "Q")
    assert app.app.return_code == 0
    async with driven(scenes.hung()) as app:
        app.app.ends = "The job of the demo"
        await app.press("q")
        await app.sees("The job of the demo ends with frtop. Press again to quit.")
        assert not app.app._exit
        await app.press("enter", "Q")
    assert app.app.return_code == 0


@pytest.mark.parametrize("crashes", [False, True])
def test_the_source_is_closed_however_the_app_ends(
    crashes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(app: FrtopApp) -> None:
        if crashes:
            raise RuntimeError(app.title)

    monkeypatch.setattr(FrtopApp, "run", run)
    source = ScriptedSource([scenes.hung()])
    with pytest.raises(RuntimeError) if crashes else nullcontext():
        assert run_app(source) == 0
    assert source.closed


async def test_a_scrolled_queue_pauses_until_f() -> None:
    async with driven(scenes.hung(), size=(100, 40)) as app:
        await app.press("enter", "shift+tab")
        await app.sees("#8811")
        await app.press("j", "j", "j")
        await app.give(replace(scenes.hung(), now_ns=scenes.NOW + scenes.S))
        await app.sees("paused, F follows")
        await app.press("F")
        await app.wait_for(lambda: "paused, F" not in app.text())
        await app.sees("#8811")


async def click(app: Driven, words: str, times: int = 1, at: int = 0) -> None:
    """Clicks on the last place with these words, `at` cells after their first letter."""
    rows = app.text().splitlines()
    y = max(n for n, row in enumerate(rows) if words in row)
    await app.pilot.click(offset=(rows[y].index(words) + at, y), times=times)
    await app.press()


async def test_a_click_moves_the_cursor_a_double_click_opens_and_keys_can_be_clicked() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        grid = app.app.screen.query_one(RankGrid)
        y, x = grid.grid_layout.positions[12]
        offset = (x + grid.gutter.left, y + grid.gutter.top)
        await app.pilot.click(grid, offset=offset)
        assert grid.chosen == 12
        assert isinstance(app.screen, Overview)
        await app.pilot.click(grid, offset=offset, times=2)
        await app.press()
        await app.sees("job > rank 12")
        await click(app, "esc back")
        assert isinstance(app.screen, Overview)
        await click(app, "2 ranks")
        assert isinstance(app.screen, RanksScreen)
        await click(app, "node3")
        chosen = app.screen.table.chosen
        assert chosen is not None
        assert chosen.host == "node3"
        await click(app, "state v")  # a title chooses nothing
        assert app.screen.table.chosen == chosen
        await click(app, "node3", times=2)
        await app.sees(f"job > ranks > rank {chosen.rank}")
        await click(app, "esc back", at=6)
        await click(app, "Q quit")
        assert app.app._exit


async def test_the_cursor_stays_on_its_rank_when_rows_move() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("2", "j", "j")
        ranks = dict(scenes.hung().ranks)
        for number in (50, 51, 52):
            ranks[number] = replace(ranks[number], state="late")
        await app.give(replace(scenes.hung(), ranks=ranks))
        await app.press("enter")
        await app.sees("rank 1 ")
