"""Names that are withheld: ranks of which nothing is known but that they have finished all ops.

Where these are more than those who wait, the few may as well be the odd ones: ahead, or in an op
that is not for all. Of several such ranks some may only wait for another one, if their backend
does not record sends and receives. Then nobody is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.not_entered.detect import NotEntered
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.finding import Detail, Finding

_NO_REASON: Final = frozenset[Cause]({"unknown", "computing", "device"})
_SENDS_UNRECORDED: Final = "gloo"
"""The backend of which the Flight Recorder knows no sends and receives."""


class Withheld(Detail, frozen=True):
    """`findings` whose culprits are not named. `more_absent`: one, with more of them than wait."""

    findings: tuple[Finding, ...]
    more_absent: bool


def absent(finding: Finding) -> tuple[int, ...]:
    """Ranks that a finding says others wait for, named as culprits or not."""
    if isinstance(finding.detail, Withheld):
        return tuple(rank for one in finding.detail.findings for rank in one.culprits)
    return finding.culprits


def withhold(context: Context, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, without names that evidence without processes cannot justify."""
    if context.has_ages:
        return [*findings]
    bare = [finding for finding in findings if _is_bare(finding)]
    many = [one for one in bare if len(one.culprits) > len(one.victims) > 0]
    several = [one for one in bare if one not in many and _sends_unrecorded(context, one.culprits)]
    if len(several) == 1:
        several = []
    rest = [one for one in findings if one not in many and one not in several]
    return [*rest, *map(_more_absent, many), *([_several(several)] if several else ())]


def _is_bare(finding: Finding) -> bool:
    """Whether all that is known of its culprits is that nothing of theirs is unfinished.

    Stacks at lines that run, or at a device, show no more than that.
    """
    return (
        isinstance(finding.detail, NotEntered)
        and finding.cause in _NO_REASON
        and bool(finding.culprits)
    )


def _sends_unrecorded(context: Context, ranks: Sequence[int]) -> bool:
    return all(
        any(_SENDS_UNRECORDED in group.backend for group in context.ranks[rank].groups.values())
        for rank in ranks
    )


def _more_absent(finding: Finding) -> Finding:
    return replace(
        finding,
        kind="undecided",
        detail=Withheld((finding,), more_absent=True),
        progress="unknown",
        culprits=(),
        parties=(finding.culprits, tuple(sorted(finding.victims))),
        victims=frozenset({*finding.culprits, *finding.victims}),
    )


def _several(findings: Sequence[Finding]) -> Finding:
    return replace(
        findings[0],
        kind="undecided",
        detail=Withheld(tuple(findings), more_absent=False),
        progress="unknown",
        culprits=(),
        victims=frozenset().union(*(finding.victims for finding in findings)),
        nodes=tuple(dict.fromkeys(node for finding in findings for node in finding.nodes)),
    )
