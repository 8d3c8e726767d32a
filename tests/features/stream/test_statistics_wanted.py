"""A stream asks for what its events need: *slow* is found in statistics."""

from __future__ import annotations

from typing import Any

import pytest

from frtop_tui.cli import main
from frtop_tui.errors import NoJob


class Nobody:
    """A source without a job, that says what was asked of it."""

    def __init__(self) -> None:
        self.wanted: list[str] = []

    def want_statistics(self, _wanted: Any, whom: str) -> None:
        self.wanted.append(whom)

    def frame(self) -> Any:
        raise NoJob("no job", "start one")

    def close(self) -> None:
        self.wanted.append("closed")


@pytest.mark.parametrize(
    ("only", "wanted"),
    [
        ((), ["verdicts", "closed"]),
        (("--only", "states"), ["closed"]),
        (("--gauges",), ["verdicts", "gauges", "closed"]),
        (("--only", "gauges"), ["gauges", "closed"]),
    ],
)
def test_verdicts_and_skew_need_statistics(
    monkeypatch: pytest.MonkeyPatch, only: tuple[str, ...], wanted: list[str]
) -> None:
    source = Nobody()
    monkeypatch.setattr("frtop_tui.cli.live.connect", lambda _: source)
    assert main(["stream", *only]) == 1
    assert source.wanted == wanted
