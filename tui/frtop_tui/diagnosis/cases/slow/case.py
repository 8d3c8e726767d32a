"""Stragglers and slow links: all ranks go on, but lose time to one again and again."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.slow.detect import LateDetail, LinkDetail, SlowDetail
from frtop_tui.diagnosis.cases.slow.words import late, slow_link
from frtop_tui.diagnosis.finding import Finding


def _may_be_chance(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, SlowDetail)
    return not finding.detail.sure


_LESS_SURE: Final = (
    "seen for less than 7.5 s, or chance would show it more than once in 100 million looks"
)
_WINDOW: Final = (Rule("window", ((_LESS_SURE, _may_be_chance),)),)
SLOW: Final = Case((Kind(LateDetail, late, _WINDOW), Kind(LinkDetail, slow_link, _WINDOW)))
