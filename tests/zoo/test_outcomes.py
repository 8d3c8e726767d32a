"""Classes of runs without the recorder: what may stay open, and what must never be said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, Verdict, Why
from zoo import unprepared_table
from zoo.ground_truth import Case, Truth
from zoo.outcomes import of_control, of_fault, why_not_right, wrong_claim
from zoo.worker import Run

SLEEPING = Truth(("not_entered",), culprits=(1,), causes=("sleeping",))
CASE = Case((SLEEPING,))
CONTROL = Case()
RIGHT = Verdict(
    kind="not_entered",
    confidence="confirmed",
    progress="none",
    culprits=(1,),
    headline="rank 1 has not entered",
    why=Why("sleeping", "software", "MainThread sleeps"),
    next="",
)
UNKNOWN = Why("unknown", "unknown", "nobody knows")
NOBODY = replace(RIGHT, kind="undecided", culprits=(), confidence="suspect")


def frame(health: str, *verdicts: Verdict) -> Frame:
    return cast("Frame", SimpleNamespace(health=health, verdicts=verdicts))


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({}, "right"),
        ({"why": UNKNOWN}, "less exact"),
        ({"progress": "unknown"}, "less exact"),
        ({"confidence": "suspect"}, "undecided"),
        ({"confidence": "suspect", "why": UNKNOWN}, "undecided"),
        ({"culprits": ()}, "undecided"),
        ({"kind": "undecided", "culprits": ()}, "undecided"),
    ],
)
def test_a_verdict_that_says_less_is_not_wrong(changed: dict[str, Any], outcome: str) -> None:
    said = frame("hung", replace(RIGHT, **changed))
    assert not wrong_claim(CASE, said)
    assert of_fault(CASE, said) == outcome


@pytest.mark.parametrize("confidence", ["suspect", "confirmed"])
def test_an_innocent_is_never_named(confidence: str) -> None:
    said = replace(RIGHT, culprits=(2,), confidence=confidence)
    assert "innocent [2]" in wrong_claim(CASE, frame("held up", said))


def test_a_confirmed_verdict_of_another_kind_is_wrong() -> None:
    other = replace(RIGHT, kind="mismatch")
    assert "confirmed, but wrong" in wrong_claim(CASE, frame("hung", other))
    assert not wrong_claim(CASE, frame("hung", replace(other, confidence="suspect")))


def test_what_makes_progress_is_not_hung() -> None:
    slow, unseen = (Case((replace(SLEEPING, progress=(p,)),)) for p in ("active", "unknown"))
    assert "called hung" in wrong_claim(slow, frame("hung", RIGHT))
    assert not wrong_claim(unseen, frame("hung", RIGHT))
    assert of_fault(unseen, frame("hung", RIGHT)) == "less exact"


def test_two_root_causes_may_be_named_together_but_are_not_right_then() -> None:
    case = Case((SLEEPING, replace(SLEEPING, culprits=(3,))))
    both = frame("hung", replace(RIGHT, culprits=(1, 3)))
    assert not wrong_claim(case, both)
    assert of_fault(case, both) == "undecided"
    one = frame("hung", RIGHT)
    assert of_fault(case, one) == "undecided"


def test_nobody_is_named_before_the_fault() -> None:
    assert "before the fault" in wrong_claim(CASE, frame("held up", RIGHT), early=True)
    assert not wrong_claim(CASE, frame("waiting", NOBODY), early=True)


@pytest.mark.parametrize("health", ["hung", "dead", "diverged"])
def test_a_control_is_never_called_hung(health: str) -> None:
    assert f"called {health}" in wrong_claim(CONTROL, frame(health))


def test_a_control_may_be_called_what_is_allowed() -> None:
    allowed = Case(allowed=(SLEEPING,))
    assert not wrong_claim(allowed, frame("held up", replace(RIGHT, progress="active")))
    assert wrong_claim(allowed, frame("held up", replace(RIGHT, culprits=(2,))))
    assert wrong_claim(CONTROL, frame("held up", RIGHT))


@pytest.mark.parametrize(
    ("health", "outcome"),
    [("healthy", "right"), ("ended", "right"), ("held up", "right"), ("waiting", "undecided"),
     ("undecided", "undecided"), ("empty", "undecided")],
)  # fmt: skip
def test_a_control_that_nothing_is_said_of_is_undecided(health: str, outcome: str) -> None:
    assert of_control(frame(health)) == outcome


def test_what_was_missing_is_said() -> None:
    assert why_not_right(CASE, frame("hung", RIGHT), "right") == ""
    assert why_not_right(CASE, frame("waiting"), "undecided") == "no verdict, waiting"
    assert why_not_right(CONTROL, frame("undecided"), "undecided") == "undecided at the end"
    assert why_not_right(CASE, frame("undecided", NOBODY, NOBODY), "undecided") == NOBODY.why.text
    suspect = frame("held up", replace(RIGHT, confidence="suspect"))
    assert why_not_right(CASE, suspect, "undecided").startswith("only suspected: never confirmed")
    general = frame("hung", replace(RIGHT, why=UNKNOWN))
    assert why_not_right(CASE, general, "less exact").startswith("cause unknown, not sleeping")


def test_the_table_counts_each_class_and_takes_the_other_verdicts(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text(
        "| fault | truth | frtop | who s |\n|---|---|---|---|\n"
        "| Another process kills rank 0 with SIGKILL | dead 0: signal | dead 0 | 1 |\n"
    )
    runs = [
        Run("dead/killed", "sync", verdict="nothing", health="undecided", reached="undecided",
            reason="no verdict, undecided"),
        Run("dead/killed", "late", failure="its worker ended with status -9"),
        Run("healthy/far_ahead", "late", skipped="needs x"),
    ]  # fmt: skip
    unprepared_table.write(runs, page, other)
    text = page.read_text()
    assert "| dead 0: signal | dead 0 | undecided | undecided / **wrong** |" in text
    assert "1 programs without the recorder, 2 runs: 0 right, 0 less exact, 1 undecided" in text
    assert "Left out: healthy/far_ahead needs x." in text
