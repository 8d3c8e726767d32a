"""Ranks that died, or left while others still needed them."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.dead import detect, words
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.finding import Finding


def _is_unsure(finding: Finding) -> bool:
    assert isinstance(finding.detail, detect.Died)
    return finding.detail.deaths[0].nature in ("unknown", "abort", "network")


def _may_have_waited(finding: Finding, context: Context) -> bool:
    """Whether the late ranks may have waited themselves, for ranks or in groups not seen."""
    seen = context.frame
    return (len(seen.groups) > 1 or not seen.coverage.complete) and any(
        not (view.evidence.has_every_op or view.evidence.has_ages)
        for view in context.culprits(finding)
    )


DEAD: Final = Case(
    (
        Kind(detect.Died, words.died, (Rule("frames", when=_is_unsure), Rule("at once"))),
        Kind(detect.Aborted, words.aborted, (Rule("never"),)),
        Kind(detect.ConnectionsBroke, words.connections_broke, (Rule("frames"),)),
        Kind(detect.LeftGroup, words.left_group, (Rule("frames"),)),
        Kind(
            detect.GaveUp,
            words.gave_up,
            (Rule("at once", vetoes=(("it may itself have waited", _may_have_waited),)),),
        ),
    ),
    detect.detect,
)
EXITED: Final = Case((Kind(detect.Exited, words.exited, (Rule("at once"),)),), detect.detect_exited)
