"""`frtop profile` before it orders anything, on a job that is scripted."""

from __future__ import annotations

import pytest

from frtop_tui.cli import main
from frtop_tui.diagnosis.model import Frame
from frtop_tui.sources.base import ScriptedSource
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

    monkeypatch.setattr("frtop_tui.cli.profile.connect", lambda _: source)
    monkeypatch.setattr("frtop_tui.cli.profile.can_ask", lambda: True)
    monkeypatch.setattr("frtop_tui.cli.profile.agrees", refuses)
    assert main(["profile", "--ranks", str(rank)]) == 1
    (before,) = asked
    assert "the rank stands still while torch writes" in before
    assert said in before
    assert ("still, for" in before) == bool(said)
    assert source.profiled == []
