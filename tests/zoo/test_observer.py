"""Observing programs: what fails a healthy control, and what comes of jobs without the recorder."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, Verdict
from zoo import observer
from zoo.ground_truth import Case, fault, truth
from zoo.observer import Observer, UnpreparedObserver
from zoo.test_ground_truth import RIGHT

SHORT = Case(lasts_s=0.1)
EVENTFUL = Case(lasts_s=0.1, allowed=(truth("not_entered", 1),))
FAULT = fault("not_entered", 1, "sleeping", within_s=0.3)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "STABLE_S", 0.1)
    monkeypatch.setattr(observer, "SETTLED_S", 0.1)


def frame(health: str, *verdicts: Verdict, ranks: int = 4) -> Frame:
    rank = SimpleNamespace(groups={1: ""}, rank=0, state="moving", group_progress={}, pending=(),
                           process=None, exit_info=None, threads=(), notes=())  # fmt: skip
    made = SimpleNamespace(health=health, verdicts=verdicts, problem=None,
                           ranks=dict.fromkeys(range(ranks), rank), notes=(), hosts=(), now_ns=0,
                           coverage=SimpleNamespace(notes=()))  # fmt: skip
    return cast("Frame", made)


def failure_of(case: Case, folder: Path, frames: Callable[[], Frame]) -> str:
    return Observer(case, folder, frames, lambda: True).control().failure


@pytest.mark.parametrize(
    ("health", "failure"), [("healthy", ""), ("empty", "no data at the end: empty")]
)
def test_a_control_without_data_at_the_end_fails(tmp_path: Path, health: str, failure: str) -> None:
    assert failure_of(SHORT, tmp_path, lambda: frame(health)) == failure


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


def unprepared(case: Case, folder: Path, said: Frame) -> UnpreparedObserver:
    if not case.healthy:
        (folder / "fault").write_text(str(time.monotonic_ns()))
    return UnpreparedObserver(case, folder, lambda: copy(said), lambda: True)


def test_a_fault_without_a_verdict_is_undecided(tmp_path: Path) -> None:
    outcome = unprepared(FAULT, tmp_path, frame("waiting")).fault()
    assert (tmp_path / "seen").exists()  # the job may begin: all ranks are seen
    assert (outcome.reached, outcome.failure) == ("undecided", "")
    assert outcome.reason == "no verdict, waiting"
    assert "rank 0 moving" in outcome.details


@pytest.mark.parametrize("case", [SHORT, FAULT])
def test_an_innocent_makes_it_wrong_with_what_was_seen(tmp_path: Path, case: Case) -> None:
    watch = unprepared(case, tmp_path, frame("hung", replace(RIGHT, culprits=(3,))))
    outcome = watch.control() if case.healthy else watch.fault()
    assert outcome.reached == "wrong"
    assert outcome.failure
    assert "rank 0 moving" in outcome.details
