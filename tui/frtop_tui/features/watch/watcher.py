"""Watches all jobs, step by step, until it is stopped.

A failure in one job, in a command or on a disk does not end it.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.watch.deliveries import Deliveries
from frtop_tui.features.watch.job_file import JobFile
from frtop_tui.features.watch.job_sources import GONE_NS, MOST_JOBS, JobSource, JobSources
from frtop_tui.features.watch.job_watch import JobWatch
from frtop_tui.features.watch.lines import EventLines, stamped
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import listed
from frtop_tui.job.units import counted

TROUBLE_S: Final = 5.0
"""A problem is reported once it lasts this long: agents come and go."""
NONCE_NS: Final = 30_000_000_000
"""How long a job may take to agree on its nonce, which tells it from later starts."""
JobFileOf = Callable[[JobSource], JobFile]
NewWatch = Callable[[JobSource, JobFile, Callable[[dict[str, Any]], None]], JobWatch]


class Watcher:
    """Runs in one thread. `step` never blocks for long."""

    def __init__(
        self,
        sources: JobSources,
        deliveries: Deliveries,
        lines: EventLines,
        *,
        file_of: JobFileOf,
        new_watch: NewWatch,
        is_wanted: Callable[[Frame], bool] = lambda _: True,
    ) -> None:
        """Args: is_wanted: whether to watch a job; called until it says yes."""
        self._sources = sources
        self._deliveries = deliveries
        self._lines = lines
        self._file_of = file_of
        self._new_watch = new_watch
        self._is_wanted = is_wanted
        self._jobs: dict[JobSource, JobWatch] = {}
        self._files: dict[JobSource, JobFile] = {}
        self._problem: tuple[str, float] = ("", 0.0)
        self._said_problem = ""
        self._failures: set[tuple[JobSource, type[Exception]]] = set()

    @property
    def busy(self) -> bool:
        """Whether captures, commands or web hooks are under way."""
        return self._deliveries.under_way or any(one.busy for one in self._jobs.values())

    def step(self) -> None:
        """Looks at all jobs once."""
        now_ns = time.monotonic_ns()
        for one in self._sources.update(now_ns):
            try:
                self._step(one)
            except Exception as error:  # noqa: BLE001 - a job's boundary: other jobs go on
                self._say_failure(one, error)
        for result in self._deliveries.results():
            self.say(result)
        for one in self._sources.gone(now_ns):
            watch = self._jobs.get(one)
            if watch is None or not watch.busy:
                self._leave(one, now_ns)
        for one in self._sources.ended(now_ns):
            watch = self._jobs.get(one)
            looked_at = now_ns - one.opened_ns > GONE_NS if watch is None else watch.is_through
            if looked_at:
                self._leave(one, now_ns)
        self._say_problem()

    def _step(self, one: JobSource) -> None:
        watch = self._jobs.get(one) or self._claim(one)
        if watch is not None:
            watch.use(one.source)
            watch.step()

    def _say_failure(self, one: JobSource, error: Exception) -> None:
        """Reports once per job and kind of error that frtop itself failed."""
        slot = one, type(error)
        if slot not in self._failures:
            self._failures.add(slot)
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            problem = f"frtop itself failed on {one.job.name}: {error!r} at {place}"
            self.say({"event": "trouble", "problem": problem})

    def say(self, event: dict[str, Any]) -> None:
        """Writes one line."""
        self._lines.put(stamped(event, time.time_ns()))

    def close(self) -> None:
        """Closes all sources; another watcher may take over at once."""
        self._sources.close()
        for file in self._files.values():
            file.release()

    def _claim(self, one: JobSource) -> JobWatch | None:
        """The watch of a new job; None while another watcher has the job."""
        frame = one.source.frame()
        young = time.monotonic_ns() - one.opened_ns < NONCE_NS
        if not one.job.nonce and young and not frame.verdicts:
            return None
        if not self._is_wanted(frame):
            return None
        file = self._files.get(one)
        if file is None:
            file = self._files[one] = self._file_of(one)
        try:
            if not file.claim():
                return None
        except OSError as error:  # no space or no permission: watch it anyway
            self.say({"event": "trouble", "problem": f"no state is kept: {error}"})
        watch = self._jobs[one] = self._new_watch(one, file, self.say)
        return watch

    def _leave(self, one: JobSource, now_ns: int) -> None:
        watch, file = self._jobs.pop(one, None), self._files.pop(one, None)
        self._sources.leave(one, now_ns)
        self._failures = {slot for slot in self._failures if slot[0] is not one}
        if watch is not None:
            self.say(
                {
                    "event": "left",
                    "job": one.job.name,
                    "health": watch.frame.health if watch.frame else "",
                }
            )
        if file is not None:
            file.release()

    def _say_problem(self) -> None:
        """Reports what keeps frtop from seeing jobs, once it lasts, and when it is over."""
        problem = self._current_problem()
        text, since = self._problem
        if problem != text:
            self._problem = text, since = problem, time.monotonic()
        if text != self._said_problem and time.monotonic() - since > TROUBLE_S:
            self._said_problem = text
            self.say({"event": "trouble", "problem": text} if text else {"event": "trouble_over"})

    def _current_problem(self) -> str:
        frame = self._sources.frame()
        problem: Problem | None = frame.problem
        failed = [host for host in frame.hosts if host.state == "failed" and host.problem]
        if failed:
            names = ", ".join(sorted(host.name for host in failed)[:8])
            return f"{counted(len(failed), 'host')} unreachable ({names}): {failed[0].problem}"
        if self._sources.problem:
            return self._sources.problem
        if self._sources.too_many:
            return f"{counted(self._sources.too_many, 'job')} not watched: at most {MOST_JOBS} are"
        if blind := _hosts_without_search(frame):
            return f"jobs without the recorder are not found there: {blind}"
        if problem is not None and not any(host.reported_ns for host in frame.hosts):
            return str(problem)
        return ""


def _hosts_without_search(frame: Frame) -> str:
    """`node3: no search for jobs: ...`, for hosts that could not search."""
    found: dict[str, list[str]] = {}
    for host in frame.hosts:
        for note in host.notes:
            if note.startswith(wire.NO_SEARCH):
                found.setdefault(note, []).append(host.name)
    return "; ".join(f"{listed(sorted(names))}: {note}" for note, names in sorted(found.items()))
