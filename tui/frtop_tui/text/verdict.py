"""A verdict in words, once: for screens, reports, traces and the clipboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frtop_tui.diagnosis.cases.slow.words import cost_words
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.naming import printable
from frtop_tui.job.units import duration
from frtop_tui.job.unprepared import age_text, is_least_since

_WITHOUT_PROGRESS: Final = ("dead", "mismatch", "slow")
"""Kinds for which progress says nothing."""
_KINDS: Final = {"dead": "died"}
_PROGRESS: Final = {
    "none": "no progress",
    "active": "makes progress",
    "unknown": "progress unknown",
}


@dataclass(frozen=True, slots=True)
class VerdictText:
    """The words of a verdict, all printable.

    `kind` is `NOT ENTERED (suspect)`; `facts` are why, progress, timeout and cost, in sentences.
    """

    kind: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    next: str
    evidence: tuple[str, ...]
    missing: tuple[str, ...]

    def fact(self, label: str) -> str:
        """One of the facts; "" if there is none."""
        return dict(self.facts).get(label, "")


def verdict_text(verdict: Verdict, frame: Frame) -> VerdictText:
    suspect = "" if verdict.confidence == "confirmed" else " (suspect)"
    past = ", as seen before the job ended" if _is_past(verdict, frame) else ""
    facts = [("why", _why(verdict))]
    if verdict.kind not in _WITHOUT_PROGRESS:
        facts.append(("progress", verdict.progress))
    if verdict.left_s is not None:
        # A wait that began before frtop looked may end sooner.
        most = "at most " if is_least_since(frame, verdict.since_ns) else ""
        facts.append(("timeout", f"killed by its own timeout in {most}{duration(verdict.left_s)}"))
    if verdict.slow is not None:
        facts.append(("cost", cost_words(verdict.slow)))
    return VerdictText(
        printable(f"{verdict.kind.upper().replace('_', ' ')}{suspect}{past}"),
        printable(verdict.headline),
        tuple((label, printable(said)) for label, said in facts if said),
        printable(verdict.next),
        tuple(map(printable, verdict.evidence)),
        tuple(map(printable, verdict.missing)),
    )


def status(verdict: Verdict, frame: Frame) -> str:
    """`not entered · confirmed · no progress · for 4m12s`."""
    parts = [_KINDS.get(verdict.kind, verdict.kind.replace("_", " ")), verdict.confidence]
    past = _is_past(verdict, frame)
    if verdict.kind not in _WITHOUT_PROGRESS and not past:
        parts.append(_PROGRESS[verdict.progress])
    if verdict.since_ns:
        # A wait ends with its waiting ranks, a death never.
        until_ns = frame.until_ns if past else frame.now_ns
        of_slow = verdict.slow is not None and verdict.slow.at_least
        least = of_slow or is_least_since(frame, verdict.since_ns)
        lasted_s = max(0, until_ns - verdict.since_ns) / 1e9
        if lasted_s >= 1 or not past:  # the fault was the end
            parts.append(f"for {age_text(lasted_s, least=least)}")
    if past:
        parts.append("before the job ended")
    return " · ".join(parts)


def _is_past(verdict: Verdict, frame: Frame) -> bool:
    """Whether its reason and evidence describe ranks that have ended since."""
    return frame.is_over and verdict.kind != "dead"


def lines_of(said: VerdictText) -> list[str]:
    """A verdict as `frtop diagnose` prints it, and as a screen copies it."""
    return [
        f"{said.kind}: {said.headline}",
        *(
            f"  {text}" if label == "timeout" else f"  {label:<4}  {text}"
            for label, text in (*said.facts, *([("next", said.next)] if said.next else []))
        ),
        *(f"  -     {line}" for line in said.evidence),
        *(f"  not seen  {line}" for line in said.missing),
    ]


def _why(verdict: Verdict) -> str:
    """The cause after its layer, unless the layer is unknown or already in the text."""
    layer, text = verdict.why.layer, verdict.why.text
    if not text or layer == "unknown" or text.startswith(f"{layer}:"):
        return text
    return f"{layer}: {text}"
