"""Dumps of a job's ranks as one frame, judged: the same state that live ranks would give.

What a dump cannot tell is left open: there is no process, no stack, no clock across hosts.
Ranks without a dump are not heard, and may be the ones to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.ring.fold import MAX_RANKS
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.export.flightrecorder import entries as told
from frtop_tui.export.flightrecorder.blocked import blocked_ops, outdated
from frtop_tui.export.flightrecorder.entries import Dump
from frtop_tui.export.flightrecorder.ops import Ops, Part
from frtop_tui.job.groups import group_views
from frtop_tui.job.model import Coverage, Frame, RankView, Recorded
from frtop_tui.job.naming import folded, listed

KIND: Final = "Flight Recorder dumps"
OVER: Final = "these are dumps that torch wrote: there is nobody to ask"


@dataclass(slots=True)
class _Rank:
    """One rank, of whose recorders there may be several: one for each backend."""

    rank: int
    host: str
    dumps: list[Dump] = field(default_factory=list)


def frame_of(
    folder: Path, dumps: Sequence[tuple[int, str, Dump, int]], notes: Sequence[str]
) -> Frame:
    """One job's dumps, each with its rank, host and the time of its file."""
    ranks: dict[int, _Rank] = {}
    for rank, host, dump, _ in dumps:
        ranks.setdefault(rank, _Rank(rank, host)).dumps.append(dump)
    world = _world_of([dump for _, _, dump, _ in dumps], ranks)
    job = wire.Job("", 0, world, name=folder.name or str(folder))
    ops = Ops(world, ((rank, dump) for rank, _, dump, _ in dumps))
    written = {rank: at for rank, _, _, at in dumps}
    completed: dict[int, int] = {}
    views: dict[int, RankView] = {}
    for one in sorted(ranks.values(), key=lambda r: r.rank):
        parts = [ops.of(dump) for dump in _each_once(one.dumps)]
        views[one.rank] = _view(one, job, parts)
        for group, number in (item for part in parts for item in part.completed.items()):
            completed[group] = max(number, completed.get(group, 0))
    now = max((view.heard_ns for view in views.values()), default=0)
    old = outdated(views, completed)
    for rank in old:
        views[rank] = views[rank].judged("unheard", views[rank].heard_ns, None)
    for rank, op in blocked_ops(views, ops, written).items():
        views[rank] = views[rank].judged("moving", views[rank].heard_ns, op)
    missing = [rank for rank in range(world) if rank not in views]
    frame = Frame(
        now_ns=now,
        wall_ns=now,
        health="healthy",
        since_ns=now,
        job=job,
        ranks=views,
        groups=group_views(views.values(), now),
        coverage=_coverage(world, views, missing, ops),
        recorded=Recorded(KIND, str(folder), now, version=_version(dumps), notes=tuple(notes)),
        read_only=OVER,
    )
    return Engine().judge(frame).frame


def _view(one: _Rank, job: wire.Job, mine: Sequence[Part]) -> RankView:
    newest = max((part.latest_ns for part in mine), default=0)
    kept = sorted((op for part in mine for op in part.recent), key=lambda op: op.issued_ns)
    pending = sorted((op for part in mine for op in part.pending), key=lambda op: op.issued_ns)
    look = wire.Look(one.rank + 1, newest, ops=tuple(kept))
    return RankView(
        rank=one.rank,
        host=one.host,
        key=one.rank + 1,
        identity=wire.Identity(0, 0, one.rank, -1, job),
        posture="moving",
        posture_since_ns=newest,
        heard_ns=newest,
        clock_ns=0,
        groups={group.id: group for part in mine for group in part.groups},
        fronts={front.group: front for part in mine for front in part.fronts},
        pending=tuple(pending),
        look=look,
    )


def _each_once(dumps: Sequence[Dump]) -> list[Dump]:
    """One dump of each recorder: the newest, and of the same moment the one that tells more."""
    chosen: dict[frozenset[str], Dump] = {}
    for dump in dumps:
        backends = frozenset(told.called(entry).backend for entry in dump.lasts.values())
        other = chosen.get(backends)
        if other is None or _worth(dump) > _worth(other):
            chosen[backends] = dump
    return list(chosen.values())


def _worth(dump: Dump) -> tuple[int, bool]:
    newest = dump.kept[-1] if dump.kept else {}
    return told.whole(newest.get("record_id")), "frames" in newest


def _world_of(dumps: Iterable[Dump], ranks: Mapping[int, object]) -> int:
    """How many ranks there are: what the largest group says, at least those that dumped."""
    largest = max(ranks, default=-1)
    for dump in dumps:
        for members in dump.groups.values():
            largest = max(largest, max(members.ranks, default=-1))
    return min(largest + 1, MAX_RANKS)


def _coverage(
    world: int, views: Mapping[int, RankView], missing: Sequence[int], ops: Ops
) -> Coverage:
    old = [rank for rank, view in views.items() if view.posture == "unheard"]
    notes = list(ops.notes())
    if missing:
        notes.insert(
            0,
            f"no dump of {folded(missing)}: fetch those, too; a rank that wrote none may be"
            " the one to blame",
        )
    if old:
        notes.insert(
            0, f"{folded(old)} went on after the dump: what others have completed needed them"
        )
    unheard = tuple(sorted([*missing, *old]))
    return Coverage(world, len(views) - len(old), unheard, notes=tuple(notes))


def _version(dumps: Sequence[tuple[int, str, Dump, int]]) -> str:
    return listed(sorted({dump.version for _, _, dump, _ in dumps if dump.version}), 3)
