"""All cases, in the order of causes.

A mismatch explains the deaths and waits that follow from it, a death the waits for the dead, a
deadlock the waits of its ranks. The remaining waits are followed to their ends (`wait_ends`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.cases import wait_ends
from frtop_tui.diagnosis.cases.at_rest.case import AT_REST
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.dead.case import DEAD, EXITED
from frtop_tui.diagnosis.cases.dead.detect import Aborted
from frtop_tui.diagnosis.cases.deadlock import DEADLOCK
from frtop_tui.diagnosis.cases.declare import Case, Kind
from frtop_tui.diagnosis.cases.mismatch.case import MISMATCH
from frtop_tui.diagnosis.cases.not_entered.case import NOT_ENTERED
from frtop_tui.diagnosis.cases.not_entered.detect import Withheld
from frtop_tui.diagnosis.cases.slow.case import SLOW
from frtop_tui.diagnosis.cases.stacks_alone.case import STACKS_ALONE
from frtop_tui.diagnosis.cases.stuck.case import STUCK
from frtop_tui.diagnosis.cases.stuck.detect import InDoubt
from frtop_tui.diagnosis.cases.unfinished_ops import UNFINISHED_OPS
from frtop_tui.diagnosis.cases.unobserved.case import UNOBSERVED
from frtop_tui.diagnosis.finding import Finding

CASES: Final[tuple[Case, ...]] = (
    MISMATCH,
    DEAD,
    EXITED,
    STACKS_ALONE,
    DEADLOCK,
    Case((), wait_ends.detect),  # finds those of the next three
    NOT_ENTERED,
    UNOBSERVED,
    STUCK,
    AT_REST,
    UNFINISHED_OPS,
    SLOW,
)
_KINDS: Final = {kind.detail: kind for case in CASES for kind in case.kinds}


def kind_of(finding: Finding) -> Kind:
    """The rules and the words of a finding."""
    return _KINDS[type(finding.detail)]


def detect(context: Context) -> list[Finding]:
    """Root causes, the most urgent first."""
    found: list[Finding] = []
    for case in CASES:
        if case.detect is not None:
            fresh = case.detect(context)
            context.accept(fresh)
            found += fresh
    return sorted(found, key=urgency)


def prioritize(
    context: Context, findings: Sequence[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """The findings to report, and those that most likely follow from one of them.

    If a finding names ranks, these follow: without ages, an op that all have issued, which may wait
    for an earlier one; ranks without a recorder that ended for an unknown reason; and a wait for a
    message that a named rank, or one of its victims, may have to send or take.
    """
    named = any(
        one.culprits
        or (one.parties and not isinstance(one.detail, Aborted))
        or isinstance(one.detail, Withheld)
        for one in findings
    )
    if not named:
        return [*findings], []
    held = frozenset[int]().union(
        *(
            one.victims.union(one.culprits, *one.parties)
            for one in findings
            if one.kind in ("deadlock", "not_entered")
        )
    )
    loose = [one for one in findings if _follows(context, one) or _may_wait_for(held, one)]
    return [one for one in findings if one not in loose], loose


def _follows(context: Context, finding: Finding) -> bool:
    if isinstance(finding.detail, Aborted):
        deaths = finding.detail.deaths
        return not all(context.ranks[one.rank].evidence.has_exceptions for one in deaths)
    loose = isinstance(finding.detail, InDoubt) and finding.cause == "unknown"
    return loose and not context.has_ages


def _may_wait_for(held: frozenset[int], finding: Finding) -> bool:
    """Whether it is about a message whose other half a held-up rank may owe."""
    if not isinstance(finding.detail, InDoubt) or finding.detail.doubt.reason != "message":
        return False
    node = finding.detail.node
    others = node.members if node.peer is None else (node.peer,)
    return not node.answered and not held.isdisjoint(others)


def urgency(finding: Finding) -> tuple[bool, bool, bool, int]:
    """Causes with victims first, then those without progress, then the oldest."""
    return (
        finding.kind == "undecided",
        not finding.victims,
        finding.progress == "active",
        finding.since_ns,
    )
