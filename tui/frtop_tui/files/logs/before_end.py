"""The ranks of a log as their stacks show them, before those gave up that waited for others.

Ranks that ended because others did not come are dead when the log is judged, and nobody waits any
more. Stacks from the time when they waited show who did not come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.evidence.death import Death, death_of
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.logs.facts import LogFacts
from frtop_tui.files.logs.stacks import LoggedStack
from frtop_tui.job.model import ObservedRank

_VICTIMS: Final = frozenset({"timeout", "network", "ended", "abort"})
"""Natures of ends that follow from what other ranks did."""
_WAITED: Final = re.compile(r"Timed out waiting (\d{1,12})ms")
"""gloo's, which has no watchdog."""


def fresh_stacks(facts: LogFacts) -> tuple[list[int], dict[int, LoggedStack]]:
    """The ranks with a stack from before the hang, and the stacks of the others."""
    begins = [
        one.wall_ns - one.ran_ms * 1_000_000
        for said in facts.ranks.values()
        for one in said.given_up.values()
        if one.wall_ns
    ]
    begins += [
        thrown.wall_ns - int(waited[1]) * 1_000_000
        for said in facts.ranks.values()
        if (thrown := said.thrown) is not None
        and thrown.wall_ns
        and (waited := _WAITED.search(thrown.text)) is not None
    ]
    begin = min(begins, default=0)
    stacks = {rank: said.stack for rank, said in facts.ranks.items() if said.stack is not None}
    old = [rank for rank, stack in stacks.items() if 0 < stack.wall_ns < begin]
    return sorted(old), {rank: one for rank, one in stacks.items() if rank not in old}


def waiting(
    views: Mapping[int, ObservedRank], taken_ns: Mapping[int, int], ended_ns: Mapping[int, int]
) -> dict[int, ObservedRank] | None:
    """The ranks before the end; None if some rank ended by itself, or no stack is of that time.

    `taken_ns` is when the stack of each rank was printed, or earlier; `ended_ns` when it wrote its
    exception, or later.
    """
    deaths = {rank: end for rank, view in views.items() if (end := death_of(view)) is not None}
    since = _since(deaths, ended_ns)
    if not since or any(end.nature not in _VICTIMS for end in deaths.values()):
        return None
    fresh = {rank for rank, at_ns in taken_ns.items() if at_ns >= since}
    if not fresh - {*deaths} or not fresh & {*deaths}:
        return None  # whoever did not come has to be seen, and somebody who waited
    return {
        rank: replace(view, state="moving", exception=None, exit_info=None)
        if rank in fresh
        else view
        for rank, view in views.items()
    }


def _since(deaths: Mapping[int, Death], ended_ns: Mapping[int, int]) -> int:
    """When the first rank began to wait that gave up; 0 if not known."""
    begins = [
        ended_ns.get(rank, 0) - round(end.waited_s * 1e9)
        for rank, end in deaths.items()
        if end.nature == "timeout" and end.waited_s
    ]
    return max(0, min(begins, default=0))


def blames_no_victim(frame: Frame, views: Mapping[int, ObservedRank]) -> bool:
    """Whether a frame of `waiting` ranks has verdicts, and none on a rank that gave up later."""
    culprits = {rank for verdict in frame.verdicts for rank in verdict.culprits}
    return bool(frame.verdicts) and all(death_of(views[rank]) is None for rank in culprits)
