"""What may be said of judged dumps beyond a single look, and what need not be said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, JudgedRank, Verdict
from frtop_tui.job.naming import duration, folded

LONG_NS: Final = 10_000_000_000
"""More than clocks of hosts differ that run one job."""


def settled(frame: Frame) -> Frame:
    """Confirms what the dumps' own times prove; leaves out what follows from the rest."""
    if frame.verdicts and not frame.verdicts[0].since_ns:
        frame = replace(frame, since_ns=0)  # nothing tells since when
    verdicts = tuple(_aged(verdict, frame.ranks) for verdict in frame.verdicts)
    named = [verdict for verdict in verdicts if verdict.culprits or verdict.parties]
    loose = [verdict for verdict in verdicts if _follows(verdict)]
    if not named or not loose:
        return replace(frame, verdicts=verdicts)
    behind = {rank for verdict in loose for rank in verdict.victims}
    behind -= {rank for verdict in named for rank in verdict.culprits}
    kept = tuple(verdict for verdict in verdicts if verdict not in loose)
    note = f"{folded(behind)} wait in ops that all have issued: behind the same, most likely"
    return replace(frame, verdicts=kept, notes=(*frame.notes, *([note] if behind else [])))


def _follows(verdict: Verdict) -> bool:
    """All have issued it, and nothing tells why it does not finish: what came before it may."""
    return verdict.kind == "undecided" and verdict.why.cause == "unknown"


def _aged(verdict: Verdict, ranks: Mapping[int, JudgedRank]) -> Verdict:
    """Confirmed, if those who have not come did other things long after the wait began.

    Then their dumps are not older than the wait, and they had the time to come.
    """
    if verdict.kind != "not_entered" or not verdict.since_ns or verdict.confidence == "confirmed":
        return verdict
    views = [ranks[rank] for rank in verdict.culprits if rank in ranks]
    if not views or not all(view.evidence.has_numbers for view in views):
        return verdict
    least = min(view.heard_ns for view in views) - verdict.since_ns
    if least < LONG_NS:
        return verdict
    shown = (
        f"{folded(verdict.culprits)} did other things up to {duration(least / 1e9)} after that"
        " wait began, and did not come"
    )
    return replace(verdict, confidence="confirmed", evidence=(*verdict.evidence, shown))
