"""Comparing verdicts with the ground truth, with the recorder and without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, Verdict, Why
from zoo.ground_truth import Case, fault, truth
from zoo.outcomes import of_control, of_fault, wrong_claim
from zoo.runner import case_of, description_of, names
from zoo.wording import truth_text

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


def test_every_program_has_a_description_and_a_ground_truth() -> None:
    for name in names():
        assert description_of(name).endswith("."), name
        assert truth_text(case_of(name)), name
