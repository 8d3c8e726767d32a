"""Observing a healthy control: a control without data has failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from frtop_tui.diagnosis.model import Frame
from zoo.ground_truth import Case, Truth
from zoo.observer import Observer

SHORT = Case(lasts_s=0.1)
EVENTFUL = Case(lasts_s=0.1, allowed=(Truth(("not_entered",), culprits=(1,)),))


def frame(health: str, ranks: int = 4) -> Frame:
    return cast("Frame", SimpleNamespace(health=health, verdicts=(), ranks=range(ranks)))


def failure_of(case: Case, folder: Path, frames: Callable[[], Frame]) -> str:
    return Observer(case, folder, frames, lambda: True).control().failure


@pytest.mark.parametrize("health", ["healthy", "waiting", "held up", "ended"])
def test_a_control_observed_to_its_end_passes(tmp_path: Path, health: str) -> None:
    assert failure_of(SHORT, tmp_path, lambda: frame(health)) == ""


@pytest.mark.parametrize("health", ["unreachable", "connecting", "empty"])
def test_a_control_without_data_at_the_end_fails(tmp_path: Path, health: str) -> None:
    assert "no data at the end" in failure_of(SHORT, tmp_path, lambda: frame(health))


def test_a_control_without_its_event_fails(tmp_path: Path) -> None:
    assert "did not happen" in failure_of(EVENTFUL, tmp_path, lambda: frame("healthy"))
    (tmp_path / "fault").write_text("1000")
    assert failure_of(EVENTFUL, tmp_path, lambda: frame("healthy")) == ""


def test_a_controls_time_begins_when_it_is_first_seen(tmp_path: Path) -> None:
    """Its start may take longer than the control itself."""
    seen = time.monotonic() + 3 * SHORT.lasts_s

    def found() -> Frame:
        return frame("healthy", ranks=4 if time.monotonic() > seen else 0)

    assert failure_of(SHORT, tmp_path, found) == ""
