"""Compares what `frtop diagnose --json` printed with the zoo's truth, by the zoo's own rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from zoo import outcomes

if TYPE_CHECKING:
    from zoo.ground_truth import Case


def outcome(case: Case, document: dict[str, Any]) -> dict[str, Any]:
    """Returns `reached` (right, less exact, undecided or wrong), `reason`, and the verdicts."""
    frame: Any = frame_of(document)
    wrong = outcomes.wrong_claim(case, frame)
    if wrong:
        reached = "wrong"
    elif case.healthy:
        reached = outcomes.of_control(frame)
    else:
        reached = outcomes.of_fault(case, frame)
    reason = wrong or outcomes.why_not_right(case, frame, reached)  # type: ignore[arg-type]
    said = " | ".join(f"{v.kind} {v.confidence}: {v.headline}" for v in frame.verdicts)
    return {"reached": reached, "reason": reason[:400], "health": frame.health, "said": said[:300]}


def frame_of(document: dict[str, Any]) -> SimpleNamespace:
    """Returns the parts of a frame that the zoo's rules read."""
    return SimpleNamespace(
        health=document["health"],
        verdicts=tuple(_verdict(one) for one in document["verdicts"]),
        ranks=document["ranks"],
    )


def _verdict(one: dict[str, Any]) -> SimpleNamespace:
    why = SimpleNamespace(cause=one["why"]["cause"], text=one["why"]["text"])
    return SimpleNamespace(
        kind=one["kind"], confidence=one["confidence"], progress=one["progress"],
        culprits=tuple(one["culprits"]), parties=tuple(map(tuple, one["parties"])),
        headline=one["headline"], evidence=tuple(one["evidence"]), next=one["next"], why=why,
    )  # fmt: skip
