"""A source for each job: jobs come and go, and one watcher looks at all of them.

One source only lists the jobs. Each job gets its own source: a job that is hard to
judge, or on which frtop itself fails, does not keep others from being watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError
from frtop_tui.job.job_activity import activity_in
from frtop_tui.job.naming import JobKey, is_called, job_key, same_job
from frtop_tui.statistics.wanted import StatisticsWanted

MOST_JOBS: Final = 32
"""The most jobs watched at once: each has a thread, and a connection to each host."""
RECENT_S: Final = 300.0
"""A job that ended this recently is still examined: it may have died while no watcher ran."""
GONE_NS: Final = 20_000_000_000
"""A job that was not seen alive for this long is no longer watched."""
LEFT_NS: Final = 60_000_000_000
"""A job that is no longer watched is forgotten this long after it left the list."""
PAUSE_NS: Final = 5_000_000_000
"""The pause before a source that failed is opened again."""
NOBODY: Final[JobKey] = ("", -1, -1, "frtop lists jobs", -1, "frtop")
"""Matches no job: the source that lists jobs shows none."""


@dataclass(slots=True, eq=False)
class JobSource:
    """A job and its source.

    `seen_ns`: when it was last listed as one to be watched; `ended_ns`: when it was first listed
    as one that has ended, 0 while it lives.
    """

    job: wire.Job
    source: Source
    seen_ns: int
    opened_ns: int
    ended_ns: int = 0

    @property
    def key(self) -> JobKey:
        return job_key(self.job)


class LeftJobs:
    """Jobs that are no longer watched: while they are listed, they are not watched again."""

    def __init__(self) -> None:
        self._left: dict[tuple[object, ...], dict[str, int]] = {}
        """Nonce and time, by key without the nonce, which may have been unknown."""

    def add(self, job: wire.Job, now_ns: int) -> None:
        """Adds a job, and forgets those that are no longer listed."""
        oldest_ns = now_ns - LEFT_NS
        left = {
            key: {nonce: at_ns for nonce, at_ns in ones.items() if at_ns > oldest_ns}
            for key, ones in self._left.items()
        }
        self._left = {key: ones for key, ones in left.items() if ones}
        *key, nonce = job_key(job)
        self._left.setdefault(tuple(key), {})[str(nonce)] = now_ns

    def has(self, job: wire.Job, now_ns: int) -> bool:
        """Whether the job was left. A job that is asked about is remembered for longer."""
        *key, nonce = job_key(job)
        ones = self._left.get(tuple(key), {})
        found = [one for one in ones if not (one and nonce) or one == nonce]
        ones |= dict.fromkeys(found, now_ns)
        return bool(found)


class JobSources:
    """Opens and closes sources as jobs come and go."""

    def __init__(self, open_source: Callable[[], Source], wanted: str | None) -> None:
        """Args: open_source: connects to the hosts; wanted: name of the jobs, None for all."""
        self._open = open_source
        self._wanted = wanted
        self._list = open_source()
        self._list.choose(NOBODY)
        self._watched: list[JobSource] = []
        self._left = LeftJobs()
        self._waiting = 0  # jobs without a place, including those that have ended
        self.too_many = 0
        """Running jobs that are not watched because there are too many."""
        self.problem = ""
        """Why a source could not be opened, "" if all could."""
        self._open_again_ns = 0

    def frame(self) -> Frame:
        """The last list of jobs, with its hosts and what keeps frtop from seeing jobs."""
        return self._list.frame()

    def update(self, now_ns: int) -> tuple[JobSource, ...]:
        """Opens sources for new jobs; returns all watched jobs."""
        frame = self._list.frame()
        if frame.problem is not None and frame.problem.internal:
            self._list = self._opened(NOBODY, now_ns, self._list) or self._list
        self.too_many = self._waiting = 0
        for job, lives in self._to_watch(frame, now_ns):
            known = next((one for one in self._watched if same_job(one.job, job)), None)
            if known is not None:
                known.job, known.seen_ns = job, now_ns
                known.ended_ns = 0 if lives else known.ended_ns or now_ns
                self._reopen_failed(known, now_ns)
            elif len(self._watched) >= MOST_JOBS:
                self.too_many += lives
                self._waiting += 1
            elif (source := self._opened(job_key(job), now_ns)) is not None:
                ended_ns = 0 if lives else now_ns
                self._watched.append(JobSource(job, source, now_ns, now_ns, ended_ns))
        return tuple(self._watched)

    def gone(self, now_ns: int) -> tuple[JobSource, ...]:
        """Watched jobs that were not seen for a while."""
        return tuple(one for one in self._watched if now_ns - one.seen_ns > GONE_NS)

    def ended(self, now_ns: int) -> tuple[JobSource, ...]:
        """Jobs that ended a while ago; if others wait for a place, all that have ended."""
        wait_ns = 0 if self._waiting else GONE_NS
        return tuple(
            one for one in self._watched if one.ended_ns and now_ns - one.ended_ns >= wait_ns
        )

    def leave(self, one: JobSource, now_ns: int) -> None:
        self._watched.remove(one)
        self._left.add(one.job, now_ns)
        one.source.close()

    def close(self) -> None:
        for one in self._watched:
            one.source.close()
        self._list.close()

    def _to_watch(self, frame: Frame, now_ns: int) -> Iterator[tuple[wire.Job, bool]]:
        """Jobs, and whether they run: running ones come first."""
        for job in frame.running_jobs:
            if self._wanted is None or is_called(job, self._wanted):
                yield job, True
        for job in frame.other_jobs:
            activity = activity_in(frame, job)
            ended_s = activity.ended_s if activity is not None else None
            if (
                ended_s is None
                or ended_s > RECENT_S
                or (self._wanted is not None and not is_called(job, self._wanted))
            ):
                continue
            # It is watched until its source has shown the end; a job that was left is not reopened.
            if not self._left.has(job, now_ns):
                yield job, False

    def _reopen_failed(self, one: JobSource, now_ns: int) -> None:
        problem = one.source.frame().problem
        if problem is not None and problem.internal:
            one.source = self._opened(one.key, now_ns, one.source) or one.source

    def _opened(self, key: JobKey, now_ns: int, failed: Source | None = None) -> Source | None:
        """A source for a job, replacing one that `failed`; None while none can be opened."""
        if now_ns < self._open_again_ns:
            return None
        if failed is not None:
            self._open_again_ns = now_ns + PAUSE_NS  # it may fail again at once
        try:
            source = self._open()
        except FrtopError as error:  # no agent can be reached or started, or the key is gone
            self.problem = f"{error.text}; {error.next_step}"
            self._open_again_ns = now_ns + PAUSE_NS
            return None
        self.problem = ""
        source.choose(key)
        if key != NOBODY:
            source.want_statistics(StatisticsWanted(), whom="verdicts")
        if failed is not None:
            failed.close()
        return source
