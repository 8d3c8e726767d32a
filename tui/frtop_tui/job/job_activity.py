"""When anything last moved in the jobs that are not shown, without a diagnosis.

A person who looks at one job must not take silence about the others for health.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.job.jobs import JobRanks
from frtop_tui.job.model import BaseFrame, JobActivity, Rank
from frtop_tui.job.naming import folded, job_call, job_key, job_place, listed, typed
from frtop_tui.job.record import RankRecord
from frtop_tui.job.units import duration
from frtop_tui.job.unprepared import age_words, last_issue_is_least

INTERVAL_NS: Final = 1_000_000_000
LONG_S: Final = 3.0
"""Shorter waits are normal."""
REPORTED: Final = ("operator: ", "numbers: ", "recorder: ")
"""Beginnings of the notes that reports contain: about operators, about numbers that they had
sampled, and why a recorder is not read."""
MOST_NOTES: Final = 8
"""At most this many different notes of the ranks of one job."""


def activity_of(one: JobRanks, now_ns: int, *, judged: bool = False) -> JobActivity:
    """The age of a job, and when anything last moved in it, from the ranks that are reporting.

    For the judged job, only its age: its frame has the rest, and searching all groups of thousands
    of ranks again would be expensive.
    """
    ended_ns = one.ended_ns()
    known = JobActivity(
        one.job,
        one.age_s(now_ns),
        ended_s=None if ended_ns is None else max(0.0, (now_ns - ended_ns) / 1e9),
        ranks=one.ranks,
        unprepared=one.unprepared,
        hosts=one.hosts,
    )
    if judged:
        return known
    reported = [r for r in one.records if not r.ended and not r.clock.silent]
    newest = max(reported, key=_moved_ns, default=None)
    moved = _moved_ns(newest) if newest is not None else 0
    waits = [since for record in reported if (since := _waits_ns(record))]
    return replace(
        known,
        quiet_s=max(0.0, (now_ns - moved) / 1e9) if moved else None,
        waits_s=max(0.0, (now_ns - min(waits)) / 1e9) if waits else None,
        notes=rank_notes(record.latest for record in one.records),
        dated=newest is None or not last_issue_is_least(newest.latest),
    )


def rank_notes(ranks: Iterable[Rank], beginnings: tuple[str, ...] = ("",)) -> tuple[str, ...]:
    """`ranks 0-3: c10d state not readable`: each different note of the ranks once.

    Often all of a thousand ranks say the same.
    """
    found: dict[str, set[int]] = {}
    for view in ranks:
        for note in view.notes:
            if not note.startswith(beginnings):
                continue
            found.setdefault(note, set()).add(view.rank)
    notes = [f"{folded(numbers)}: {note}" for note, numbers in found.items()]
    more = len(notes) - MOST_NOTES
    return (*notes[:MOST_NOTES], *([f"and {more} more notes from its ranks"] if more > 0 else []))


class JobActivities:
    """The activities of all jobs, computed once a second because that visits all their ranks."""

    def __init__(self) -> None:
        self._jobs: list[JobRanks] = []
        self._judged: JobRanks | None = None
        self._at_ns = 0
        self._activities: tuple[JobActivity, ...] = ()

    def at(
        self, now_ns: int, jobs: list[JobRanks], judged: JobRanks | None
    ) -> tuple[JobActivity, ...]:
        """The activities at `now_ns`, or up to a second old while the jobs have the same ranks."""
        same = len(jobs) == len(self._jobs) and all(map(is_, jobs, self._jobs))
        if not same or judged is not self._judged or not 0 <= now_ns - self._at_ns < INTERVAL_NS:
            self._jobs, self._judged, self._at_ns = jobs, judged, now_ns
            self._activities = tuple(activity_of(one, now_ns, judged=one is judged) for one in jobs)
        return self._activities


def _moved_ns(record: RankRecord) -> int:
    return moved_ns(record.latest, record.clock.offset)


def moved_ns(view: Rank, clock_ns: int) -> int:
    """When it last issued an op or began a step, on our clock; 0 if never."""
    times = [progress.issued_ns for progress in view.group_progress.values()]
    times += [op.issued_ns for op in view.pending]
    times += [view.status.step_ns] if view.status is not None else []
    last = max(times, default=0)
    return last + clock_ns if last else 0


def _waits_ns(record: RankRecord) -> int:
    """When the wait in its oldest op began, on our clock; 0 if it waits in none."""
    since = [op.issued_ns for op in record.latest.pending if op.sync and not op.done_ns]
    return min(since) + record.clock.offset if since else 0


def activity_text(activity: JobActivity | None) -> str:
    """`waits 4m12s`, `last op at least 40s ago`, or "" if nothing is known."""
    if activity is None or activity.quiet_s is None:
        return ""
    if activity.waits_s is not None and min(activity.waits_s, activity.quiet_s) > LONG_S:
        return f"waits {duration(activity.waits_s)}"
    return f"last op {age_words(activity.quiet_s, least=not activity.dated)} ago"


def activity_in(frame: BaseFrame, job: wire.Job) -> JobActivity | None:
    key = job_key(job)
    return next((activity for activity in frame.activities if job_key(activity.job) == key), None)


def known_jobs(frame: BaseFrame) -> tuple[wire.Job, ...]:
    """The shown job and all others."""
    return (*([frame.job] if frame.job is not None else []), *frame.other_jobs)


def other_jobs_count(frame: BaseFrame) -> str:
    """`2 live, 9 ended`: the jobs other than the shown one, "" for none."""
    live, rest = len(frame.running_jobs), len(frame.other_jobs) - len(frame.running_jobs)
    # If only black boxes or dumps are left of a job, nobody knows whether it ended.
    known = frame.recorded is None or frame.recorded.kind == "capture"
    words = [f"{live} live"] if live else []
    words += [f"{rest} {'ended' if known else 'recorded'}"] if rest > 0 else []
    return ", ".join(words)


def other_jobs_line(frame: BaseFrame) -> str:
    """The other jobs, for a panel: how many, and whether the living ones wait."""
    count = other_jobs_count(frame)
    if not count:
        return ""
    running = frame.running_jobs
    activities = [activity for job in running if (activity := activity_in(frame, job)) is not None]
    waiting = [activity for activity in activities if activity_text(activity).startswith("waits")]
    if len(running) == 1 and activities:
        words = activity_text(activities[0])
    else:
        words = "one " + activity_text(max(waiting, key=_waited)) if waiting else ""
    live, rest, ended = count.partition(" live")
    if words and rest:
        count = f"{live} live ({words}){ended}"
    them = "it" if len(frame.other_jobs) == 1 else "them"
    if frame.recorded is not None:
        return f"{count}; J lists {them}"
    call = f", or frtop --job {typed(_call(frame, running[0]))}" if len(running) == 1 else ""
    return f"{count}; J shows {them}{call}"


def other_jobs_text(frame: BaseFrame) -> str:
    """The other jobs, for the command line: which ones live, and the option that shows each."""
    count = other_jobs_count(frame)
    if not count:
        return ""
    jobs = []
    for job in frame.running_jobs:
        step = "" if frame.recorded is not None else f"--job {typed(_call(frame, job))}"
        words = (job_place(job), activity_text(activity_in(frame, job)), step)
        jobs.append(", ".join(filter(None, words)))
    return f"other jobs: {count}" + (f": {listed(jobs, joint='; ')}" if jobs else "")


def _waited(activity: JobActivity) -> float:
    return activity.waits_s or 0.0


def _call(frame: BaseFrame, job: wire.Job) -> str:
    return job_call(job, known_jobs(frame))
