"""All jobs that the agents see, and for each what keeps it from being seen whole."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.job.job_activity import activity_in, known_jobs, rank_notes
from frtop_tui.job.model import BaseFrame, JobActivity
from frtop_tui.job.naming import job_call, job_key
from frtop_tui.job.units import counted
from frtop_tui.job.unprepared import NOT_PREPARED, all_prepared


class ListedJob(Struct, frozen=True):
    """A job, what to type for it, and what is in the way of seeing it, in sentences."""

    job: wire.Job
    call: str
    lives: bool
    activity: JobActivity
    in_the_way: tuple[str, ...] = ()

    @property
    def expected(self) -> int:
        return max(self.job.world_size, self.activity.ranks)

    @property
    def prepared(self) -> bool | None:
        """Whether all of its ranks have a recorder; None while that is not known."""
        return all_prepared(self.activity.ranks, self.activity.unprepared)


def listed_jobs(frame: BaseFrame) -> list[ListedJob]:
    """Living jobs first, each kind from new to old."""
    among = known_jobs(frame)
    running = {job_key(job) for job in frame.running_jobs}
    rows = []
    for job in among:
        activity = activity_in(frame, job) or JobActivity(job, 0.0)
        shown = job is frame.job
        rows.append(
            ListedJob(
                job,
                job_call(job, among),
                activity.ended_s is None if shown else job_key(job) in running,
                activity,
                tuple(_of_shown(frame) if shown else _of_other(activity)),
            )
        )
    return sorted(rows, key=lambda row: (not row.lives, row.activity.age_s))


def _of_shown(frame: BaseFrame) -> Iterator[str]:
    for note in frame.coverage.notes:
        if NOT_PREPARED not in note.text:  # that is a property of the job, and in nobody's way
            yield note.text
    yield from rank_notes(frame.ranks.values())


def _of_other(activity: JobActivity) -> Iterator[str]:
    missing = activity.job.world_size - activity.ranks
    if missing > 0:
        yield f"{missing:,} of {counted(activity.job.world_size, 'rank')} never reported"
    yield from activity.notes
