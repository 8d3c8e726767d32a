"""Contrast of every tone, computed; no colours where none are wanted."""

from __future__ import annotations

import pytest
from textual.color import Color

from connect.scripted_source import ScriptedSource
from frtop_tui.app import FrtopApp
from frtop_tui.appearance import theme_for
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import FILLED, TONES

from . import scenes


def luminance(color: Color) -> float:
    """As WCAG 2.2 defines relative luminance."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: Color, other: Color) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(("theme", "least"), [("dark", 4.5), ("contrast", 7.0)])
async def test_every_tone_can_be_read(theme: str, least: float) -> None:
    app = FrtopApp(ScriptedSource([scenes.hung()]), theme=theme, auto_capture=False)
    async with app.run_test() as pilot:
        await pilot.pause()
        view = app.screen.query(LineView).first()
        line = Color.from_rich_color(view.tone("line").bgcolor)
        for tone in ("", *TONES):
            style = view.tone(tone)
            color = Color.from_rich_color(style.color)
            own = contrast(color, Color.from_rich_color(style.bgcolor))
            assert own >= least, f"{tone}: {own:.1f}"
            if tone not in FILLED:
                assert contrast(color, line) >= least, f"{tone} at the cursor"


@pytest.mark.parametrize("theme", ["ansi", "plain"])
async def test_without_our_colours_attributes_tell_tones_apart(
    theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FrtopApp(ScriptedSource([scenes.hung()]), theme=theme, auto_capture=False)
    async with app.run_test() as pilot:
        await pilot.pause()
        await pilot.press("2")
        await pilot.pause()
        view = app.screen.query(LineView).first()
        assert view.tone("cursor").reverse
        assert view.tone("alarm").reverse
        assert view.tone("line").reverse
        assert view.tone("dim").dim
        colors = set()
        for strip in app.screen._compositor.render_strips():
            for segment in strip.render(app.console).split("\x1b["):
                codes = segment.partition("m")[0]
                if segment != codes:
                    colors |= set(codes.split(";"))
        true_colour = {"38", "48"} & colors
        assert not true_colour
        if theme == "plain":
            chosen = {f"{n}" for n in (*range(30, 38), *range(40, 48), *range(90, 108))}
            assert not chosen & colors


@pytest.mark.parametrize(
    ("name", "environment", "theme"),
    [
        ("auto", {"TERM": "xterm-256color"}, "dark"),
        ("auto", {"TERM": "xterm", "COLORTERM": "truecolor"}, "dark"),
        ("auto", {"TERM": "linux"}, "ansi"),
        ("auto", {"TERM": "xterm"}, "ansi"),
        ("auto", {"TERM": "xterm-256color", "NO_COLOR": "1"}, "plain"),
        ("auto", {"TERM": "xterm-256color", "NO_COLOR": ""}, "dark"),
        ("contrast", {"TERM": "linux", "NO_COLOR": "1"}, "contrast"),
    ],
)
def test_auto_follows_the_terminal(name: str, environment: dict[str, str], theme: str) -> None:
    assert theme_for(name, environment) == theme
