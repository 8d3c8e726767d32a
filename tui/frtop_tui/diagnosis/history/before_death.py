"""What was so before the first bad death, and how the job ended, told as one story.

Mostly a job does not die of what ended it. It hung, and its launcher, its scheduler, a
person or its own timeout ended it: what was so before is the verdict then, and the deaths
its consequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.detectors.deaths.roots import INTERRUPTED, Death, Deaths
from frtop_tui.diagnosis.model import Frame, Verdict
from frtop_tui.job.naming import duration, folded

MOST_ENDINGS: Final = 3
KEPT_NS: Final = 3_000_000_000
"""Ops that fail are over a moment before it is heard that their ranks raised."""
_PAST: Final = (
    (re.compile(r"\b(?:has|have) (not |)(entered|sent|received)\b"), r"had \1\2"),
    (re.compile(r"\bdoes not finish\b"), "did not finish"),
    (re.compile(r"\bwaits?\b"), "waited"),
    (re.compile(r"\bnobody is in\b"), "nobody was in"),
    (re.compile(r"\bgets? nowhere\b"), "got nowhere"),
)
_WAITED: Final = re.compile(r"; (ranks? [\d,-]+) waited$")
_LIVE_STEP: Final = re.compile(r"/proc/\d|\bkill\b|\bpy-spy\b|\bgdb\b|--pid")
"""A next step that only a living process can be taken at."""


@dataclass(frozen=True, slots=True)
class BeforeDeath:
    """The last that was said of a job of which nobody had died."""

    at_ns: int
    verdicts: tuple[Verdict, ...]
    waits: tuple[str, ...] = ()


def last_said(known: BeforeDeath | None, frame: Frame) -> BeforeDeath | None:
    """What is to be remembered after `frame`, in which nobody has died, on top of `known`."""
    waits = frame.notes if frame.health == "waiting" else ()
    if frame.verdicts or waits:
        return BeforeDeath(frame.now_ns, frame.verdicts, waits)
    if known is None or frame.now_ns - known.at_ns > KEPT_NS or _came(known, frame):
        return None
    return known


def _came(known: BeforeDeath, frame: Frame) -> bool:
    """Whether somebody who was waited for has gone on."""
    blamed = {rank for verdict in known.verdicts for rank in verdict.culprits}
    views = [frame.ranks[rank] for rank in blamed if rank in frame.ranks]
    return any(
        front.issued_ns + view.clock_ns > known.at_ns
        for view in views
        for front in view.group_progress.values()
    )


def story(
    before: BeforeDeath, after: tuple[Verdict, ...], deaths: Deaths
) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """The verdicts on a job with `deaths` in the light of what was so before, and notes."""
    prelude = [verdict for verdict in before.verdicts if not _told(verdict, after)]
    if not prelude:
        return after, tuple(f"before that: {text}" for text in before.waits)
    own = {
        rank
        for group in deaths.roots
        if _of_itself(group, deaths)
        for rank in (death.rank for death in group)
    }
    causes = tuple(
        verdict
        for verdict in after
        if verdict.kind == "mismatch" or (verdict.kind == "dead" and own & {*verdict.culprits})
    )
    endpoints = endings(deaths, own)
    past = tuple(_in_the_past(verdict, endpoints, before.at_ns) for verdict in prelude)
    hung = past[0].progress == "none" and past[0].confidence == "confirmed"
    return ((*past, *causes) if hung or not causes else (*causes, *past)), ()


def endings(deaths: Deaths, told: set[int]) -> list[list[Death]]:
    """The ends of ranks that nothing else is said of, alike ones together, first by time."""
    groups: dict[tuple[str, str], list[Death]] = {}
    for death in sorted(deaths.every, key=lambda death: death.at_ns):
        if death.rank not in told:
            groups.setdefault((death.nature, death.likeness[1]), []).append(death)
    return list(groups.values())[:MOST_ENDINGS]


def _ending(deaths: Sequence[Death]) -> str:
    """`ranks 0-3 were ended by SIGTERM`."""
    first = deaths[0]
    ranks = folded(death.rank for death in deaths)
    were = "was" if len(deaths) == 1 else "were"
    if first.cause == INTERRUPTED:
        return f"{ranks} {were} {first.text}"
    if first.cause == "signal":
        signal = first.text.partition("(")[2].rstrip(")") or first.text
        return f"{ranks} {were} ended by {signal}"
    if first.nature == "timeout":
        after = f" after {duration(first.waited_s)}" if first.waited_s else ""
        return f"{ranks} gave up waiting{after}"
    if first.nature == "network":
        return f"{ranks} lost the connection"
    return f"{ranks} ended: {first.text}"


def _of_itself(group: Sequence[Death], deaths: Deaths) -> bool:
    """Whether these broke, and were not ended: who kills all of them is no rank's own doing."""
    if all(death.killed for death in group):
        others = len(deaths.followers) + sum(len(one) for one in deaths.roots) - len(group)
        return others > 0
    return any(death.nature == "own" for death in group)


def _told(verdict: Verdict, others: Sequence[Verdict]) -> bool:
    """Whether the end tells the same, and more of it, or it is still so."""
    alike = [other for other in others if other.kind == verdict.kind]
    if verdict.kind in ("dead", "mismatch"):
        return any(_blamed(verdict) & _blamed(other) for other in alike)
    # What is over has no time left.
    return any(
        _blamed(other) == _blamed(verdict)
        and other.op == verdict.op
        and (other.left_s is None) == (verdict.left_s is None)
        for other in alike
    )


def _blamed(verdict: Verdict) -> set[int]:
    return {*verdict.culprits, *(rank for party in verdict.parties for rank in party)}


def _in_the_past(verdict: Verdict, endpoints: Sequence[Sequence[Death]], at_ns: int) -> Verdict:
    headline = verdict.headline
    for pattern, words in _PAST:
        headline = pattern.sub(words, headline)
    if not endpoints:
        return replace(verdict, headline=headline)
    texts = [_ending(group) for group in endpoints]
    waited = _WAITED.search(headline)
    if waited is not None and texts[0].startswith(f"{waited[1]} gave up"):
        headline = f"{headline[: waited.start()]} in time; {', then '.join(texts)}"
    else:
        headline = f"{headline}; then {', '.join(texts)}"
    first = endpoints[0][0]
    evidence = [*verdict.evidence]
    if first.at_ns - at_ns > KEPT_NS // 3:
        seen = duration((first.at_ns - at_ns) / 1e9)
        evidence.append(f"last seen so {seen} before the first of them ended")
    evidence += [
        f"then {text}{_words(group)}" for text, group in zip(texts, endpoints, strict=True)
    ]
    late = any(group[0].nature == "timeout" for group in endpoints)
    if verdict.left_s is not None and not late:
        left = duration(verdict.left_s)
        evidence.append(f"its own timeout would have come {left} later")
    step = verdict.next
    if _LIVE_STEP.search(step):
        step = f"its process is gone; when it happens again: {step}"
    return replace(verdict, headline=headline, evidence=tuple(evidence), left_s=None, next=step)


def _words(group: Sequence[Death]) -> str:
    """What they raised themselves, which a headline has no place for."""
    return f": {group[0].text}" if group[0].nature in ("timeout", "network") else ""
