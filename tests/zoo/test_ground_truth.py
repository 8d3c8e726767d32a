"""Comparing verdicts with the ground truth, with the recorder and without, and the zoo's tables."""

from __future__ import annotations

import ast
from dataclasses import replace as changed_run
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, Verdict, Why
from zoo import table
from zoo.ground_truth import Case, fault, truth
from zoo.outcomes import of_control, of_fault, why_not_right, wrong_claim
from zoo.runner import PROGRAMS, case_of, description_of, names
from zoo.wording import blame_text, truth_text, verdict_text
from zoo.worker import Run

SLEEPING = truth("not_entered", 1, "sleeping", says="time.sleep")
FAULT = Case((SLEEPING,))
SLOW = Case((replace(SLEEPING, progress=("active",)),))
CONTROL = Case()
ALLOWED = Case(allowed=(SLEEPING,))
TIE = fault("mismatch", parties=((0,), (1,)))
RIGHT = Verdict(
    kind="not_entered",
    confidence="confirmed",
    progress="none",
    culprits=(1,),
    headline="rank 1 has not entered",
    why=Why("sleeping", "software", "MainThread sleeps in time.sleep"),
    next="",
)
ACTIVE = replace(RIGHT, progress="active")
UNKNOWN = Why("unknown", "unknown", "nobody knows")
NOBODY = replace(RIGHT, kind="undecided", culprits=(), confidence="suspect")
OTHER = truth("dead", 3)
DEAD = replace(RIGHT, kind="dead", culprits=(3,))


def frame(health: str, *verdicts: Verdict) -> Frame:
    return cast("Frame", SimpleNamespace(health=health, verdicts=verdicts))


def innocent(rank: int, **more: Any) -> Verdict:
    return replace(RIGHT, culprits=(rank,), **more)


@pytest.mark.parametrize(
    ("changed", "text", "outcome"),
    [
        ({}, "", "right"),
        ({"kind": "stuck", "confidence": "suspect"}, "kind stuck, not not_entered", "undecided"),
        ({"culprits": (), "progress": "active"}, "culprits (), not (1,)", "undecided"),
        ({"why": Why("lock", "software", "in time.sleep")}, "cause lock, not", "less exact"),
        ({"why": UNKNOWN}, "cause unknown, not sleeping", "less exact"),
        ({"progress": "unknown"}, "progress unknown, not none", "less exact"),
        ({"why": Why("sleeping", "software", "asleep")}, "text lacks 'time.sleep'", "less exact"),
        ({"confidence": "suspect"}, "never confirmed", "undecided"),
        ({"kind": "undecided", "culprits": ()}, "kind undecided, not", "undecided"),
    ],
)
def test_a_mistake_is_described_and_a_verdict_that_says_less_is_not_wrong(
    changed: dict[str, Any], text: str, outcome: str
) -> None:
    verdict = replace(RIGHT, **changed)
    assert FAULT.confirmed([verdict]) == (outcome == "right")
    assert text in FAULT.mistakes([verdict])
    said = frame("hung", verdict)
    assert not wrong_claim(FAULT, said)
    assert of_fault(FAULT, said) == outcome


def test_culprits_may_be_named_before_progress_is_known() -> None:
    early = replace(RIGHT, progress="unknown", confidence="suspect")
    assert FAULT.identified([early])
    assert not FAULT.confirmed([early])


def test_two_root_causes_need_exactly_two_verdicts() -> None:
    case = Case((SLEEPING, OTHER))
    assert case.confirmed([DEAD, RIGHT])
    for said in ([RIGHT], [RIGHT, RIGHT], [RIGHT, DEAD, NOBODY]):
        assert not case.identified(said)
    assert "1 verdicts, not 2" in case.mistakes([RIGHT])
    twice = Case((SLEEPING, replace(SLEEPING, culprits=(3,))))
    for one in (RIGHT, replace(RIGHT, culprits=(1, 3))):  # together is not wrong, nor right
        assert not wrong_claim(twice, frame("hung", one))
        assert of_fault(twice, frame("hung", one)) == "undecided"


def test_a_suspicion_suffices_where_frtop_cannot_confirm() -> None:
    suspected = Case((replace(SLEEPING, suspected="one look only"),))
    assert suspected.confirmed([replace(RIGHT, confidence="suspect")])


def test_parties_are_compared_in_any_order() -> None:
    verdict = replace(RIGHT, kind="mismatch", culprits=(), parties=((1,), (0,)))
    assert TIE.identified([verdict])
    assert not TIE.identified([replace(verdict, parties=((0, 1),))])


@pytest.mark.parametrize(
    ("case", "said", "claim", "without"),
    [
        # The claim with the recorder, and that of a job without it; "" where there is none.
        (FAULT, frame("hung", RIGHT), "", ""),
        (FAULT, frame("hung", RIGHT, innocent(0)), "innocent [0]", "innocent [0]"),
        (FAULT, frame("held up", innocent(2, confidence="suspect")), "innocent", "innocent [2]"),
        (TIE, frame("hung", innocent(0)), "innocent [0]", "innocent [0]"),
        (FAULT, frame("hung", replace(RIGHT, kind="mismatch")), "", "confirmed, but wrong"),
        (FAULT, frame("x", replace(RIGHT, kind="mismatch", confidence="suspect")), "", ""),
        (SLOW, frame("hung", RIGHT), "called hung", "called hung"),
        (SLOW, frame("held up", ACTIVE), "", ""),
        (CONTROL, frame("hung"), "called hung", "called hung"),
        (CONTROL, frame("dead"), "called dead", "called dead"),
        (ALLOWED, frame("mismatch", RIGHT), "called mismatch", "called mismatch"),
        (ALLOWED, frame("held up", RIGHT), "", ""),
        (ALLOWED, frame("held up", innocent(2)), "false verdict", "innocent [2]"),
        (CONTROL, frame("held up", ACTIVE), "false verdict", "innocent [1]"),
        (CONTROL, frame("waiting"), "", ""),
    ],
)
def test_a_false_claim_is_found(case: Case, said: Frame, claim: str, without: str) -> None:
    for found, expected in ((case.false_claim(said), claim), (wrong_claim(case, said), without)):
        assert expected in found
        assert bool(found) == bool(expected)


def test_without_the_recorder_nobody_is_named_before_the_fault() -> None:
    assert "before the fault" in wrong_claim(FAULT, frame("held up", RIGHT), early=True)
    assert not wrong_claim(FAULT, frame("waiting", NOBODY), early=True)


@pytest.mark.parametrize(
    ("health", "outcome"),
    [("healthy", "right"), ("ended", "right"), ("held up", "right"), ("waiting", "undecided"),
     ("undecided", "undecided"), ("empty", "undecided")],
)  # fmt: skip
def test_a_control_that_nothing_is_said_of_is_undecided(health: str, outcome: str) -> None:
    assert of_control(frame(health)) == outcome


def test_what_was_missing_is_said() -> None:
    assert why_not_right(FAULT, frame("hung", RIGHT), "right") == ""
    assert why_not_right(FAULT, frame("waiting"), "undecided") == "no verdict, waiting"
    assert why_not_right(CONTROL, frame("undecided"), "undecided") == "undecided at the end"
    assert why_not_right(FAULT, frame("undecided", NOBODY, NOBODY), "undecided") == NOBODY.why.text
    suspect = frame("held up", replace(RIGHT, confidence="suspect"))
    assert why_not_right(FAULT, suspect, "undecided").startswith("only suspected: never confirmed")


def test_every_program_has_a_description_and_a_ground_truth() -> None:
    for name in names():
        assert description_of(name).endswith("."), name
        assert truth_text(case_of(name)), name


def test_truth_verdict_and_blame_have_the_same_wording() -> None:
    assert truth_text(FAULT) == verdict_text([RIGHT]) == "not_entered 1: sleeping, none"
    assert verdict_text([replace(RIGHT, confidence="suspect")]).endswith(", suspect")
    assert truth_text(TIE) == "mismatch 0 vs 1"
    assert verdict_text([]) == blame_text([], FAULT) == "nothing"
    assert blame_text([1], FAULT) == blame_text([1], TIE) == "blames 1"
    assert blame_text([0, 2, 3], FAULT) == "blames 0,2-3 (3 innocent)"


def test_what_a_program_takes_from_the_zoo_exists() -> None:
    for name in names():
        for node in ast.walk(ast.parse((PROGRAMS / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zoo."):
                there = vars(import_module(cast("str", node.module)))
                assert {alias.name for alias in node.names} <= there.keys(), name


def test_the_tables_have_both_modes_of_a_program_and_each_other_verdicts(tmp_path: Path) -> None:
    page, other = tmp_path / "docs" / "page.md", tmp_path / "unprepared.md"
    run = Run("dead/killed", "sync", verdict="dead 0: signal", health="dead", who_s=0.5)
    table.write([changed_run(run, mode="late", who_s=0.7, confirmed_s=1.2), run], page)
    assert "| 0.5 / 0.7 | - / 1.2 |" in page.read_text()
    runs = [
        Run("dead/killed", "sync", verdict="nothing", health="undecided", reached="undecided",
            reason="no verdict, undecided"),
        Run("dead/killed", "late", failure="its worker ended with status -9"),
        Run("healthy/far_ahead", "late", skipped="needs x"),
    ]  # fmt: skip
    table.write_unprepared(runs, other, page)
    text = other.read_text()
    assert "| dead 0: signal | dead 0: signal | undecided | undecided / **wrong** |" in text
    assert "1 programs without the recorder, 2 runs: 0 right, 0 less exact, 1 undecided" in text
    assert "Left out: healthy/far_ahead needs x." in text
