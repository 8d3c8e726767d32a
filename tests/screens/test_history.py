"""Back and forward through screens, and through the frames that were received."""

from __future__ import annotations

import gc

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.received_frames import MOST, ReceivedFrames
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.visits import MOST as MOST_PATHS
from frtop_tui.screens.visits import Visits

from . import answer_scenes, rare_scenes, scenes
from .driving import driven

HEALTHY = scenes.healthy()


def at(seconds: float, frame: Frame | None = None) -> Frame:
    """A frame some seconds later."""
    frame = frame or HEALTHY
    return replace(frame, now_ns=scenes.NOW + int(seconds * scenes.S))


def test_paths_are_gone_back_through_and_forward_again() -> None:
    visits: Visits[str] = Visits()
    for path in ("a", "ab", "abc", "ad"):
        visits.visit(path)
    assert visits.step(1) is None
    assert visits.step(-1) == ("a", "b", "c")
    assert visits.step(-1) == ("a", "b")
    assert visits.step(1) == ("a", "b", "c")
    assert visits.visit("ae") == ["d"]  # gone back from, and no longer reached
    assert visits.step(1) is None
    assert visits.step(-1) == ("a", "b", "c")


def test_a_bounded_number_of_paths_is_remembered() -> None:
    visits: Visits[int] = Visits()
    gone = [item for number in range(MOST_PATHS + 3) for item in visits.visit((0, number + 1))]
    assert gone == [1, 2, 3]
    assert visits.forget()[:2] == [0, 4]


async def test_a_bracket_goes_back_to_a_screen_as_it_was_left() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("slash", *"host:node4", "enter", "j", "j", "enter")
        assert isinstance(app.screen, RankScreen)
        rank = app.screen.rank
        await app.press("4")
        assert isinstance(app.screen, StacksScreen)
        asked = list(app.source.dumped)
        await app.press("left_curly_bracket")
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == rank
        await app.press("left_curly_bracket")
        await app.sees("filter host:node4")
        await app.press("enter")  # the cursor is where it was
        assert isinstance(app.screen, RankScreen)
        assert app.screen.rank == rank
        await app.press("left_curly_bracket", "left_curly_bracket")
        assert isinstance(app.screen, Overview)
        await app.press("left_curly_bracket")
        await app.sees("No screen was visited before this one")
        await app.press("right_curly_bracket")
        assert isinstance(app.screen, RanksScreen)
        assert app.source.dumped == asked  # going back asks nothing again


async def test_forward_leads_to_the_same_screen_and_help_is_none_of_them() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("2", "3", "question_mark", "escape")
        hosts = app.screen
        await app.press("left_curly_bracket")
        assert isinstance(app.screen, RanksScreen)
        hosts.draw_all()  # as a resize does after the next refresh
        await app.press("right_curly_bracket")
        await app.sees("job > hosts")
        await app.press("right_curly_bracket")
        await app.sees("No screen was visited after this one")
        for _ in range(MOST_PATHS):
            await app.press("2", "1")
        assert len(app.app._installed_screens) <= MOST_PATHS + 1


def test_frames_that_say_the_same_are_thinned_out_and_news_stays() -> None:
    received = ReceivedFrames()
    for number in range(41):  # ten seconds of four frames each
        received.take(at(number / 4))
    assert len(received) == 11
    received.take(at(10.3, scenes.hung()))
    received.take(at(10.5))
    received.take(at(10.6))
    assert received.back()
    shown = [received.shown]
    while received.back():
        shown.append(received.shown)
    assert sum(frame is not None and bool(frame.verdicts) for frame in shown) == 1


def test_the_number_of_frames_is_bounded() -> None:
    received = ReceivedFrames()
    for number in range(MOST + 50):
        received.take(at(number * 2))
    assert len(received) == MOST
    large = ReceivedFrames()
    frame = rare_scenes.many(4096)
    for number in range(60):
        large.take(replace(frame, now_ns=scenes.NOW + number * 4 * scenes.S))
    assert len(large) == 100_000 // 4096
    while large.back():
        pass
    assert large.age_s() >= 90  # further apart


def test_a_frame_that_is_looked_at_stays_when_the_bound_has_passed_it() -> None:
    received = ReceivedFrames()
    for number in range(MOST):
        received.take(at(number * 2))
    while received.back():
        pass
    first = received.shown
    for number in range(MOST, MOST + 20):
        received.take(at(number * 2))
    assert received.shown is first
    assert received.forward()
    assert received.shown is not first


async def test_brackets_step_through_frames_and_back_to_the_live_one() -> None:
    async with driven(at(0, scenes.hung())) as app:
        await app.give(at(5))
        await app.give(at(10))
        await app.sees("HEALTHY")
        await app.press("left_square_bracket")
        await app.sees("5.0s AGO, 2 of 3")
        await app.press("left_square_bracket")
        await app.sees("10s AGO, 1 of 3", "HUNG")
        await app.give(at(12))
        await app.sees("12s AGO, 1 of 4", "HUNG")
        await app.press("left_square_bracket")
        await app.sees("Nothing earlier")
        await app.press("enter")  # screens open in the past, too
        await app.sees("rank 37", "AGO")
        await app.press("escape", "right_square_bracket", "right_square_bracket")
        await app.sees("2.0s AGO, 3 of 4")
        await app.press("right_square_bracket")
        await app.wait_for(lambda: "AGO" not in app.text())
        await app.press("right_square_bracket")
        await app.sees("this is the live frame")


async def test_nothing_is_asked_of_agents_in_the_past() -> None:
    async with driven(at(0, scenes.hung())) as app:
        app.app.auto_capture = False
        await app.give(at(5, scenes.hung()))
        app.source.captured.clear()
        await app.press("left_square_bracket", "b")
        await app.sees("stacks of all ranks", "(b stacks again)")
        await app.press("b")
        await app.sees("agents know only about now", "Z or :live")
        await app.press("e")
        await app.press("escape", "t")
        asked = (*app.source.dumped, *app.source.captured, *app.source.inspected)
        assert asked == ()
        await app.press("Z")
        await app.wait_for(lambda: bool(app.source.inspected))


async def test_another_job_has_no_past_of_the_former_and_a_recorded_one_none() -> None:
    async with driven(at(0)) as app:
        await app.give(at(5))
        await app.press("left_square_bracket")
        await app.sees("AGO")
        frame = at(10, answer_scenes.jobs())
        other = replace(frame, job=frame.other_jobs[1], other_jobs=())
        await app.give(other)
        await app.wait_for(lambda: "AGO" not in app.text())
        gc.collect()
        assert len(app.app.received) == 1
        await app.give(answer_scenes.recorded())
        await app.press("left_square_bracket")
        await app.sees("Nothing changes here")
