"""How a control is watched: what was not seen of it counts as amiss."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from frtop_tui.diagnosis.judged import Frame
from zoo.ground_truth import Case, Truth
from zoo.runner import _Watch

SHORT = Case(lasts_s=0.1)
EVENTFUL = Case(lasts_s=0.1, allowed=(Truth(("not_entered",), culprits=(1,)),))


def frame(health: str, ranks: int = 4) -> Frame:
    return cast("Frame", SimpleNamespace(health=health, verdicts=(), ranks=range(ranks)))


def amiss(case: Case, folder: Path, frames: Callable[[], Frame]) -> str:
    return _Watch(case, folder, frames, lambda: True).control().amiss


@pytest.mark.parametrize("health", ["healthy", "waiting", "held up", "ended"])
def test_a_control_that_was_watched_to_its_end_is_right(tmp_path: Path, health: str) -> None:
    assert amiss(SHORT, tmp_path, lambda: frame(health)) == ""


@pytest.mark.parametrize("health", ["unheard", "connecting", "empty"])
def test_a_control_that_is_not_heard_in_the_end_is_amiss(tmp_path: Path, health: str) -> None:
    assert "not heard in the end" in amiss(SHORT, tmp_path, lambda: frame(health))


def test_a_control_in_which_nothing_happened_is_amiss(tmp_path: Path) -> None:
    assert "did not happen" in amiss(EVENTFUL, tmp_path, lambda: frame("healthy"))
    (tmp_path / "frozen").write_text("1000")
    assert amiss(EVENTFUL, tmp_path, lambda: frame("healthy")) == ""


def test_a_control_lasts_from_when_it_is_seen(tmp_path: Path) -> None:
    """Starting it may take longer than all of it."""
    seen = time.monotonic() + 3 * SHORT.lasts_s

    def found() -> Frame:
        return frame("healthy", ranks=4 if time.monotonic() > seen else 0)

    assert amiss(SHORT, tmp_path, found) == ""
