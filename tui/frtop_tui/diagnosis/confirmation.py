"""Confirms findings: a finding is a suspicion until a rule of its kind applies."""

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
    """Remembers when each finding was first made."""

    _first: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    """By key: when it was first found, and the time of the last frame with it."""

    def apply(self, findings: Sequence[Finding], context: Context) -> list[Finding]:
        """The findings; those whose rules apply are confirmed."""
        return [
            replace(one, confidence="confirmed") if self._is_confirmed(one, context) else one
            for one in findings
        ]

    def reason(self, finding: Finding, context: Context) -> str:
        """Why a finding is confirmed or not, in words."""
        rule = rule_of(finding)
        veto = _first((*rule.unless, *rule.vetoes), finding, context)
        if veto:
            return f"not confirmed: {veto}"
        confirmed, waits_for = _CLOCKS[rule.clock]
        return confirmed if finding.confidence == "confirmed" else waits_for

    def forget(self, now_ns: int) -> None:
        """Drops suspicions that have not been repeated for some seconds."""
        stale = [k for k, (_, last) in self._first.items() if now_ns - last > FORGET_SUSPICION_NS]
        for key in stale:
            del self._first[key]

    def _is_confirmed(self, finding: Finding, context: Context) -> bool:
        rule = rule_of(finding)
        if _first(rule.unless, finding, context):
            return False
        # The clock keeps running while a veto holds.
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
            # To the kernel, a wait in C++ or for a compiler looks like any other.
            wanted_ns = STACKS_DUE_NS if any(map(stacks_due, culprits)) else CONFIRM_NS
        if stamp is None:
            return False
        first, _ = self._first.get(finding.key, (stamp, now_ns))
        self._first[finding.key] = (first, now_ns)
        return stamp - first >= wanted_ns


_CLOCKS: Final[dict[Clock, tuple[str, str]]] = {
    "at once": ("confirmed: it is its own proof", ""),
    "window": ("confirmed: chance would show this once in 100 million looks", ""),
    "frames": ("confirmed: seen twice, 2 s apart", "not confirmed: seen for less than 2 s"),
    "snapshots": (
        "confirmed: two snapshots of its culprits, 2 s apart, agree",
        "not confirmed: no two snapshots of its culprits, 2 s apart, yet",
    ),
    "never": ("", "not confirmed: nothing can confirm it"),
}
"""What `--explain` prints for a confirmed finding, and for one that is not."""


class Settling:
    """Whether watching for longer is unlikely to change the result.

    One look without waits does not show health: it is as old as the agent's last tick, and a young
    wait may last. Two looks may show why a rank is slow.
    """

    def __init__(self, now_ns: int) -> None:
        self._begun_ns = now_ns
        self._healthy_since: int | None = None

    def is_over(self, frame: Frame, now_ns: int) -> bool:
        """Whether the newest frame settles it."""
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
    """A finding from a file, which will show nothing more."""
    at_once = rule_of(finding).clock == "at once"
    return replace(finding, confidence="confirmed") if at_once else finding


def rule_of(finding: Finding) -> Rule:
    """The first rule of its kind that applies."""
    return next(rule for rule in kind_of(finding).rules if rule.when(finding))


def _first(vetoes: Vetoes, finding: Finding, context: Context) -> str:
    """The reason of the first veto that applies; "" if none does."""
    return next((text for text, applies in vetoes if applies(finding, context)), "")


def _oldest_snapshot_ns(ranks: Sequence[Rank]) -> int | None:
    """Operator's time of the oldest of the last snapshots; None if a rank has none."""
    stamps = [one.snapshot.at_ns + one.clock_ns for one in ranks if one.snapshot is not None]
    return min(stamps) if stamps and len(stamps) == len(ranks) else None
