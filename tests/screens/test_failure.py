"""A program that fails ends at once, and what it writes can be read and reported."""

from __future__ import annotations

import pytest

from connect.scripted_source import ScriptedSource
from frtop_tui.app import FrtopApp
from frtop_tui.screens.failure import MOST_FRAMES, NEXT_STEP, failure_text

from . import scenes


def deep(calls: int) -> None:
    if not calls:
        raise KeyError("x" * 100_000)
    deep(calls - 1)


def test_a_failure_is_short_however_deep_and_whatever_its_text() -> None:
    with pytest.raises(KeyError) as caught:
        deep(200)
    text = failure_text(caught.value)
    assert text.count("in deep") <= MOST_FRAMES
    assert len(text) < 10_000
    assert text.endswith(NEXT_STEP)


async def test_no_variables_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    app = FrtopApp(ScriptedSource([scenes.hung()]), auto_capture=False)

    async def fail() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            app.call_later(lambda: 1 // 0)
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert app.return_code == 1
    written = capsys.readouterr().err
    assert "ZeroDivisionError" in written
    assert NEXT_STEP.splitlines()[0][:40] in written
    assert "locals" not in written
