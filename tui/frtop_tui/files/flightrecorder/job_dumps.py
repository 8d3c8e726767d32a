"""The dumps of one job as a judged frame: the same state that live ranks would give.

What a dump cannot show stays open: there is no process, no clock across hosts, and a stack only if
py-spy took one. Ranks without dump and stack are unreachable, and may be the ones to blame.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.bounded_read import Progress, announced, quietly
from frtop_tui.files.flightrecorder.blocked import blocked_ops, is_recent, outdated, unfinished_ops
from frtop_tui.files.flightrecorder.dump import Dump, parse_dump
from frtop_tui.files.flightrecorder.dump_file import read_dumps
from frtop_tui.files.flightrecorder.file_names import (
    HOW_TO_NAME,
    Claim,
    FileName,
    RankPattern,
    assign_ranks,
    parse_name,
    time_in_name,
)
from frtop_tui.files.flightrecorder.ops import DumpOps, Ops
from frtop_tui.files.flightrecorder.rank_dumps import (
    RankDump,
    RankDumps,
    op_ids,
    sort_dumps,
    status_of,
)
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
from frtop_tui.job.units import counted, duration

KIND: Final = "Flight Recorder dumps"
OVER: Final = "these are dumps that torch wrote: there is no job to ask"
MAX_ENTRIES_READ: Final = 16_384
"""Entries to read closely: in all files together, or in each dump of a page."""
MIN_PER_DUMP: Final = 48
MAX_PER_DUMP: Final = 2048
_NEXT: Final = "copy the file again from where it was written, or open another one"


@dataclass(frozen=True, slots=True)
class _File:
    """One dump, what its file name and the page say about its rank, and the file's time."""

    dump: Dump
    name: FileName
    rank: int | None
    written_ns: int


def load_job(
    paths: Sequence[Path],
    problems: list[str],
    stacks: Stacks | None = None,
    pattern: RankPattern | None = None,
    progress: Progress = quietly,
) -> Frame:
    """Judges the job in these dumps, with py-spy's stacks of the same ranks.

    `problems` gets a sentence for each unreadable file; `pattern` says where file names contain the
    rank.

    Raises:
        Unreadable: no file can be read, or no rank is known.
    """
    keep = max(MIN_PER_DUMP, min(MAX_PER_DUMP, MAX_ENTRIES_READ // max(1, len(paths))))
    before = len(problems)
    found: list[_File] = []
    with _garbage_collection_off():
        for path in announced(paths, "dumps", progress):
            try:
                found += _read(path, keep, pattern, problems)
            except Unreadable as error:
                problems.append(error.text)
        if not found:
            raise Unreadable(listed(problems[before:]), _NEXT)
        ranks, notes = assign_ranks(_claims(found))
        dumps = [
            RankDump(rank, one.name.host, one.dump, one.written_ns)
            for rank, one in zip(ranks, found, strict=True)
            if rank is not None
        ]
        if not dumps:
            raise Unreadable(listed([*problems[before:], *notes]), HOW_TO_NAME)
        progress(f"judging {counted(len(dumps), 'dump')}")
        folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
        return _frame_of(folder, dumps, notes, stacks)


def _read(
    path: Path, keep: int, pattern: RankPattern | None, problems: list[str]
) -> Iterator[_File]:
    name, written = parse_name(path, pattern), _changed_ns(path)
    for raw in read_dumps(path, keep):
        if raw.problem:
            problems.append(f"{path}: rank {raw.rank}: {raw.problem}")
            continue
        mine = name if raw.rank is None else FileName(raw.rank, raw.host)
        try:
            dump = parse_dump(path, raw.values, keep)
        except Unreadable as error:
            whose = "" if raw.rank is None else f" (rank {raw.rank})"
            problems.append(f"{error.text}{whose}")
            continue
        yield _File(dump, mine, raw.rank, written)


def _claims(found: Sequence[_File]) -> list[Claim]:
    """The ranks that dumps claim; if names claim the same rank, with the ids of their ops."""
    numbers = Counter(one.name.number for one in found)
    claims = []
    for one in found:
        claim = Claim(one.dump.path, one.name, one.dump.possible_ranks, page_rank=one.rank)
        if numbers[one.name.number] > 1:
            claim = replace(claim, op_ids=op_ids(one.dump))
        claims.append(claim)
    return claims


def _changed_ns(path: Path) -> int:
    """When the file last changed: by the dump, or later by a copy. 0 if unknown."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Unpacked values contain no garbage; searching them for it doubles the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass(slots=True)
class _State:
    """The ranks at one moment."""

    views: dict[int, ObservedRank] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)  # by group
    written: dict[int, int] = field(default_factory=dict)
    now_ns: int = 0  # of the last op: a dump does not say when it was written


def _frame_of(
    folder: Path, dumps: Sequence[RankDump], notes: Sequence[str], stacks: Stacks | None = None
) -> Frame:
    """The frame of one job's dumps, and of what stacks show about its ranks."""
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
        return ["these dumps have no op, so they do not show whether the job is well"]
    if any(view.pending for view in views.values()):
        return []
    return ["all ops in these dumps are completed; they do not show what ranks did afterwards"]


def _gap(mine: RankDumps) -> int:
    """The time between two moments of a rank, from the times of its files; 0 if unknown."""
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
    """When the newest dump was written, never before the last op in them; and how we know.

    Its name says so, or else the time of its file, which a copy may have changed.
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
    """How many ranks there are: according to the largest group, at least those that dumped."""
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
        text = f"{folded(old)} continued after the dump: others completed ops that needed them"
        notes.insert(0, CoverageNote(text, "last known"))
    reported = len(views) - len(unreachable)
    return Coverage(world, reported, tuple(sorted([*missing, *unreachable])), notes=tuple(notes))


def _about(moments: Mapping[int, RankDumps]) -> list[str]:
    """Notes about ranks with several dumps."""
    compared = [rank for rank, mine in moments.items() if mine.before]
    undated = [rank for rank, mine in moments.items() if mine.undated]
    notes = []
    if compared:
        notes.append(f"{folded(compared)}: two dumps of each are compared")
    if undated:
        notes.append(
            f"{folded(undated)}: several dumps say the same; whether time passed between them"
            " is unknown, as copying has set the times of their files (cp -p keeps them)"
        )
    return notes
