"""Frames one sees seldom: a job that is over, one of thousands of ranks, one beside others."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.judged import Frame, JudgedRank
from frtop_tui.job.model import Coverage, GroupKey, GroupView, Problem

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
    look,
    rank_view,
)
from .scenes import SCENES as COMMON


def all_stacks() -> Frame:
    """The hung job after the stacks of all ranks were taken."""
    frame = hung()
    ranks = {
        number: view if number == CULPRIT else replace(view, snapshot=look(number, REDUCING))
        for number, view in frame.ranks.items()
    }
    return replace(frame, ranks=ranks)


def over() -> Frame:
    """All ranks have ended, for a minute."""
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
    """A group of sends and receives only, in a job beside another one."""
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
    """A job of a name was asked for; there is one of another name."""
    return Frame(
        NOW,
        WALL,
        "empty",
        problem=Problem("no job is called 'gpt'"),
        hosts=hosts(),
        other_jobs=(JOB,),
    )


def many(world: int = 4096, tick: int = 0, changed: float = 0.1) -> Frame:
    """A large job of which a share of ranks changes from tick to tick."""
    ranks: dict[int, JudgedRank] = {}
    for number in range(world):
        # Scattered, as ranks of different groups are; and each one heard in every tick.
        turned = (number * 7919 + tick * 104_729) % 1000 < changed * 1000 / 2
        base = _moving(number)
        ranks[number] = replace(base, state="blocked" if turned else "moving")
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


_KEPT: dict[int, JudgedRank] = {}


def _moving(number: int) -> JudgedRank:
    if number not in _KEPT:
        _KEPT[number] = replace(rank_view(number, "moving", age_s=100.0), host=f"node{number // 8}")
    return _KEPT[number]


SCENES = {
    **COMMON,
    "all_stacks": all_stacks,
    "over": over,
    "pipeline": pipeline,
    "another_job": another_job,
    "many": many,
}
