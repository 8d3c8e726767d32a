"""Which ranks make up which job, and which of the jobs is shown.

The newest living job is shown for as long as it lives, whatever else starts meanwhile. A job that
the operator chose stays even after its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_tui.job.clock import HostClock
from frtop_tui.job.model import HostView, Problem
from frtop_tui.job.naming import (
    NO_RUN,
    JobKey,
    RankPid,
    Wanted,
    is_called,
    job_call,
    job_key,
    job_place,
    listed,
    typed,
)
from frtop_tui.job.record import RankRecord
from frtop_tui.job.units import duration

SETTLE_NS: Final = 3_000_000_000
"""Hosts connect one after the other: during this time a newer job replaces the shown one."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(slots=True)
class JobRanks:
    key: JobKey
    records: list[RankRecord]
    job: wire.Job = field(init=False)
    ranks: int = field(init=False)
    """How many different ranks are known."""
    unprepared: int = field(init=False)
    """How many of them have no recorder."""
    _spans: list[tuple[HostClock, int, int]] = field(init=False, repr=False)
    """Per host: its clock, and when the first and the last of its ranks started."""

    def __post_init__(self) -> None:
        jobs = [record.identity.job for record in self.records]
        self.job = next((job for job in jobs if job.nonce), jobs[0])
        identities = [record.identity for record in self.records]
        self.ranks = len({one.rank for one in identities})
        self.unprepared = len({one.rank for one in identities if not one.prepared})
        starts: dict[int, tuple[HostClock, list[int]]] = {}
        for record in self.records:
            times = starts.setdefault(id(record.clock), (record.clock, []))[1]
            times.append(record.identity.started_ns)
        self._spans = [(clock, min(times), max(times)) for clock, times in starts.values()]

    @property
    def lives(self) -> bool:
        return any(not record.ended for record in self.records)

    @property
    def hosts(self) -> int:
        return len(self._spans)

    @property
    def started_ns(self) -> int:
        """When its last rank started, on our clock."""
        return max(last + clock.offset for clock, _, last in self._spans)

    def age_s(self, now_ns: int) -> float:
        """Seconds since its first rank started."""
        started_ns = min(first + clock.offset for clock, first, _ in self._spans)
        return max(0.0, (now_ns - started_ns) / 1e9)

    def up_s(self, now_ns: int) -> float:
        """Seconds from the start of its first rank until now, or until its last rank ended."""
        ended_ns = self.ended_ns()
        return self.age_s(now_ns if ended_ns is None else min(now_ns, ended_ns))

    def ended_ns(self) -> int | None:
        """When its last rank ended, on our clock; None while one lives."""
        if self.lives:
            return None
        return max(
            exit_info.at_ns + record.clock.offset
            for record in self.records
            if (exit_info := record.latest.exit_info) is not None
        )

    def has_pid(self, pid: int) -> bool:
        """Whether one of its ranks is this process; an ended one counts only if none lives."""
        lives = self.lives
        return any(
            record.identity.pid == pid for record in self.records if not (lives and record.ended)
        )


def started_ns(record: RankRecord) -> int:
    """When the record's process started, on our clock."""
    return record.identity.started_ns + record.clock.offset


def by_job(records: Iterable[RankRecord]) -> tuple[list[JobRanks], list[RankRecord]]:
    """Groups records into jobs, living and newest first; also returns records without a rank."""
    found: dict[JobKey, list[RankRecord]] = {}
    keys: dict[wire.Job, JobKey] = {}
    nameless: list[RankRecord] = []
    for record in records:
        job = record.identity.job
        if record.identity.rank < 0:
            nameless.append(record)
            continue
        key = keys.get(job)
        if key is None:
            key = keys[job] = job_key(job)
        found.setdefault(key, []).append(record)
    # A rank that enters its first group does not know the job's nonce yet.
    for key in [key for key in found if not key[-1]]:
        early = found[key]
        living = [
            other
            for other, records_ in found.items()
            if other[:-1] == key[:-1] and other[-1] and _may_be_same(records_, early)
        ]
        if len(living) == 1:
            found[living[0]] = found[living[0]] + found.pop(key)
    _join_unprepared(found)
    jobs = [JobRanks(key, records_) for key, records_ in found.items()]
    return newest_first(jobs), nameless


def newest_first(jobs: Iterable[JobRanks]) -> list[JobRanks]:
    """Sorts jobs: living before ended ones, newer before older ones."""
    return sorted(jobs, key=lambda one: (one.lives, one.started_ns), reverse=True)


def _join_unprepared(found: dict[JobKey, list[RankRecord]]) -> None:
    """Adds ranks without a recorder to the prepared job that lacks them.

    Their nonce differs from the one that the recorders agreed on. So the place must be the same,
    exactly one living job must fit, and no rank may be in both.
    """
    places: defaultdict[tuple[str, int, int], list[JobKey]] = defaultdict(list)
    for key, records in found.items():
        if key[0] and key[1] and any(record.identity.prepared for record in records):
            places[key[:3]].append(key)
    for key in [key for key in found if key[:3] in places and key not in places[key[:3]]]:
        rest = found[key]
        fitting = [one for one in places[key[:3]] if _completes(found[one], rest)]
        if len(fitting) == 1:
            found[fitting[0]] = found[fitting[0]] + found.pop(key)


def _completes(job: Sequence[RankRecord], rest: Sequence[RankRecord]) -> bool:
    """Whether these records without a recorder may be the ranks that a prepared job lacks."""
    runs = {records[0].identity.job.run_id for records in (job, rest)}.difference({""})
    there = {record.identity.rank for record in job if not record.ended}
    return (
        len(runs) < 2
        and there.isdisjoint(record.identity.rank for record in rest)
        and _may_be_same(job, rest)
    )


def _may_be_same(job: Sequence[RankRecord], early: Sequence[RankRecord]) -> bool:
    """Whether ranks without a nonce may belong to a job with the same address.

    `localhost` is a different address on every host.
    """
    if all(record.ended for record in job):
        return False
    if early[0].identity.job.master_addr not in LOOPBACK:
        return True
    return {record.host for record in early} <= {record.host for record in job}


def same_run(job: wire.Job, other: wire.Job) -> bool:
    """Whether these are attempts of one run: a program that its launcher restarted."""
    if job.name != other.name or job_key(job) == job_key(other):
        return False
    if job.run_id not in NO_RUN:
        return job.run_id == other.run_id
    # The same address, port and number of ranks.
    return job.attempt != other.attempt and job_key(job)[:3] == job_key(other)[:3]


class JobPicker:
    """Picks the job to show, and stays with it."""

    def __init__(self) -> None:
        self._shown: JobKey | None = None
        self._since_ns = 0
        self._before: wire.Job | None = None  # shown until it ended

    def pick(self, jobs: Sequence[JobRanks], wanted: Wanted, now_ns: int) -> JobRanks | None:
        """The job to show; `jobs` are ordered as by `by_job`."""
        if isinstance(wanted, tuple):
            chosen = next((one for one in jobs if _is(one, wanted)), None)
        else:
            fitting = [one for one in jobs if _fits(one, wanted)]
            chosen = self._current(fitting, now_ns) or next(iter(fitting), None)
        if chosen is None:
            return None
        if self._shown is None or not _is(chosen, self._shown):
            self._since_ns = now_ns
            shown = self._shown_in(jobs)
            self._before = shown.job if shown is not None else None
        self._shown = chosen.key
        return chosen

    def _current(self, jobs: Sequence[JobRanks], now_ns: int) -> JobRanks | None:
        """The shown job, while it lives or no other job does."""
        shown = self._shown_in(jobs)
        if shown is None or now_ns - self._since_ns < SETTLE_NS:
            return None
        return shown if shown.lives or not any(one.lives for one in jobs) else None

    def _shown_in(self, jobs: Sequence[JobRanks]) -> JobRanks | None:
        return next((one for one in jobs if self._shown and _is(one, self._shown)), None)

    def notes(
        self,
        chosen: JobRanks,
        jobs: Sequence[JobRanks],
        now_ns: int,
        wanted: Wanted = None,
    ) -> tuple[str, ...]:
        """Notes on other jobs with the wanted name, and on other attempts of the same run."""
        return (*_same_name(chosen, jobs, wanted), *self._attempts(chosen, jobs, now_ns))

    def _attempts(self, chosen: JobRanks, jobs: Sequence[JobRanks], now_ns: int) -> tuple[str, ...]:
        attempts = [one for one in jobs if one is not chosen and same_run(one.job, chosen.job)]
        newer = [one for one in attempts if one.started_ns > chosen.started_ns and one.lives]
        if newer and not chosen.lives:
            one = newer[0]
            since = duration(one.age_s(now_ns))
            call = job_call(one.job, [other.job for other in jobs])
            shown = f"this is attempt {chosen.job.attempt}, which has ended"
            return (
                f"{shown}; attempt {one.job.attempt} has lived for {since}: --job {typed(call)}",
            )
        before = self._before
        if before is not None and same_run(before, chosen.job) and chosen.lives:
            call = job_call(before, [other.job for other in jobs])
            shown = f"this is attempt {chosen.job.attempt}"
            return (
                f"{shown}; attempt {before.attempt}, shown before, has ended: --job {typed(call)}",
            )
        return ()


def _fits(one: JobRanks, wanted: str | RankPid | None) -> bool:
    if isinstance(wanted, RankPid):
        return one.has_pid(wanted.pid)
    return wanted is None or is_called(one.job, wanted)


def _same_name(chosen: JobRanks, jobs: Sequence[JobRanks], wanted: Wanted) -> tuple[str, ...]:
    """Says that several living jobs have this name, and what to type for the others."""
    if not isinstance(wanted, str):
        return ()
    fitting = [one for one in jobs if one.lives and is_called(one.job, wanted)]
    others = [one for one in fitting if one is not chosen]
    if not others or not chosen.lives:
        return ()
    every = [one.job for one in jobs]
    options = listed([f"--job {typed(job_call(one.job, every))}" for one in others])
    which = "this is the newest" if chosen is fitting[0] else "this is one of them"
    return (f"{len(fitting)} jobs are called {wanted}: {which}; others: {options}",)


def _is(one: JobRanks, key: JobKey) -> bool:
    """Whether a job has that key, which may be older than its nonce."""
    return one.key == key or (not key[-1] and one.key[:-1] == key[:-1])


def nothing_to_show(
    hosts: Sequence[HostView], wanted: Wanted, jobs: Sequence[JobRanks]
) -> Problem | None:
    """Why no job is shown; None if there is simply none yet."""
    if isinstance(wanted, RankPid) and not jobs and any(host.reported_ns for host in hosts):
        return Problem(
            f"no rank has pid {wanted.pid}: no job was found on this host",
            "`frtop jobs` lists what frtop found, and what hides jobs",
        )
    if wanted is not None and jobs:
        there = [job_place(one.job, ended=not one.lives) for one in jobs]
        step = f"--job {typed(job_call(jobs[0].job, [one.job for one in jobs]))}"
        if isinstance(wanted, RankPid):
            return Problem(f"no rank has pid {wanted.pid}: there is {listed(there)}", step)
        if isinstance(wanted, str):
            return Problem(f"no job is called {wanted!r}: there is {listed(there)}", step)
        return Problem(f"the chosen job is no longer known: there is {listed(there)}", step)
    return next((host.problem for host in hosts if host.problem is not None), None)
