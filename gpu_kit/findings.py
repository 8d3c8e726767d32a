"""What a check found about each point, as JSON and as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from gpu_kit.points import POINTS

Outcome = Literal["expected", "otherwise", "figure", "not run", "failed"]
"""As expected; not as expected; a figure without an expectation; not run; the check failed."""
ON_A_GPU: Final[dict[Outcome, str]] = {
    "expected": "proven",
    "otherwise": "refuted",
    "figure": "measured",
    "not run": "not run",
    "failed": "failed",
}
WITHOUT: Final[dict[Outcome, str]] = {
    "expected": "rehearsed",
    "otherwise": "rehearsed: other",
    "figure": "rehearsed",
    "not run": "not run here",
    "failed": "failed",
}
"""Without a GPU, a check shows only that it runs, and nothing about NCCL."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one point, a sentence about it, and its figures."""

    point: str
    outcome: Outcome
    text: str
    figures: dict[str, Any] = field(default_factory=dict)


def missing(findings: Sequence[Finding], points: Iterable[str], why: str) -> list[Finding]:
    """Returns a finding for each of these points that has none yet."""
    known = {finding.point for finding in findings}
    return [Finding(point, "not run", why) for point in points if point not in known]


def flat(text: str) -> str:
    """Returns a text on one line."""
    return " ".join(text.split())


def word(finding: Finding, *, dry: bool) -> str:
    """Returns `proven` and the like; without a GPU, nothing is ever proven."""
    return (WITHOUT if dry else ON_A_GPU)[finding.outcome]


def document(findings: Sequence[Finding], about: dict[str, Any], *, dry: bool) -> dict[str, Any]:
    """Returns the results as an object for JSON."""
    return {
        "about": about,
        "dry": dry,
        "points": [
            {"title": POINTS.get(f.point, f.point), "state": word(f, dry=dry), **asdict(f)}
            for f in findings
        ],
    }


def text(findings: Sequence[Finding], about: dict[str, Any], *, dry: bool) -> str:
    """Returns the results for people, in the order of the table of points."""
    order = list(POINTS)
    ordered = sorted(
        findings, key=lambda f: order.index(f.point) if f.point in POINTS else len(order)
    )
    lines = [f"{key}: {value}" for key, value in about.items() if not isinstance(value, dict)]
    if dry:
        lines.append("WITHOUT A GPU: nothing below says anything about NCCL")
    lines.append("")
    for finding in ordered:
        title = POINTS.get(finding.point, finding.point)
        lines += [f"{word(finding, dry=dry):16} {title}", f"{'':16} {flat(finding.text)}"]
    counts: dict[str, int] = {}
    for finding in findings:
        state = word(finding, dry=dry)
        counts[state] = counts.get(state, 0) + 1
    lines += ["", ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))]
    return "\n".join(lines) + "\n"
