"""Ranks known by stacks only: no second look at files confirms anything."""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.cases.stacks_alone import detect, words

_NEVER: Final = (Rule("never"),)
STACKS_ALONE: Final = Case(
    (
        Kind(detect.OutsideCall, words.outside_call, _NEVER),
        Kind(detect.MaybeComing, words.maybe_coming, _NEVER),
        Kind(detect.SameCall, words.same_call, _NEVER),
        Kind(detect.DifferentCalls, words.different_calls, _NEVER),
        Kind(detect.CallDeadlock, words.call_deadlock, _NEVER),
    ),
    detect.detect,
)
