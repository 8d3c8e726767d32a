"""Ranks and groups in the light of the others: who is blocked, who is late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from frtop_tui.diagnosis.points import SETTLED_NS
from frtop_tui.diagnosis.waiting import Wait
from frtop_tui.job.groups import Identifier
from frtop_tui.job.model import GroupView, Posture, RankView

_REPLACED = frozenset({"moving", "starting"})
"""Postures that give way. A rank that is dead, silent or unheard remains so."""


def judged_ranks(
    ranks: Mapping[int, RankView],
    waits: Mapping[int, Wait],
    late: Mapping[int, int],
    now_ns: int,
) -> dict[int, RankView]:
    """`late` says since when others wait for a rank."""
    return {rank: _judged(view, waits.get(rank), late, now_ns) for rank, view in ranks.items()}


def _judged(view: RankView, wait: Wait | None, late: Mapping[int, int], now_ns: int) -> RankView:
    since_late = late.get(view.rank)
    if since_late is not None and view.posture in _REPLACED:
        return view.judged("late", since_late or view.posture_since_ns, None)
    if wait is None or wait.side or not wait.has_lasted(SETTLED_NS, now_ns):
        return view
    # A rank in its first `init_process_group` is still starting, and says so.
    gives_way = view.posture in _REPLACED and not (wait.op.pseudo and not view.groups)
    posture: Posture = "blocked" if gives_way else view.posture
    # "moving" and "starting" are as old as our looking; the wait knows better.
    dated = posture in ("blocked", "starting") and not wait.undated
    since = wait.since_ns if dated else view.posture_since_ns
    return view.judged(posture, since, wait.op)


def judged_groups(
    groups: tuple[GroupView, ...],
    ranks: Mapping[int, RankView],
    waits: Mapping[int, Wait],
    now_ns: int,
) -> tuple[GroupView, ...]:
    """Groups with who waits in them; nobody is late where nobody waits."""
    waiting: dict[Identifier, list[int]] = {}
    for wait in waits.values():
        group = ranks[wait.rank].groups.get(wait.op.group)
        if group is not None and wait.has_lasted(SETTLED_NS, now_ns):
            key = (group.name, group.ranks, group.epoch)
            waiting.setdefault(key, []).append(wait.rank)
    return tuple(_judged_group(group, waiting) for group in groups)


def _judged_group(group: GroupView, waiting: Mapping[Identifier, list[int]]) -> GroupView:
    inside = waiting.get((group.key.name, group.key.ranks, group.key.epoch))
    if inside is None:
        return replace(group, late=()) if group.late else group
    known = set(inside)
    late = tuple(rank for rank in group.late if rank not in known)
    return replace(group, late=late, waiting=tuple(sorted(inside)))
