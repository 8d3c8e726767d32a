"""`frtop profile` before it orders anything, on a job that is scripted."""

from __future__ import annotations

import sys

import pytest

from connect.scripted_source import ScriptedSource
from frtop_tui.cli import main, output
from frtop_tui.diagnosis.model import Frame
from screens.scenes import healthy, hung


@pytest.mark.parametrize(
    ("frame", "rank", "said"),
    [
        pytest.param(hung(), 37, "Rank 37 stands still, for 4m12s", id="stands still"),
        pytest.param(healthy(), 0, "", id="gets on"),
    ],
)
def test_whoever_stands_still_is_named_before_the_question(
    frame: Frame, rank: int, said: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source = ScriptedSource([frame])
    asked: list[str] = []

    def refuses(_: str) -> bool:
        asked.append(capsys.readouterr().err)
        return False

    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: source)
    monkeypatch.setattr("frtop_tui.features.profile.command.can_ask", lambda: True)
    monkeypatch.setattr("frtop_tui.features.profile.command.agrees", refuses)
    assert main(["profile", "--rank", str(rank)]) == 1
    (before,) = asked
    assert "the rank stands still while torch writes" in before
    assert said in before
    assert ("still, for" in before) == bool(said)
    assert source.orders["profile"] == []


@pytest.mark.parametrize("terminal", [True, False])
def test_on_a_terminal_cost_text_breaks_between_words(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = "0-3," * 10
    text = f"ranks {ranks} stand still while torch writes its events into shared memory"
    monkeypatch.setattr(output, "stderr_width", lambda: 30)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    output.say(text, "end")
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(lines) == f"{text} end"
    assert any(ranks in line for line in lines)
    assert (len(lines) > 2) == terminal
    assert all(len(line) <= 30 or line.strip() == ranks for line in lines) == terminal
