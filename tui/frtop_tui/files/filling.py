"""Adds what a capture or black boxes lack from dumps and stacks beside them, and to all from logs.

Logs show how ranks ended of which nothing else is known. Dumps show unreachable ranks, and what
devices have completed if the recorder does not know. They must come from the same job and moment:
the groups are the same, no rank in both is at another op, and no rank has issued less than others
have completed with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number, local_group_id
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.evidence.stack_state import has_device
from frtop_tui.diagnosis.model import BASE_FIELDS, Frame, JudgedRank
from frtop_tui.files.flightrecorder.ops import TOGETHER
from frtop_tui.files.stacks import may_wait
from frtop_tui.job.groups import Identifier, group_views, identifier
from frtop_tui.job.model import Coverage, Health, ObservedFrame, ObservedRank, RankState, as_rank
from frtop_tui.job.naming import folded

_AS_BEFORE: Final = frozenset({"dead", "ended", "unreachable", "starting", "connecting", "empty"})
"""Healths that do not follow from a comparison of ranks."""


def filled(frame: Frame, other: Frame, troubles: list[str]) -> Frame:
    """`frame`, plus what `other`, made from dumps, stacks or logs, knows.

    A verdict that names a rank stays. If `other` is not used, `troubles` gets the reason.
    """
    reason = _misfit(frame, other)
    if reason:
        troubles.append(f"{_named(other)} beside it {reason}: left out, open them by themselves")
        return frame
    views = dict(frame.ranks)
    completed = _completed(frame.ranks)
    fresh, old, known = [], [], []
    for rank, view in other.ranks.items():
        mine = views.get(rank)
        if mine is not None and mine.state != "unreachable":
            if _knows_less(mine) and (better := _with_completion(mine, view, frame)) is not mine:
                views[rank] = better
                known.append(rank)
        elif _is_outdated(view, completed):
            old.append(rank)
        else:
            views[rank] = _on_clock_of(frame, view)
            fresh.append(rank)
    notes = [
        *([f"{folded(fresh)} from {_named(other)}"] if fresh else []),
        *([f"what the devices of {folded(known)} have completed: from dumps"] if known else []),
        *([f"dumps of {folded(old)} are older than what others have completed"] if old else []),
    ]
    if not fresh and not known:
        troubles.append(f"{_named(other)} beside it say nothing new about its ranks")
        return _noted(frame, notes)
    unfinished = other.recorded.unfinished if other.recorded is not None else {}
    taken = {rank: unfinished[rank] for rank in sorted([*fresh, *known]) if rank in unfinished}
    assert frame.recorded is not None
    recorded = replace(frame.recorded, filled=True, unfinished={} if frame.verdicts else taken)
    return _noted(_judged(replace(frame, recorded=recorded), views, fresh), notes)


def _named(other: Frame) -> str:
    return other.recorded.kind if other.recorded is not None else "what lies"


def _noted(frame: Frame, notes: list[str]) -> Frame:
    assert frame.recorded is not None
    recorded = replace(frame.recorded, notes=(*frame.recorded.notes, *notes))
    return replace(frame, recorded=recorded)


def _misfit(frame: Frame, other: Frame) -> str:
    """Why the two cannot be from one job and moment; "" if they can."""
    if frame.job is not None and 0 < frame.job.world_size <= max(other.ranks, default=0):
        return "name ranks that this job does not have"
    here, there = _groups(frame.ranks), _groups(other.ranks)
    if here and there and not here.keys() & there.keys():
        return "name other groups"
    for rank, view in other.ranks.items():
        mine = frame.ranks.get(rank)
        if mine is None or mine.state == "unreachable":
            continue
        for group in view.groups.values():
            number = local_group_id(mine, group)
            same = number is not None and mine.groups[number].exact and group.exact
            if same and last_issued_number(mine, group) != last_issued_number(view, group):
                return f"are of another moment (rank {rank} was at another op)"
    return ""


def _groups(views: Mapping[int, JudgedRank]) -> dict[Identifier, wire.Group]:
    return {identifier(g): g for view in views.values() for g in view.groups.values()}


def _completed(views: Mapping[int, JudgedRank]) -> dict[Identifier, int]:
    """The last completed op of each group that no rank can complete alone."""
    found: dict[Identifier, int] = {}
    for view in views.values():
        looked = view.snapshot.ops if view.snapshot is not None else ()
        lasts = (front.last for front in view.group_progress.values() if front.last is not None)
        for op in (*looked, *lasts):
            group = view.groups.get(op.group)
            if group is None or op.p2p or op.done_ns <= 0 or op.signature is None:
                continue
            if op.signature.kind.startswith(TOGETHER):
                key = identifier(group)
                found[key] = max(op.number, found.get(key, 0))
    return found


def _is_outdated(view: JudgedRank, completed: Mapping[Identifier, int]) -> bool:
    return any(
        0 < last_issued_number(view, group) < completed.get(identifier(group), 0)
        for group in view.groups.values()
    )


def _knows_less(view: JudgedRank) -> bool:
    """Whether the recorder does not know if some of its ops completed."""
    looked = view.snapshot.ops if view.snapshot is not None else ()
    lasts = (front.last for front in view.group_progress.values() if front.last is not None)
    return any(not op.tracked for op in (*looked, *lasts))


def _with_completion(view: JudgedRank, dump: JudgedRank, frame: Frame) -> JudgedRank:
    """The rank with the ops that its devices have not completed, according to its dump."""
    shift = frame.now_ns - frame.wall_ns - view.clock_ns  # from the wall to the rank's host
    looked = view.snapshot.ops if view.snapshot is not None else ()
    lasts = [front.last for front in view.group_progress.values() if front.last is not None]
    known = {(op.group, op.number): op for op in (*looked, *lasts) if not op.p2p}
    unfinished = []
    for op in dump.pending:
        number = local_group_id(view, dump.groups[op.group])
        if number is None:
            continue
        mine = known.get((number, op.number)) if not op.p2p else None
        if mine is None:
            mine = structs.replace(op, group=number, issued_ns=op.issued_ns + shift)
        unfinished.append(structs.replace(mine, tracked=True, done_ns=0))
    if not unfinished:
        return view
    there = {(op.group, op.number) for op in view.pending}
    more = [op for op in unfinished if op.p2p or (op.group, op.number) not in there]
    pending = sorted((*view.pending, *more), key=lambda op: op.issued_ns)
    return replace(view, pending=tuple(pending))


def _on_clock_of(frame: Frame, view: JudgedRank) -> JudgedRank:
    """Moves a rank from a dump from wall-clock times to the frame's clock."""
    shift = frame.now_ns - frame.wall_ns
    job = frame.job if frame.job is not None else view.identity.job
    ended = view.exception is not None or view.exit_info is not None
    state: RankState = "dead" if ended else "moving"
    plain = as_rank(JudgedRank, view, state, view.reported_ns + shift, view.blocked_on)
    # By its stack, in whatever op.
    on_device = any(map(has_device, frame.ranks.values()))
    unnumbered = not (ended or view.evidence.has_numbers)
    waits = unnumbered and may_wait(view, on_device=on_device)
    if waits or view.state == "unreachable":
        plain = as_rank(JudgedRank, view, "unreachable", view.reported_ns + shift, None)
    identity = structs.replace(view.identity, job=job)
    return replace(plain, identity=identity, reported_ns=view.reported_ns + shift, clock_ns=shift)


def _judged(frame: Frame, views: dict[int, JudgedRank], fresh: list[int]) -> Frame:
    reported = {rank for rank in fresh if views[rank].state != "unreachable"}
    known = replace(
        frame,
        ranks=dict(sorted(views.items())),
        groups=group_views(views.values()),
        coverage=_coverage(frame.coverage, reported),
    )
    if any(
        verdict.culprits or (verdict.parties and verdict.kind != "undecided")
        for verdict in frame.verdicts
    ):
        return known
    # Files do not tell whether their ranks go on.
    open_health: Health = "undecided" if fresh else "healthy"
    health = frame.health if frame.health in _AS_BEFORE else open_health
    observed = ObservedFrame(**{name: getattr(known, name) for name in BASE_FIELDS})
    ranks = {rank: as_rank(ObservedRank, view) for rank, view in known.ranks.items()}
    judged = (
        Engine(explain=True).judge(replace(observed, ranks=ranks, notes=(), health=health)).frame
    )
    return judged if judged.verdicts or not frame.verdicts else known


def _coverage(coverage: Coverage, reporting: set[int]) -> Coverage:
    unreachable = tuple(rank for rank in coverage.unreachable if rank not in reporting)
    count = coverage.reporting + len(coverage.unreachable) - len(unreachable)
    notes = tuple(note for note in coverage.notes if unreachable or not note.kind)
    return replace(coverage, reporting=count, unreachable=unreachable, notes=notes)
