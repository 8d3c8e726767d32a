"""Frames of jobs that nobody prepared: the same hang, seen from outside."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.coverage import RankCounts
from frtop_tui.job.model import JobActivity, ObservedRank, as_rank

from .scenes import JOB, hung


def outside(
    frame: Frame | None = None, ranks: Collection[int] | None = None, *, dated: bool = False
) -> Frame:
    """`frame` as if these of its ranks (None: all) had no recorder.

    With `dated`, their ops were issued while somebody looked.
    """
    frame = hung() if frame is None else frame
    views = {
        number: _outside(view, dated=dated) if ranks is None or number in ranks else view
        for number, view in frame.ranks.items()
    }
    counts = RankCounts()
    for view in views.values():
        counts.put(None, as_rank(ObservedRank, view))
    unprepared = sum(not view.identity.prepared for view in views.values())
    activity = JobActivity(JOB, 3600.0, ranks=len(views), unprepared=unprepared, hosts=8)
    return replace(
        frame,
        ranks=views,
        coverage=counts.coverage({n: as_rank(ObservedRank, v) for n, v in views.items()}, 64, 0, 0),
        activities=(activity,),
    )


def unprepared() -> Frame:
    """As `outside`, with the evidence that a job without a recorder has."""
    frame = outside()
    verdict = replace(
        frame.verdicts[0],
        evidence=(
            "63 ranks are blocked in all_reduce #8812 for at least 4m12s",
            "rank 37 last issued #8811 of dp:0, at least 4m12s ago",
            "3 snapshots in 9 s: same stack, no CPU time, no bytes read",
        ),
    )
    return replace(frame, verdicts=(verdict,))


def _outside(view: JudgedRank, *, dated: bool) -> JudgedRank:
    ops = tuple(replace(op, dated=dated, site=None) for op in view.pending)
    snapshot = view.snapshot
    return replace(
        view,
        identity=replace(view.identity, prepared=False),
        status=None,
        pending=ops,
        blocked_on=ops[0] if view.blocked_on is not None and ops else None,
        snapshot=None if snapshot is None else replace(snapshot, ops=()),
    )


SCENES = {"unprepared": unprepared}
