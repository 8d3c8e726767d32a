"""How the jobs fare that are not on the screen: when anything last moved there. No verdict.

Somebody who looks at one job must not take silence about the others for health.
"""

from __future__ import annotations

from operator import is_
from typing import Final

from frtop_probe import wire
from frtop_tui.job.jobs import JobRanks
from frtop_tui.job.model import JobPulse, Moment
from frtop_tui.job.naming import duration, job_call, job_key, job_place, listed, typed
from frtop_tui.job.record import RankRecord

EVERY_NS: Final = 1_000_000_000
LONG_S: Final = 3.0
"""A shorter wait is what ranks do all the time."""


def pulse_of(one: JobRanks, now_ns: int, *, judged: bool = False) -> JobPulse:
    """When the job began, and when anything last moved in it as far as is heard.

    Of the one that is judged only when it began: its frame tells the rest, and going over
    all groups of thousands of ranks once more costs.
    """
    if judged:
        return JobPulse(one.job, one.age_s(now_ns))
    heard = [r for r in one.records if r.exit_info is None and not r.clock.silent]
    moved = max(map(_moved_ns, heard), default=0)
    waits = [since for record in heard if (since := _waits_ns(record))]
    return JobPulse(
        one.job,
        one.age_s(now_ns),
        max(0.0, (now_ns - moved) / 1e9) if moved else None,
        max(0.0, (now_ns - min(waits)) / 1e9) if waits else None,
    )


class Pulses:
    """Those of all jobs, counted once a second: going over all their ranks at each frame costs."""

    def __init__(self) -> None:
        self._jobs: list[JobRanks] = []
        self._judged: JobRanks | None = None
        self._at_ns = 0
        self._told: tuple[JobPulse, ...] = ()

    def at(
        self, now_ns: int, jobs: list[JobRanks], judged: JobRanks | None
    ) -> tuple[JobPulse, ...]:
        """As of `now_ns`, or of the last second while jobs are made up of the same ranks."""
        same = len(jobs) == len(self._jobs) and all(map(is_, jobs, self._jobs))
        if not same or judged is not self._judged or not 0 <= now_ns - self._at_ns < EVERY_NS:
            self._jobs, self._judged, self._at_ns = jobs, judged, now_ns
            self._told = tuple(pulse_of(one, now_ns, judged=one is judged) for one in jobs)
        return self._told


def _moved_ns(record: RankRecord) -> int:
    """On our clock; 0 when it has not issued anything yet."""
    times = [front.issued_ns for front in record.group_progress.values()]
    times += [op.issued_ns for op in record.pending]
    times += [record.status.step_ns] if record.status is not None else []
    last = max(times, default=0)
    return last + record.clock.offset if last else 0


def _waits_ns(record: RankRecord) -> int:
    """Since when, on our clock, it waits in its oldest op; 0 when it waits in none."""
    since = [op.issued_ns for op in record.pending if op.sync and not op.done_ns]
    return min(since) + record.clock.offset if since else 0


def pulse_words(pulse: JobPulse | None) -> str:
    """`waits 4m12s`, `last op 0.3s ago`, nothing where nothing is known."""
    if pulse is None or pulse.quiet_s is None:
        return ""
    if pulse.waits_s is not None and min(pulse.waits_s, pulse.quiet_s) > LONG_S:
        return f"waits {duration(pulse.waits_s)}"
    return f"last op {duration(pulse.quiet_s)} ago"


def pulse_in(frame: Moment, job: wire.Job) -> JobPulse | None:
    """The pulse of one of the frame's jobs."""
    key = job_key(job)
    return next((pulse for pulse in frame.pulses if job_key(pulse.job) == key), None)


def known_jobs(frame: Moment) -> tuple[wire.Job, ...]:
    """The one that is shown and all others."""
    return (*([frame.job] if frame.job is not None else []), *frame.other_jobs)


def others_count(frame: Moment) -> str:
    """`2 live, 9 ended`: how many there are beside the one shown, "" for none."""
    live, rest = len(frame.running_jobs), len(frame.other_jobs) - len(frame.running_jobs)
    # Of jobs that left only boxes or dumps nobody knows whether they have ended.
    told = frame.recorded is None or frame.recorded.kind == "capture"
    words = [f"{live} live"] if live else []
    words += [f"{rest} {'ended' if told else 'recorded'}"] if rest > 0 else []
    return ", ".join(words)


def others_line(frame: Moment) -> str:
    """The jobs beside the one shown, for a panel: how many, and how the living fare."""
    count = others_count(frame)
    if not count:
        return ""
    running = frame.running_jobs
    pulses = [pulse for job in running if (pulse := pulse_in(frame, job)) is not None]
    waiting = [pulse for pulse in pulses if pulse_words(pulse).startswith("waits")]
    if len(running) == 1 and pulses:
        words = pulse_words(pulses[0])
    else:
        words = "one " + pulse_words(max(waiting, key=_waited)) if waiting else ""
    live, rest, ended = count.partition(" live")
    if words and rest:
        count = f"{live} live ({words}){ended}"
    them = "it" if len(frame.other_jobs) == 1 else "them"
    if frame.recorded is not None:
        return f"{count}; J lists {them}"
    call = f", or frtop --job {typed(_call(frame, running[0]))}" if len(running) == 1 else ""
    return f"{count}; J shows {them}{call}"


def others_text(frame: Moment) -> str:
    """The same where there are no keys: which ones live, and the word that shows each."""
    count = others_count(frame)
    if not count:
        return ""
    told = []
    for job in frame.running_jobs:
        step = "" if frame.recorded is not None else f"--job {typed(_call(frame, job))}"
        words = (job_place(job), pulse_words(pulse_in(frame, job)), step)
        told.append(", ".join(filter(None, words)))
    return f"other jobs: {count}" + (f": {listed(told, joint='; ')}" if told else "")


def _waited(pulse: JobPulse) -> float:
    return pulse.waits_s or 0.0


def _call(frame: Moment, job: wire.Job) -> str:
    return job_call(job, known_jobs(frame))
