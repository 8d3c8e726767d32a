"""All jobs that the agents see, and what keeps frtop from seeing each one completely."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.job.job_activity import activity_in, known_jobs, rank_notes
from frtop_tui.job.model import BaseFrame, JobActivity
from frtop_tui.job.naming import job_call, job_key, job_title
from frtop_tui.job.units import counted
from frtop_tui.job.unprepared import NOT_PREPARED, all_prepared, is_least_since


class ListedJob(Struct, frozen=True):
    """A job, what to type for it, and, in sentences, what hides parts of it."""

    job: wire.Job
    call: str
    lives: bool
    activity: JobActivity
    in_the_way: tuple[str, ...] = ()
    shown: bool = False

    @property
    def name(self) -> str:
        """The name that `--job` takes; torch counts attempts from 0."""
        return f"{job_title(self.job)}{f'#{self.job.attempt}' if self.job.attempt else ''}"

    @property
    def expected(self) -> int:
        return max(self.job.world_size, self.activity.ranks)

    @property
    def prepared(self) -> bool | None:
        """Whether all of its ranks have a recorder; None while unknown."""
        return all_prepared(self.activity.ranks, self.activity.unprepared)


def listed_jobs(frame: BaseFrame) -> list[ListedJob]:
    """All jobs: the living before the ended ones, newest first."""
    among = known_jobs(frame)
    running = {job_key(job) for job in frame.running_jobs}
    rows = []
    for job in among:
        activity = activity_in(frame, job) or JobActivity(job, 0.0)
        shown = job is frame.job
        if shown:
            activity = _with_last_op(frame, activity)
        lives = not _is_over(frame, activity) if shown else job_key(job) in running
        in_the_way = tuple(_of_shown(frame) if shown else _of_other(activity))
        rows.append(ListedJob(job, job_call(job, among), lives, activity, in_the_way, shown))
    return sorted(rows, key=lambda row: (not row.lives, row.activity.age_s))


def _is_over(frame: BaseFrame, activity: JobActivity) -> bool:
    if activity.ended_s is not None or frame.health == "ended":
        return True
    return bool(frame.ranks) and all(view.exit_info for view in frame.ranks.values())


def _with_last_op(frame: BaseFrame, activity: JobActivity) -> JobActivity:
    """Adds when the shown job issued its last op, from its groups."""
    idle = [group.idle_s(frame.now_ns) for group in frame.groups if group.number]
    if activity.quiet_s is not None or not idle:
        return activity
    last_ns = frame.now_ns - int(min(idle) * 1e9)
    return replace(activity, quiet_s=min(idle), dated=not is_least_since(frame, last_ns))


def _of_shown(frame: BaseFrame) -> Iterator[str]:
    for note in frame.coverage.notes:
        if NOT_PREPARED not in note.text:  # that is a property of the job and hides nothing
            yield note.text
    yield from rank_notes(frame.ranks.values())


def _of_other(activity: JobActivity) -> Iterator[str]:
    missing = activity.job.world_size - activity.ranks
    if missing > 0:
        yield f"{missing:,} of {counted(activity.job.world_size, 'rank')} never reported"
    yield from activity.notes
