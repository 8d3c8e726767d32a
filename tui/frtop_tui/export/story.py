"""Two judgements of one job, before its first bad death and at its end, told as one story.

Mostly a job does not die of what ended it. It hung, and its launcher, its scheduler or its
own timeout ended it: what was so before is the verdict then, and the deaths its consequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from frtop_tui.diagnosis.deaths import Death, Deaths, deaths_of
from frtop_tui.diagnosis.engine import health_of
from frtop_tui.export.replay import Played
from frtop_tui.job.model import Frame, Verdict
from frtop_tui.job.naming import duration, folded

MOST_ENDINGS: Final = 3
_PAST: Final = (
    (re.compile(r"\b(?:has|have) (not |)(entered|sent|received)\b"), r"had \1\2"),
    (re.compile(r"\bdoes not finish\b"), "did not finish"),
    (re.compile(r"\bwaits?\b"), "waited"),
)
_LIVE_STEP: Final = re.compile(r"/proc/\d|\bkill\b|\bpy-spy\b|\bgdb\b|--pid")
"""A next step that only a living process can be taken at."""


def story(played: Played) -> Frame:
    """The job at its end, with the verdicts that explain it."""
    before, after = played.before, played.after
    if before is None:
        return after
    deaths = deaths_of(after.ranks)
    own = {
        rank
        for group in deaths.roots
        if _of_itself(group, deaths)
        for rank in (death.rank for death in group)
    }
    causes = tuple(
        verdict
        for verdict in after.verdicts
        if verdict.kind == "mismatch" or (verdict.kind == "dead" and own & {*verdict.culprits})
    )
    prelude = [verdict for verdict in before.verdicts if not _told(verdict, after.verdicts)]
    if not prelude:
        waits = before.notes if before.health == "waiting" else ()
        return replace(after, notes=(*(f"before that: {text}" for text in waits), *after.notes))
    ends = endings(deaths, own)
    past = tuple(_in_the_past(verdict, ends) for verdict in prelude)
    hung = past[0].progress == "none" and past[0].confidence == "confirmed"
    verdicts = (*past, *causes) if hung or not causes else (*causes, *past)
    return replace(
        after,
        health=health_of(after.health, verdicts, waiting=False),
        since_ns=verdicts[0].since_ns or after.since_ns,
        verdicts=verdicts,
    )


def endings(deaths: Deaths, told: set[int]) -> tuple[str, ...]:
    """How the ranks ended that nothing else is said of: `ranks 0-3 were ended by SIGTERM`."""
    groups: dict[tuple[str, str], list[Death]] = {}
    every = [*(death for group in deaths.roots for death in group), *deaths.followers]
    for death in sorted(every, key=lambda death: death.at_ns):
        if death.rank not in told:
            groups.setdefault((death.nature, death.likeness[1]), []).append(death)
    return tuple(map(_ending, list(groups.values())[:MOST_ENDINGS]))


def _ending(deaths: Sequence[Death]) -> str:
    first = deaths[0]
    ranks = folded(death.rank for death in deaths)
    were = "was" if len(deaths) == 1 else "were"
    if first.cause == "signal":
        signal = first.text.partition("(")[2].rstrip(")") or first.text
        return f"{ranks} {were} ended by {signal}"
    if first.nature == "timeout":
        return f"{ranks} gave up waiting: {first.text}"
    if first.nature == "network":
        return f"{ranks} lost the connection: {first.text}"
    return f"{ranks} ended: {first.text}"


def _of_itself(group: Sequence[Death], deaths: Deaths) -> bool:
    """Whether these broke, and were not ended: who kills all of them is no rank's own doing."""
    if all(death.killed for death in group):
        others = len(deaths.followers) + sum(len(one) for one in deaths.roots) - len(group)
        return others > 0
    return any(death.nature == "own" for death in group)


def _told(verdict: Verdict, others: Sequence[Verdict]) -> bool:
    """Whether the end tells the same, and more of it."""
    blamed = {*verdict.culprits, *(rank for party in verdict.parties for rank in party)}
    return verdict.kind in ("dead", "mismatch") and any(
        other.kind == verdict.kind
        and blamed & {*other.culprits, *(rank for party in other.parties for rank in party)}
        for other in others
    )


def _in_the_past(verdict: Verdict, ends: Sequence[str]) -> Verdict:
    headline = verdict.headline
    for pattern, words in _PAST:
        headline = pattern.sub(words, headline)
    then = f"; then {', '.join(ends)}" if ends else ""
    evidence = [*verdict.evidence, *(f"then {text}" for text in ends)]
    left_s = verdict.left_s
    if ends and left_s is not None:
        evidence.append(f"its own timeout would have come {duration(left_s)} later")
        left_s = None
    step = verdict.next
    if ends and _LIVE_STEP.search(step):
        step = f"its process is gone; when it happens again: {step}"
    return replace(
        verdict, headline=headline + then, evidence=tuple(evidence), left_s=left_s, next=step
    )
