"""Control characters from jobs, hosts and files never reach the terminal."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from frtop_tui.cli import main
from frtop_tui.errors import Unreadable
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import UNPRINTABLE, printable
from frtop_tui.job.native_stacks import cost
from frtop_tui.text.plain import text
from frtop_tui.text.stacks import rank_lines

from . import answer_scenes, native_scenes, scenes
from .driving import driven

hints_of = cache(get_type_hints)
EVIL = "\x1b]0;own\x07\x9b31m\u202e\udcff[/b][@click=app.quit]"


def poisoned(value: Any, hint: Any = None) -> Any:
    """The value with control characters appended to every free text in it."""
    if isinstance(value, str):
        return value + EVIL if hint is str else value
    if isinstance(value, tuple):
        within = str if hint == tuple[str, ...] else None
        return tuple(poisoned(one, within) for one in value)
    if isinstance(value, dict):
        return {key: poisoned(one) for key, one in value.items()}
    if isinstance(value, msgspec.Struct):
        hints = hints_of(type(value))
        names = value.__struct_fields__
        return structs.replace(value, **{n: poisoned(getattr(value, n), hints[n]) for n in names})
    return value


def harmless(shown: str) -> bool:
    return shown.isprintable()


async def test_native_stacks_pass_on_no_control_characters() -> None:
    frame = native_scenes.with_native(native_scenes.taken(90_077, note="stopped"))
    frame = replace(poisoned(frame), read_only="")
    async with driven(frame, size=(160, 50)) as app:
        await app.press("enter", "N")
        await app.sees("pt_gloo_runloop", UNPRINTABLE)
        assert all(map(harmless, app.text().split("\n"))), app.text()
    rank = frame.ranks[37]
    said = [*rank_lines(rank, frame.now_ns, native=True), printable(cost(rank))]
    assert any("gloo::ring" in line for line in said)
    assert all(map(harmless, said)), said


async def test_no_screen_passes_on_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a copied text may be written
    async with driven(scenes.connecting(), size=(160, 50)) as app:
        for scene in (scenes.hung, answer_scenes.recorded):
            writing = Writing("capture", "written", f"a{EVIL}", problem=Problem(EVIL, EVIL))
            await app.give(replace(poisoned(scene()), writings=(writing,)))
            for key in ("1", "2", "enter", "escape", "3", "4", "5", "6", "7", "8", "question_mark"):
                await app.press(key)
                shown = app.text()
                assert all(map(harmless, shown.split("\n"))), (key, shown)
            await app.press("escape", "1")
            await app.sees(UNPRINTABLE)
            app.app.action_copy()
            assert all(map(harmless, app.app.clipboard.split("\n")))


async def test_no_notification_passes_on_control_characters_or_markup() -> None:
    async with driven(scenes.healthy(), size=(120, 40)) as app:
        await app.press("2")
        failed = Writing("capture", "failed", "a.cap", problem=Problem(f"[Errno 5] {EVIL}"))
        await app.give(replace(scenes.healthy(), writings=(failed,)))
        await app.sees("[Errno 5]")
        app.app.notify(f"noted {EVIL}")
        await app.sees("noted", "[@click=app.quit]")
        assert all(map(harmless, app.text().split("\n")))


def test_no_command_prints_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = poisoned(scenes.hung())
    assert all(map(harmless, text(frame)))

    def fail(_: object) -> int:
        raise Unreadable(f"no{EVIL}", f"try\n{EVIL}")

    monkeypatch.setattr("frtop_tui.cli.diagnose.run", fail)
    main(["diagnose"])
    assert all(map(harmless, capsys.readouterr().err.split("\n")))


def test_harmless_text_is_unchanged() -> None:
    assert printable("prüfe_日本 rank 3 ✓") == "prüfe_日本 rank 3 ✓"
    assert printable("a\tb\nc\x1b[31m") == f"a b c{UNPRINTABLE}[31m"
