"""Captures on `e`, automatic captures, and recorded frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import job_key
from frtop_tui.job.units import byte_size, local_time
from frtop_tui.text.alarm import job_to_capture
from frtop_tui.widgets.file_status import describe_file

from . import answer_scenes, scenes
from .driving import driven


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.iterdir())


def suspect(frame: Frame) -> Frame:
    return replace(frame, verdicts=(replace(frame.verdicts[0], confidence="suspect"),))


@pytest.mark.parametrize("health", ["hung", "dead", "mismatch"])
def test_a_confirmed_hang_is_captured_automatically_once(health: str) -> None:
    frame = replace(scenes.hung(), health=health)
    assert job_to_capture(frame, ()) == job_key(scenes.JOB)
    assert job_to_capture(frame, {job_key(scenes.JOB)}) is None


@pytest.mark.parametrize(
    "frame",
    [
        suspect(scenes.hung()),
        replace(scenes.hung(), health="held up"),
        replace(scenes.hung(), health="unreachable"),
        replace(scenes.hung(), verdicts=()),
        replace(scenes.hung(), job=None),
        answer_scenes.recorded(),
        scenes.healthy(),
    ],
    ids=["suspect", "held up", "unreachable", "no verdict", "no job", "recorded", "healthy"],
)
def test_nothing_else_is_captured_automatically(frame: Frame) -> None:
    assert job_to_capture(frame, ()) is None


async def test_the_app_captures_a_confirmed_hang_once_per_job(folder: Path) -> None:
    async with driven(suspect(scenes.hung())) as app:
        assert app.source.captured == []
        await app.press("Z", "ctrl+p")  # also while paused and below the palette
        await app.give(scenes.hung())
        await app.give(scenes.dead())
        await app.wait_for(lambda: len(app.source.captured) == 1)
        ((path, automatic),) = app.source.captured
        assert automatic
        assert path.parent == folder
        assert path.name.startswith("frtop-llama-70b-")
        again = structs.replace(scenes.JOB, attempt=1)
        await app.give(replace(scenes.hung(), job=again))
        assert [automatic for _, automatic in app.source.captured] == [True, True]


async def test_without_auto_capture_only_e_captures() -> None:
    async with driven(scenes.healthy()) as app:
        app.app.auto_capture = False
        await app.give(scenes.hung())
        await app.press("e")
        assert [automatic for _, automatic in app.source.captured] == [False]


async def test_e_captures_and_shows_progress_and_path() -> None:
    async with driven(scenes.healthy(), size=(100, 30)) as app:
        await app.press("enter", "e")
        ((path, automatic),) = app.source.captured
        assert not automatic
        writing = Writing("capture", "collecting", str(path), 23, 64)
        await app.give(replace(scenes.healthy(), writings=(writing,)))
        await app.sees("capturing 23/64 ranks", "(e capture)")
        await app.press("e")
        await app.sees("A capture is in progress")
        assert len(app.source.captured) == 1
        done = replace(writing, state="written", size=3_250_000)
        await app.give(replace(scenes.healthy(), writings=(done,)))
        # Screens without a verdict panel show a notification.
        await app.sees(f"captured: {path.name}, 3.25 MB")
        await app.press("1")
        await app.sees(f"file  captured: {path.name}, 3.25 MB", "captured · 64/64 reporting")


async def test_a_file_that_is_being_written_is_not_lost_without_a_word() -> None:
    frame = replace(scenes.hung(), writings=(Writing("capture", "collecting", "a.cap", 1, 64),))
    async with driven(frame) as app:
        await app.press("Q")
        await app.sees("The writing of the capture ends with frtop. Press again to quit.")
        await app.press("Q")
        await app.wait_for(lambda: app.app._exit, "frtop ends")


async def test_the_path_or_the_reason_stays_below_the_verdict() -> None:
    failed = Writing(
        "capture", "failed", "x.cap", problem=Problem("/full cannot be written: cd elsewhere")
    )
    async with driven(answer_scenes.captured()) as app:
        for size in ((80, 24), (100, 30), (200, 60), (80, 24)):
            await app.resize(*size)
            await app.sees("captured automatically: frtop-llama-70b-0302.cap, 3.25 MB")
        await app.press("2")
        await app.give(replace(scenes.hung(), writings=(failed,)))
        await app.sees("the capture failed: /full cannot be")
        await app.press("1")
        await app.sees("the capture failed: /full cannot be written: cd elsewhere")
        app.source.captured.clear()
        await app.give(scenes.no_agent())
        await app.press("e")
        await app.sees("There is no job to capture.")
        assert app.source.captured == []


def test_what_a_file_lacks_is_shown_after_its_path() -> None:
    writing = Writing(
        "capture", "written", "/elsewhere/a.cap", size=812, problem=Problem("node7 is silent")
    )
    assert describe_file(writing) == "captured: /elsewhere/a.cap, 812 B; node7 is silent"
    assert byte_size(3_250_000) == "3.25 MB"


async def test_a_deleted_folder_is_reported_without_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object, **__: object) -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("frtop_tui.app.default_path", gone)
    async with driven(scenes.hung()) as app:
        await app.sees("Cannot capture in this folder")
        await app.press("e", "2")
        await app.sees("ranks 64")


async def test_a_recorded_frame_says_so_on_every_screen_and_live_keys_do_nothing() -> None:
    frame = answer_scenes.recorded()
    async with driven(frame, size=(100, 40)) as app:
        await app.sees("the history of rank 7 is missing")
        for key in ("1", "enter", "t", "2", "3", "4", "J"):
            await app.press(key)
            await app.sees(f"CAPTURE of {local_time(scenes.WALL)} by alice@laptop · not live")
            await app.sees("5m48s were left")
            assert "times out in" not in app.text()
            assert "read-only" not in app.text()
        await app.press("1", "enter")
        await app.sees("(b stacks)", "(e capture)", "threading.py")
        await app.press("b")
        await app.sees("There is no live job to take stacks of", "is a capture of 20")
        await app.press("e", "Z")
        await app.sees("Nothing changes here")
        assert "PAUSED" not in app.text()
        await app.press("question_mark")
        await app.resize(120, 60)
        await app.sees("(stacks: take its stacks now) unavailable: There is no live job")
        await app.press("escape", "4", "b")
        source = app.source
        assert (source.dumped, source.inspected, source.captured) == ([], [], [])
        assert frame.recorded is not None
        await app.give(replace(frame, recorded=replace(frame.recorded, kind="black box")))
        await app.press("1")
        await app.sees("BLACK BOX of ")
        await app.press("e")  # into one file
        assert [automatic for _, automatic in source.captured] == [False]
