"""Rare frames: an ended job, thousands of ranks, several jobs."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import Coverage, GroupView, Problem
from frtop_tui.job.naming import GroupKey

from .scenes import (
    CULPRIT,
    HOST_NOW,
    JOB,
    NOW,
    REDUCING,
    WALL,
    S,
    dead,
    groups,
    healthy,
    hosts,
    hung,
    rank_view,
    snapshot,
)
from .scenes import SCENES as COMMON


def all_stacks() -> Frame:
    """The hung job with the stacks of all ranks."""
    frame = hung()
    ranks = {
        number: replace(
            view,
            snapshot=view.snapshot if number == CULPRIT else snapshot(number, REDUCING),
            stacks_taken_ns=HOST_NOW,
        )
        for number, view in frame.ranks.items()
    }
    return replace(frame, ranks=ranks)


def over() -> Frame:
    """All ranks ended a minute ago."""
    ranks = {
        n: replace(
            rank_view(n, "dead"),
            exit_info=wire.ExitInfo(HOST_NOW - 58 * S, exit_code=1),
            blocked_on=None,
            pending=(),
        )
        for n in range(64)
    }
    return replace(
        dead(),
        ranks=ranks,
        groups=groups((), (), 58.0),
        verdicts=(),
    )


def pipeline() -> Frame:
    """A job with a group that has only sends and receives; another job runs."""
    base = healthy()
    key = GroupKey("pp", "0-1")
    group = wire.Group(3, "pp", "pp:0", "nccl", "0-1")
    ranks = dict(base.ranks)
    for number, issued in ((0, 81), (1, 80)):
        ranks[number] = replace(
            ranks[number],
            groups={**ranks[number].groups, 3: group},
            group_progress={
                **ranks[number].group_progress,
                3: wire.GroupProgress(3, 0, issued, HOST_NOW),
            },
        )
    return replace(
        base,
        ranks=ranks,
        groups=(
            *base.groups,
            GroupView(key, "pp:0", "nccl", (0, 1), 0, None, issued_ns=NOW - S // 10),
        ),
        other_jobs=(wire.Job("node0", 29501, 16, run_id="r2", name="llama 13b"),),
    )


def another_job() -> Frame:
    """The job that the user named does not exist; another one does."""
    return Frame(
        NOW,
        WALL,
        "empty",
        problem=Problem("no job is called 'gpt'"),
        hosts=hosts(),
        other_jobs=(JOB,),
    )


def many(world: int = 4096, tick: int = 0, changed: float = 0.1) -> Frame:
    """A large job; the share `changed` of its ranks changes state in every tick."""
    ranks: dict[int, JudgedRank] = {}
    for number in range(world):
        # Scattered over the grid, like the ranks of a group.
        blocked = (number * 7919 + tick * 104_729) % 1000 < changed * 1000 / 2
        base = _moving(number)
        ranks[number] = replace(base, state="blocked" if blocked else "moving")
    job = wire.Job("node0", 29500, world, name="large")
    return Frame(
        NOW,
        WALL,
        "healthy",
        NOW - 100 * S,
        job,
        up_s=100 + tick / 4,
        ranks=ranks,
        groups=groups((), (), 0.1),
        coverage=Coverage(world, world),
    )


_MOVING: dict[int, JudgedRank] = {}


def _moving(number: int) -> JudgedRank:
    if number not in _MOVING:
        _MOVING[number] = replace(
            rank_view(number, "moving", age_s=100.0), host=f"node{number // 8}"
        )
    return _MOVING[number]


SCENES = {
    **COMMON,
    "all_stacks": all_stacks,
    "over": over,
    "pipeline": pipeline,
    "another_job": another_job,
    "many": many,
}
