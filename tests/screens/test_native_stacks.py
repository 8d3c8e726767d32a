"""`N`: says what it costs, acts when it is pressed again, and shows what came."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_tui.job.model import HostView, Recorded
from frtop_tui.job.native_stacks import cost, group_alike
from frtop_tui.screens import native_key
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.widgets.spans import text_of
from frtop_tui.widgets.stack_pane import native_lines, native_title

from . import scenes
from .driving import driven
from .native_scenes import refused, stacks, taken, with_native

PID = 90_077
SIZE = (120, 40)


async def test_the_first_press_says_what_it_costs_and_the_second_acts() -> None:
    async with driven(scenes.hung(), size=SIZE) as app:
        await app.press("enter", "N")
        await app.sees("Takes about 0.7s, at most 5s", "in which rank 37", "again")
        assert app.source.taken_native == []
        await app.press("N")
        assert app.source.taken_native == [37]
        await app.sees("taking them: rank 37 stands still meanwhile")
        await app.press("N", "N")  # nothing while it is under way
        assert app.source.taken_native == [37]
        await app.give(with_native(taken(PID)))
        await app.sees("native stacks, <1s old, pystack held it 0.4s", "C c10d::Work::wait")
        await app.sees("pt_gloo_runloop", "C gloo::ring", "◀ yours")
        await app.press("b")
        await app.sees("_try_get_data")
        assert "C gloo::ring" not in app.text()
        await app.press("N")
        await app.sees("C gloo::ring", "Takes 0.4s, like last time")
        assert app.source.taken_native == [37]


async def test_a_press_counts_for_its_rank_only_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with driven(scenes.hung(), size=SIZE) as app:
        with monkeypatch.context() as patch:
            patch.setattr(native_key, "AGAIN_S", 0.0)
            await app.press("enter", "N", "N", "N")
        await app.press("p", "n", "N", "n", "N")
        await app.sees("in which rank 38")
        assert app.source.taken_native == []
        await app.press("N")
        assert app.source.taken_native == [38]
        await app.press("p")
        await app.wait_for(lambda: "taking them" not in app.text())


async def test_why_there_are_none_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with driven(scenes.hung(), size=SIZE) as app:
        await app.press("enter", "N", "N")
        await app.sees("taking them")
        with monkeypatch.context() as patch:
            patch.setattr(native_key, "LOST_S", 0.0)
            await app.give(with_native(None))
            await app.sees("no native stacks yet; N takes them")
        await app.give(with_native(refused(PID, "stopped", "process 90077 is stopped")))
        await app.sees("native stacks", "process 90077 is stopped")


async def test_a_file_shows_those_that_it_has() -> None:
    async with driven(scenes.hung(), size=SIZE) as app:
        for kind in ("capture", "black box", "stacks"):
            recorded = replace(scenes.hung(), recorded=Recorded(kind, "x.cap", scenes.WALL))
            await app.press("1")
            await app.give(recorded)
            await app.press("enter", "N")
            await app.sees("There is no live job to take native stacks of")
            await app.press("1")
            await app.give(with_native(taken(PID), frame=recorded))
            await app.press("enter", "N")
            await app.sees("C gloo::ring")
            await app.press("N")
            await app.wait_for(lambda: "C gloo::ring" not in app.text())
            app.app.clear_notifications()
        assert app.source.taken_native == []


def test_it_is_unavailable_with_a_reason() -> None:
    frame = scenes.hung()
    rank = frame.ranks[37]
    assert why_unavailable("native", frame, rank.host, rank) == ""
    read_only = replace(frame, read_only="started with --read-only")
    assert "started with --read-only" in why_unavailable("native", read_only, rank.host, rank)
    hosts = tuple(HostView(host.name, "reporting", may_act=False) for host in frame.hosts)
    reader = replace(frame, hosts=hosts)
    assert "read-only on node4" in why_unavailable("native", reader, rank.host, rank)
    dead = scenes.dead()
    ended = next(view for view in dead.ranks.values() if view.exit_info is not None)
    for action in ("native", "take"):
        assert "has ended" in why_unavailable(action, dead, ended.host, ended)
    assert why_unavailable("take", dead) == ""  # of all ranks
    stopped = replace(rank, state="stopped")
    assert "stays so" in why_unavailable("native", frame, rank.host, stopped)


@pytest.mark.parametrize("width", [24, 40, 60, 120])
def test_lines_fit_and_frames_of_c_are_marked_by_a_letter(width: int) -> None:
    rank = with_native(taken(PID)).ranks[37]
    lines = [text_of(line) for line in native_lines(rank, width)]
    assert sum(line.startswith("C ") for line in lines) == 5
    assert any(line.startswith("  all_reduce") for line in lines)
    assert any("3 threads alike" in line for line in lines)
    assert sum("the interpreter's start: 2" in line for line in lines) == 1
    assert not any("Py_RunMain" in line for line in lines)
    frames = [line for line in lines if line.startswith(("C ", "  "))]
    assert max(map(len, frames)) <= max(width, 40)


def test_what_else_must_be_known_comes_first() -> None:
    note = "process 90077 was stopped by somebody else meanwhile, and stays so"
    rank = with_native(taken(PID, note=note)).ranks[37]
    assert text_of(native_lines(rank, 100)[0]) == note


def test_without_any_it_says_how_to_take_them() -> None:
    rank = scenes.hung().ranks[37]
    assert "N takes them" in text_of(native_lines(rank, 80)[0])
    assert native_title(rank, scenes.NOW) == "native stacks"
    assert cost(rank) == (
        "Takes about 0.7s, at most 5s, in which rank 37 (pid 90077 on node4) stands still."
    )


def test_threads_in_which_an_op_may_run_come_after_the_main_thread() -> None:
    main, op, *idle = stacks(PID)
    ordered = group_alike((main, *idle, op))
    assert [(alike.first.name, alike.count) for alike in ordered] == [
        ("MainThread", 1), ("pt_gloo_runloop", 1), ("python", 3),
    ]  # fmt: skip
    assert group_alike(()) == ()
