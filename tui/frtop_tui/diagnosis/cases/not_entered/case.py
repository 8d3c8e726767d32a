"""Ranks that have not entered an op in which others wait. `wait_ends` finds them."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule, Vetoes
from frtop_tui.diagnosis.cases.not_entered.detect import NeverJoined, NotEntered, Withheld
from frtop_tui.diagnosis.cases.not_entered.words import never_joined, not_entered, withheld
from frtop_tui.diagnosis.causes import CERTAIN
from frtop_tui.diagnosis.evidence.progress import may_be_slow_step
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.thresholds import BUSY_NS


def _members_unknown(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, NotEntered | NeverJoined)
    return finding.detail.members_unknown


def _on_unreachable_hosts(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, NeverJoined)
    return not finding.detail.on_reporting_hosts


def _had_time_to_arrive(finding: Finding) -> bool:
    assert isinstance(finding.detail, NotEntered)
    return finding.detail.busy_ns >= BUSY_NS


def _progress_is_due(finding: Finding, context: Context) -> bool:
    """Whether it surely is absent, and the next snapshot will show its progress."""
    return finding.progress == "unknown" and any(
        rank.snapshot is not None and rank.prior_snapshot is None
        for rank in context.culprits(finding)
    )


def _is_stalled(finding: Finding) -> bool:
    return finding.progress == "none" and finding.cause not in CERTAIN


def _may_be_slow(finding: Finding, context: Context) -> bool:
    return _is_stalled(finding) and any(
        may_be_slow_step(rank, context.now_ns) for rank in context.culprits(finding)
    )


def _was_false_alarm(finding: Finding, context: Context) -> bool:
    alarms = context.false_alarms
    return _is_stalled(finding) and alarms.was_false_alarm(finding.nodes[0], context.now_ns)


_CALLERS: Final[Vetoes] = (
    ("it is not known which ranks have to make this call", _members_unknown),
)
_HOSTS: Final[Vetoes] = (("they may run on hosts that do not report", _on_unreachable_hosts),)
_ABSENT: Final[Vetoes] = (
    ("a second snapshot, which will show progress, is due", _progress_is_due),
    ("it may be in a slow step of its own", _may_be_slow),
    ("such a wait at this line was called hung before, but ended", _was_false_alarm),
)
NOT_ENTERED: Final = Case(
    (
        Kind(
            NotEntered,
            not_entered,
            (
                Rule("at once", when=_had_time_to_arrive),
                Rule("frames", _CALLERS, _ABSENT, when=lambda finding: finding.cause in CERTAIN),
                Rule("snapshots", _CALLERS, _ABSENT),
            ),
        ),
        Kind(NeverJoined, never_joined, (Rule("frames", (*_CALLERS, *_HOSTS)),)),
        Kind(Withheld, withheld, (Rule("never"),)),
    )
)
