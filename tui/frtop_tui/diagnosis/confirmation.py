"""When findings are confirmed: a finding is a suspicion until a rule of its kind says otherwise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Clock, Rule, Vetoes
from frtop_tui.diagnosis.cases.registry import kind_of
from frtop_tui.diagnosis.evidence.rank_activity import stacks_due
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.thresholds import (
    COMPARED_NS,
    CONFIRM_NS,
    FORGET_SUSPICION_NS,
    HEALTHY_NS,
    SLOW_CAUSE_NS,
    STACKS_DUE_NS,
)
from frtop_tui.job.model import Rank


@dataclass(slots=True)
class Confirmations:
    """Remembers since when each finding has been made."""

    _first: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    """By key: the stamp of the first time, and the frame of the last."""

    def apply(self, findings: Sequence[Finding], context: Context) -> list[Finding]:
        """The findings, confirmed where their rules say so."""
        return [
            replace(one, confidence="confirmed") if self._is_confirmed(one, context) else one
            for one in findings
        ]

    def reason(self, finding: Finding, context: Context) -> str:
        """Why a finding is confirmed or not, for people."""
        rule = rule_of(finding)
        veto = _first((*rule.unless, *rule.vetoes), finding, context)
        if veto:
            return f"not confirmed: {veto}"
        confirmed, waits_for = _CLOCKS[rule.clock]
        return confirmed if finding.confidence == "confirmed" else waits_for

    def forget(self, now_ns: int) -> None:
        """Drops suspicions that were not repeated for some seconds."""
        stale = [k for k, (_, last) in self._first.items() if now_ns - last > FORGET_SUSPICION_NS]
        for key in stale:
            del self._first[key]

    def _is_confirmed(self, finding: Finding, context: Context) -> bool:
        rule = rule_of(finding)
        if _first(rule.unless, finding, context):
            return False
        # The clock runs on while a veto holds.
        confirmed = rule.clock in ("at once", "window") or self._seen_twice(rule, finding, context)
        return confirmed and not _first(rule.vetoes, finding, context)

    def _seen_twice(self, rule: Rule, finding: Finding, context: Context) -> bool:
        if rule.clock == "never":
            return False
        now_ns = context.now_ns
        stamp: int | None = now_ns
        wanted_ns = CONFIRM_NS
        if rule.clock == "snapshots":
            culprits = context.culprits(finding)
            stamp = _oldest_snapshot_ns(culprits)
            # The kernel shows a wait in C++ or for a compiler as it shows any other.
            wanted_ns = STACKS_DUE_NS if any(map(stacks_due, culprits)) else CONFIRM_NS
        if stamp is None:
            return False
        first, _ = self._first.get(finding.key, (stamp, now_ns))
        self._first[finding.key] = (first, now_ns)
        return stamp - first >= wanted_ns


_CLOCKS: Final[dict[Clock, tuple[str, str]]] = {
    "at once": ("confirmed: it proves itself", ""),
    "window": ("confirmed: by chance it is seen once in 100 million looks", ""),
    "frames": ("confirmed: seen twice, 2 s apart", "not confirmed: not seen for 2 s yet"),
    "snapshots": (
        "confirmed: two snapshots of its culprits, 2 s apart, agree",
        "not confirmed: no two snapshots of its culprits, 2 s apart, yet",
    ),
    "never": ("", "not confirmed: nothing can confirm it"),
}
"""What `--explain` prints of a finding that is confirmed, and of one that is not."""


class Settling:
    """Whether watching for longer is unlikely to change the verdict, or that there is none.

    One look in which nobody waits is no ground for health: it is as old as the agent's last tick,
    and a wait that is young by now may last. Two looks may tell why somebody is slow.
    """

    def __init__(self, now_ns: int) -> None:
        self._begun_ns = now_ns
        self._healthy_since: int | None = None

    def is_over(self, frame: Frame, now_ns: int) -> bool:
        """Takes in the newest frame."""
        healthy = frame.health == "healthy" and not frame.verdicts
        since = self._healthy_since if self._healthy_since is not None else now_ns
        self._healthy_since = since if healthy else None
        watched_ns = now_ns - self._begun_ns
        if frame.verdicts:
            confirmed = all(verdict.confidence == "confirmed" for verdict in frame.verdicts)
            return confirmed and (not frame.awaits_cause or watched_ns >= SLOW_CAUSE_NS)
        lasts = now_ns - since >= HEALTHY_NS and (frame.is_compared or watched_ns >= COMPARED_NS)
        return frame.health == "ended" or (healthy and lasts)


def confirmed_at_once(finding: Finding) -> Finding:
    """A finding out of a file, where nothing more will be seen."""
    at_once = rule_of(finding).clock == "at once"
    return replace(finding, confidence="confirmed") if at_once else finding


def rule_of(finding: Finding) -> Rule:
    """The first rule of its kind that applies."""
    return next(rule for rule in kind_of(finding).rules if rule.when(finding))


def _first(vetoes: Vetoes, finding: Finding, context: Context) -> str:
    """The reason of the first that applies, "" if none does."""
    return next((text for text, applies in vetoes if applies(finding, context)), "")


def _oldest_snapshot_ns(ranks: Sequence[Rank]) -> int | None:
    """Operator's time of the oldest last snapshot; None while one is missing."""
    stamps = [one.snapshot.at_ns + one.clock_ns for one in ranks if one.snapshot is not None]
    return min(stamps) if stamps and len(stamps) == len(ranks) else None
