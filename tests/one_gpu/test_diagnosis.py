"""What `frtop diagnose --json` printed is compared by the rules of the zoo."""

from __future__ import annotations

from typing import Any

from gpu_kit.diagnosis import outcome
from zoo.ground_truth import Case, Truth

SLEEPER = Case((Truth(("not_entered",), culprits=(1,), causes=("sleeping",)),))


def document(rank: int, cause: str, confidence: str = "confirmed") -> dict[str, Any]:
    verdict = {
        "kind": "not_entered", "confidence": confidence, "progress": "none", "culprits": [rank],
        "parties": [], "headline": f"rank {rank} has not entered", "evidence": [], "next": "",
        "why": {"cause": cause, "text": "it sleeps"},
    }  # fmt: skip
    return {"health": "hung", "verdicts": [verdict], "ranks": {}}


def test_the_right_verdict_is_right() -> None:
    assert outcome(SLEEPER, document(1, "sleeping"))["reached"] == "right"


def test_another_cause_is_less_exact_and_an_innocent_rank_is_wrong() -> None:
    assert outcome(SLEEPER, document(1, "lock"))["reached"] == "less exact"
    assert outcome(SLEEPER, document(3, "sleeping"))["reached"] == "wrong"


def test_no_verdict_is_undecided_and_a_healthy_control_is_right() -> None:
    silent = {"health": "undecided", "verdicts": [], "ranks": {}}
    assert outcome(SLEEPER, silent)["reached"] == "undecided"
    assert outcome(Case(), silent | {"health": "healthy"})["reached"] == "right"
    assert outcome(Case(), document(1, "sleeping"))["reached"] == "wrong"
