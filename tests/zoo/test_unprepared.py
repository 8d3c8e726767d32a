"""A job that nobody prepared: it hears nothing of frtop, and is told from the others here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, Verdict, Why
from frtop_tui.prepare import prepare
from zoo.ground_truth import Case, Truth
from zoo.observer import UnpreparedObserver
from zoo.runner import _of_job, case_of, comes_late, missing, names, without_frtop

SLEEPING = Truth(("not_entered",), culprits=(1,), causes=("sleeping",))
FAULT = Case((SLEEPING,), within_s=0.3)
VERDICT = Verdict(
    kind="not_entered",
    confidence="confirmed",
    progress="none",
    culprits=(1,),
    headline="rank 1 has not entered",
    why=Why("sleeping", "software", "MainThread sleeps"),
    next="",
)


def frame(health: str, *verdicts: Verdict) -> Frame:
    rank = SimpleNamespace(groups={1: ""}, rank=0, state="moving", group_progress={}, pending=(),
                           process=None, exit_info=None, threads=(), notes=())  # fmt: skip
    made = SimpleNamespace(health=health, verdicts=verdicts, ranks=dict.fromkeys(range(4), rank),
                           problem=None, notes=(), hosts=(), now_ns=0,
                           coverage=SimpleNamespace(notes=()))  # fmt: skip
    return cast("Frame", made)


def observer(case: Case, folder: Path, frames: Callable[[], Frame]) -> UnpreparedObserver:
    return UnpreparedObserver(case, folder, frames, lambda: True)


def mark_fault(folder: Path) -> None:
    (folder / "fault").write_text(str(time.monotonic_ns()))


def test_its_environment_has_nothing_of_frtop() -> None:
    prepared = prepare({"PYTHONPATH": "/mine", "FRTOP_DIR": "/d", "HOME": "/h"})
    assert without_frtop(prepared) == {"PYTHONPATH": "/mine", "HOME": "/h"}


def test_the_frame_of_another_job_is_empty() -> None:
    job = wire.Job("127.0.0.1", 29500, 4, "", 0, "nonce", "parent.py")
    shown = Frame(now_ns=1, wall_ns=2, health="hung", job=job)
    assert _of_job(shown, "127.0.0.1:29500") is shown
    assert _of_job(shown, "127.0.0.1:29501").health == "connecting"


def test_programs_about_the_recorder_are_left_out() -> None:
    about = {name for name in names() if missing(case_of(name), prepared=False) == "recorder"}
    assert about
    assert all(name.startswith(("late_start/", "device/")) for name in about)
    assert not any(missing(case_of(name)) for name in about)


def test_frtop_comes_late_to_half_of_the_modes_of_a_hang() -> None:
    assert comes_late("not_entered/sleeping", "late")
    assert not comes_late("not_entered/sleeping", "sync")
    assert not comes_late("dead/killed", "late")
    assert not comes_late("healthy/pipeline", "late")


def test_the_job_begins_when_all_ranks_are_seen(tmp_path: Path) -> None:
    mark_fault(tmp_path)
    observer(FAULT, tmp_path, lambda: frame("healthy")).fault()
    assert (tmp_path / "seen").exists()


def test_a_fault_without_a_verdict_is_undecided(tmp_path: Path) -> None:
    mark_fault(tmp_path)
    outcome = observer(FAULT, tmp_path, lambda: frame("waiting")).fault()
    assert (outcome.reached, outcome.failure) == ("undecided", "")
    assert outcome.reason == "no verdict, waiting"
    assert "rank 0 moving" in outcome.details


def test_a_right_verdict_ends_the_run_soon(tmp_path: Path) -> None:
    mark_fault(tmp_path)
    case = Case((SLEEPING,), within_s=20)
    begun = time.monotonic()
    outcome = observer(case, tmp_path, lambda: frame("hung", VERDICT)).fault()
    assert (outcome.reached, outcome.failure, outcome.details) == ("right", "", "")
    assert outcome.confirmed_s is not None
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("fault", [False, True])
def test_an_innocent_makes_it_wrong_with_what_was_seen(tmp_path: Path, fault: bool) -> None:
    case = FAULT if fault else Case(lasts_s=0.1)
    if fault:
        mark_fault(tmp_path)
    said = frame("hung", replace(VERDICT, culprits=(3,)))
    watch = observer(case, tmp_path, lambda: said)
    outcome = watch.fault() if fault else watch.control()
    assert outcome.reached == "wrong"
    assert outcome.failure
    assert "rank 0 moving" in outcome.details
