"""Dumps of a job's ranks as one frame, judged: the same state that live ranks would give.

What a dump cannot tell is left open: there is no process, no clock across hosts, and a stack
only where py-spy took one. Ranks of which there is nothing are unreachable, and may be the ones
to blame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.flightrecorder.blocked import blocked_ops, is_recent, outdated, unfinished_ops
from frtop_tui.files.flightrecorder.file_names import time_in_name
from frtop_tui.files.flightrecorder.ops import DumpOps, Ops
from frtop_tui.files.flightrecorder.rank_dumps import RankDump, RankDumps, sort_dumps, status_of
from frtop_tui.files.stacks import Stacks
from frtop_tui.job.groups import group_views
from frtop_tui.job.model import (
    DUMPS,
    Coverage,
    CoverageNote,
    ObservedFrame,
    ObservedRank,
    Recorded,
    as_rank,
)
from frtop_tui.job.naming import folded, listed, printable
from frtop_tui.job.record import COMPARABLE_NS
from frtop_tui.job.units import duration

KIND: Final = "Flight Recorder dumps"
OVER: Final = "these are dumps that torch wrote: there is nobody to ask"


@dataclass(slots=True)
class _State:
    """The ranks at one moment."""

    views: dict[int, ObservedRank] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)  # by group
    written: dict[int, int] = field(default_factory=dict)
    now_ns: int = 0  # of the last op: nothing in a dump is measured up to when it was written


def frame_of(
    folder: Path, dumps: Sequence[RankDump], notes: Sequence[str], stacks: Stacks | None = None
) -> Frame:
    """One job's dumps, and what is known of its ranks by their stacks."""
    stacks = stacks or Stacks()
    ranks: dict[int, list[RankDump]] = {}
    for one in dumps:
        ranks.setdefault(one.rank, []).append(one)
    moments = {rank: sort_dumps(mine) for rank, mine in sorted(ranks.items())}
    world = max(_world_of(dumps), max(stacks.last, default=-1) + 1)
    job = wire.Job("", 0, world, name=printable(folder.name or str(folder)))
    ops = Ops(world, ((one.rank, one.dump) for one in dumps))
    gaps = {rank: _gap(mine) for rank, mine in moments.items() if mine.before}
    engine = Engine(explain=True)
    if gaps:
        early = _State()
        for rank, mine in moments.items():
            _add(early, job, ops, rank, mine.before or mine.last)
        now = max((view.reported_ns for view in early.views.values()), default=0)
        for rank, gap in gaps.items():
            _look_earlier(early.views, rank, gap)
        early.now_ns = now - min(gaps.values())
        engine.judge(_frame(Recorded(KIND, str(folder), early.now_ns), job, ops, early))
    state = _State()
    for rank, mine in moments.items():
        _add(state, job, ops, rank, mine.last)
    for rank in gaps:
        view = state.views[rank]
        state.views[rank] = replace(view, prior_snapshot=early.views[rank].snapshot)
    stacks.join(state.views, job)
    dumped = [view for view in state.views.values() if view.evidence.has_numbers]
    now = max((view.reported_ns for view in dumped), default=0) or max(state.written.values())
    said = _what_they_lack(state.views)
    all_notes = (*notes, *said, *stacks.notes, *_about(moments))
    versions = listed(sorted({one.dump.version for one in dumps if one.dump.version}), 3)
    unfinished = unfinished_ops(state.views, state.written)
    written, when = _written(moments, now)
    recorded = Recorded(
        KIND,
        str(folder),
        written,
        version=versions,
        notes=(*all_notes, *when),
        unfinished=unfinished,
    )
    state.now_ns = now
    return engine.judge(_frame(recorded, job, ops, state, stacks)).frame


def _what_they_lack(views: Mapping[int, ObservedRank]) -> list[str]:
    if not any(view.group_progress for view in views.values()):
        return ["these dumps tell of no op, so not whether the job is well"]
    if any(view.pending for view in views.values()):
        return []
    return ["all ops in these dumps are completed; what ranks did after them they do not tell"]


def _gap(mine: RankDumps) -> int:
    """Time between two moments of a rank, as far as the times of its files tell."""
    last = min(one.written_ns for one in mine.last)
    before = max(one.written_ns for one in mine.before)
    gap = last - before
    return gap if before and gap >= COMPARABLE_NS else 0


def _add(state: _State, job: wire.Job, ops: Ops, rank: int, dumps: Sequence[RankDump]) -> None:
    parts = [ops.of(one.dump) for one in dumps]
    state.views[rank] = _view(rank, dumps, job, parts)
    state.written[rank] = min(one.written_ns for one in dumps)
    for group, number in (item for part in parts for item in part.completed.items()):
        state.completed[group] = max(number, state.completed.get(group, 0))


def _look_earlier(views: dict[int, ObservedRank], rank: int, gap: int) -> None:
    view = views[rank]
    assert view.snapshot is not None
    look = wire.Snapshot(
        view.key, view.snapshot.at_ns - gap, view.snapshot.status, ops=view.snapshot.ops
    )
    views[rank] = replace(view, snapshot=look)


def _written(moments: Mapping[int, RankDumps], latest: int) -> tuple[int, list[str]]:
    """When the newest dump was written, never before the last op in them; and how that is known.

    Its name says so, or when its file was last changed; that may have been by a copy.
    """
    dumps = [one for mine in moments.values() for one in mine.last]
    named = max((time_in_name(one.dump.path) for one in dumps), default=0)
    written = named if named >= latest else max(one.written_ns for one in dumps)
    since = written - latest
    if since < COMPARABLE_NS:
        return max(written, latest), []
    how = "by their names" if written == named else "or copied then (cp -p keeps the time)"
    return written, [
        f"these files were written {duration(since / 1e9)} after the last op in them, {how}"
    ]


def _frame(
    recorded: Recorded, job: wire.Job, ops: Ops, state: _State, stacks: Stacks | None = None
) -> ObservedFrame:
    views, now = state.views, state.now_ns
    moves = not (stacks is not None and stacks.last) and _all_move(state)
    old = outdated(views, state.completed)
    for rank in old:
        views[rank] = as_rank(
            ObservedRank, views[rank], "unreachable", views[rank].reported_ns, None
        )
    blocked = blocked_ops(views, ops, state.written)
    for rank, op in blocked.items():
        views[rank] = as_rank(ObservedRank, views[rank], "moving", views[rank].reported_ns, op)
    if stacks is not None and stacks.last and not blocked:
        stacks.tell(views)
        old = [rank for rank in old if views[rank].state == "unreachable"]
    return ObservedFrame(
        now_ns=now,
        wall_ns=now,
        health="healthy" if moves else "undecided",
        since_ns=now,
        job=job,
        ranks=views,
        groups=group_views(views.values()),
        coverage=_coverage(job.world_size, views, old, ops),
        recorded=recorded,
        read_only=OVER,
    )


def _all_move(state: _State) -> bool:
    """Whether every rank did something just before its dump, or between two of them."""
    return bool(state.views) and all(
        progress_of(view, view.reported_ns).progress == "active"
        or is_recent(view.reported_ns, state.written.get(rank, 0))
        for rank, view in state.views.items()
    )


def _view(
    rank: int, dumps: Sequence[RankDump], job: wire.Job, mine: Sequence[DumpOps]
) -> ObservedRank:
    newest = max((part.latest_ns for part in mine), default=0)
    recent = sorted((op for part in mine for op in part.recent), key=lambda op: op.issued_ns)
    pending = sorted((op for part in mine for op in part.pending), key=lambda op: op.issued_ns)
    return ObservedRank(
        rank=rank,
        host=dumps[0].host,
        key=rank + 1,
        identity=wire.Identity(0, 0, rank, -1, job),
        evidence=DUMPS,
        state="moving",
        state_since_ns=newest,
        reported_ns=newest,
        clock_ns=0,
        groups={group.id: group for part in mine for group in part.groups},
        group_progress={front.group: front for part in mine for front in part.fronts},
        pending=tuple(pending),
        snapshot=wire.Snapshot(rank + 1, newest, status_of(dumps), ops=tuple(recent)),
    )


def _world_of(dumps: Sequence[RankDump]) -> int:
    """How many ranks there are: what the largest group says, at least those that dumped."""
    largest = max((one.rank for one in dumps), default=-1)
    for one in dumps:
        for members in one.dump.groups.values():
            largest = max(largest, max(members.ranks, default=-1))
    return min(largest + 1, MAX_RANKS)


def _coverage(
    world: int, views: Mapping[int, ObservedRank], old: Sequence[int], ops: Ops
) -> Coverage:
    missing = [rank for rank in range(world) if rank not in views]
    unreachable = sorted(rank for rank, view in views.items() if view.state == "unreachable")
    notes = list(map(CoverageNote, ops.notes()))
    if missing:
        text = (
            f"no dump of {folded(missing)}: fetch those, too; a rank that wrote none may be"
            " the one to blame"
        )
        notes.insert(0, CoverageNote(text, "never reported"))
    if old:
        text = f"{folded(old)} went on after the dump: what others have completed needed them"
        notes.insert(0, CoverageNote(text, "last known"))
    reported = len(views) - len(unreachable)
    return Coverage(world, reported, tuple(sorted([*missing, *unreachable])), notes=tuple(notes))


def _about(moments: Mapping[int, RankDumps]) -> list[str]:
    """What came of dumps of which there are several of one rank."""
    compared = [rank for rank, mine in moments.items() if mine.before]
    undated = [rank for rank, mine in moments.items() if mine.undated]
    notes = []
    if compared:
        notes.append(f"{folded(compared)}: two dumps of each are compared")
    if undated:
        notes.append(
            f"{folded(undated)}: several dumps tell the same; that some time passed between them"
            " is not known, as copying has set the times of their files (cp -p keeps them)"
        )
    return notes
