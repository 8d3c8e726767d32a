"""No rank is in an op, and none has been issued for long: what holds ranks, or which do not end."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.at_rest import detect, words
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.finding import Finding


def _is_unproven(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, detect.Held | detect.NotEnding)
    return not finding.detail.proven


AT_REST: Final = Case(
    (
        Kind(
            detect.Held,
            words.held,
            (Rule("at once", (("what they wait for may still come", _is_unproven),)),),
        ),
        Kind(
            detect.NotEnding,
            words.not_ending,
            (Rule("at once", (("it has not yet been seen there for 20 s", _is_unproven),)),),
        ),
        Kind(detect.Resting, words.resting, (Rule("frames"),)),
    )
)
