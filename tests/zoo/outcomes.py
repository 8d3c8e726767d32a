"""What a run without the recorder comes to: right, less exact, undecided or wrong.

Evidence from outside may not suffice: then frtop has to say so. What it does say must be true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from zoo.ground_truth import WRONG, Case, Truth, headlines

if TYPE_CHECKING:
    from frtop_tui.diagnosis.model import Frame, Verdict

OutcomeClass = Literal["right", "less exact", "undecided", "wrong"]
"""Less exact: kind and culprits are right and confirmed, but cause, progress or text are not."""
OUTCOMES: Final[tuple[OutcomeClass, ...]] = ("right", "less exact", "undecided", "wrong")
NO_DATA: Final = frozenset({"connecting", "empty", "unreachable"})
"""Health values without data: nothing can be said in them."""
_OPEN: Final = NO_DATA | {"undecided", "waiting", "starting"}


def wrong_claim(case: Case, frame: Frame, *, early: bool = False) -> str:
    """Returns a claim of this frame that is wrong, whatever comes later; "" if there is none.

    `early`: the fault, or the event of a control, has not happened yet.
    """
    if early and (claims := [v for v in frame.verdicts if _claims(v)]):
        return f"before the fault: {headlines(claims)}"
    if innocent := case.innocents(frame.verdicts):
        return f"innocent {innocent} named: {headlines(frame.verdicts)}"
    if case.healthy and frame.health in WRONG:
        return f"called {frame.health}: {headlines(frame.verdicts)}"
    if frame.health == "hung" and all(truth.progress == ("active",) for truth in case.truths):
        return f"called hung: {headlines(frame.verdicts)}"
    truths = (*case.truths, *case.allowed)
    for verdict in frame.verdicts:
        if _decides(verdict) and not any(_agrees(truth, verdict, truths) for truth in truths):
            return f"confirmed, but wrong: {headlines([verdict])}"
    return ""


def of_fault(case: Case, frame: Frame) -> OutcomeClass:
    """Returns how far a frame without a wrong claim is: right, less exact, or undecided."""
    if case.confirmed(frame.verdicts):
        return "right"
    named = [verdict for verdict in frame.verdicts if _decides(verdict)]
    found = all(any(_names(truth, verdict) for verdict in named) for truth in case.truths)
    return "less exact" if found else "undecided"


def of_control(frame: Frame) -> OutcomeClass:
    """Returns what the last frame of a control without a wrong claim comes to."""
    return "undecided" if frame.health in _OPEN else "right"


def why_not_right(case: Case, frame: Frame, reached: OutcomeClass) -> str:
    """Returns what is missing from the last frame, in one line."""
    if reached == "right":
        return ""
    if case.healthy:
        return f"{frame.health} at the end"
    if reached == "undecided" and frame.verdicts and not any(map(_names_kind, frame.verdicts)):
        return "; ".join(dict.fromkeys(verdict.why.text for verdict in frame.verdicts))
    suspected = [v for v in frame.verdicts if v.confidence == "suspect" and _names_kind(v)]
    if reached == "undecided" and suspected:
        return f"only suspected: {case.mistakes(frame.verdicts)}"
    if not frame.verdicts:
        return f"no verdict, {frame.health}"
    return case.mistakes(frame.verdicts)


def _claims(verdict: Verdict) -> bool:
    return bool(verdict.culprits) or _decides(verdict)


def _names_kind(verdict: Verdict) -> bool:
    return verdict.kind != "undecided"


def _decides(verdict: Verdict) -> bool:
    return verdict.confidence == "confirmed" and _names_kind(verdict)


def _agrees(truth: Truth, verdict: Verdict, truths: tuple[Truth, ...]) -> bool:
    """Whether a verdict may be about this root cause. It may name fewer, or several at once."""
    alike = {rank for one in truths if verdict.kind in one.kinds for rank in one.culprits}
    return verdict.kind in truth.kinds and set(verdict.culprits) <= alike


def _names(truth: Truth, verdict: Verdict) -> bool:
    return verdict.kind in truth.kinds and set(verdict.culprits) == set(truth.culprits)
