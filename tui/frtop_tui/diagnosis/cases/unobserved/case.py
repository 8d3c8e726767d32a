"""Waits for members that nobody observes, and waits that nobody observes."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.not_entered.case import CALLERS_UNKNOWN
from frtop_tui.diagnosis.cases.not_entered.words import never_joined
from frtop_tui.diagnosis.cases.stuck.words import in_doubt
from frtop_tui.diagnosis.cases.unobserved.detect import NeverJoined, Unobserved
from frtop_tui.diagnosis.cases.unobserved.standing_waits import StandingWaits
from frtop_tui.diagnosis.cases.unobserved.words import standing_waits
from frtop_tui.diagnosis.finding import Finding


def _members_unknown(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, NeverJoined)
    return finding.detail.members_unknown


def _on_unreachable_hosts(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, NeverJoined)
    return not finding.detail.on_reporting_hosts


UNOBSERVED: Final = Case(
    (
        Kind(
            NeverJoined,
            never_joined,
            (
                Rule(
                    "frames",
                    (
                        (CALLERS_UNKNOWN, _members_unknown),
                        ("they may run on hosts that do not report", _on_unreachable_hosts),
                    ),
                ),
            ),
        ),
        Kind(Unobserved, in_doubt, (Rule("frames"),)),
        Kind(StandingWaits, standing_waits, (Rule("frames"),)),
    )
)
