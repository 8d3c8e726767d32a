"""The job as it is being heard: updates and looks go in, frozen frames come out.

Pure: `now_ns` is the operator's monotonic clock and always an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from msgspec import structs

from frtop_probe import wire
from frtop_probe.ring.fold import MAX_RANKS
from frtop_tui.job.coverage import coverage_of
from frtop_tui.job.groups import group_views
from frtop_tui.job.model import Frame, Health, HostState, HostView, RankView
from frtop_tui.job.naming import JobKey, job_key, job_names, job_place, job_title, listed
from frtop_tui.job.record import HostClock, RankRecord

HOST_SILENT_NS = 3_000_000_000
"""An agent speaks several times a second even when nothing is new."""


@dataclass(slots=True)
class _Host:
    view: HostView
    clock: HostClock = field(default_factory=HostClock)
    instance: str = ""
    number: int = 0
    whole: bool = False  # a full state was applied and no update is missing since
    missing: int = 0  # updates lost since the last full state
    records: dict[int, RankRecord] = field(default_factory=dict)


class JobState:
    """Merges what agents say. Not thread-safe: belongs to the source's thread."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._groups: dict[wire.Group, wire.Group] = {}

    def set_host(self, name: str, state: HostState, problem: str = "") -> None:
        """What the connection to an address is like; unknown names are added."""
        host = self._host(name)
        host.view = replace(host.view, state=state, problem=problem)

    def forget_host(self, name: str) -> None:
        """Another name for an agent that is known already."""
        self._hosts.pop(name, None)

    def apply(self, host: str, update: wire.Update, now_ns: int) -> bool:
        """Takes in what the agent at `host` says.

        Returns:
            False when something is missing (no full state yet, a gap, another agent
            instance): the caller asks for the full state, until then nothing is applied.
        """
        known = self._host(host)
        if update.instance != known.instance and known.instance:
            known.clock.forget()
            known.whole = False
        known.clock.hear(update.monotonic_ns, now_ns)
        known.clock.silent = False
        if known.view.state != "heard":
            known.view = replace(known.view, state="heard", problem="")
        if update.full:
            self._replace(known, update, now_ns)
            return True
        if update.instance != known.instance or not known.whole:
            return False
        if update.number <= known.number:
            return True  # it was in the full state already
        if update.number != known.number + 1:
            lost = update.number - known.number - 1
            known.missing += lost
            known.whole = False
            known.view = replace(known.view, lost_updates=known.view.lost_updates + lost)
            return False
        known.number = update.number
        for rank in update.ranks:
            self._take(known, rank, now_ns)
        for key in update.forgotten:
            known.records.pop(key, None)
        if update.notes:
            known.view = replace(known.view, notes=update.notes)
        return True

    def apply_look(self, host: str, answer: wire.LookAnswer, now_ns: int) -> None:  # noqa: ARG002
        """Takes in looks; those at ranks that are no longer known are dropped."""
        known = self._host(host)
        for look in answer.looks:
            record = known.records.get(look.key)
            if record is not None:
                record.take_look(look)

    def frame(self, now_ns: int, wall_ns: int, job: str | None = None) -> Frame:
        """The moment `now_ns` of one job: `job` by name, run id, nonce or `address:port`.

        Without `job`, the newest one with live ranks, else the newest that ended.
        """
        hosts = tuple(self._shown(host, now_ns) for host in self._hosts.values())
        jobs, strangers = self._jobs()
        ordered = sorted(jobs.values(), key=_liveness_and_age, reverse=True)
        chosen = next(
            (records for records in ordered if job is None or _is_called(records, job)), None
        )
        rest = [records for records in ordered if records is not chosen]
        others = tuple(_job_of(records) for records in rest)
        running = tuple(_job_of(records) for records in rest if _lives(records))
        if chosen is None:
            return Frame(
                now_ns=now_ns,
                wall_ns=wall_ns,
                health="empty" if any(host.heard_ns for host in hosts) else "connecting",
                other_jobs=others,
                hosts=hosts,
                problem=_problem(hosts, job, others, running),
                running_jobs=running,
            )
        named = _job_of(chosen)
        views: dict[int, RankView] = {}
        for record in sorted(chosen, key=_seniority):
            views[record.identity.rank] = record.view(now_ns)
        views = dict(sorted(views.items()))
        missing = sum(host.missing for host in self._hosts.values() if not host.whole)
        return Frame(
            now_ns=now_ns,
            wall_ns=wall_ns,
            health=_health(views.values()),
            since_ns=max(view.posture_since_ns for view in views.values()),
            job=named,
            other_jobs=others,
            up_s=max(0.0, (_over(chosen, now_ns) - min(map(_started, chosen))) / 1e9),
            hosts=hosts,
            ranks=views,
            groups=group_views(views.values(), now_ns),
            coverage=coverage_of(views, named.world_size, missing, _nameless(strangers, named)),
            running_jobs=running,
        )

    def _host(self, name: str) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(HostView(name, "connecting"))
        return host

    def _shown(self, host: _Host, now_ns: int) -> HostView:
        """The host with the silence that only the clock tells."""
        heard = host.clock.heard_ns
        host.clock.silent = bool(heard) and now_ns - heard > HOST_SILENT_NS
        state: HostState = "silent" if host.clock.silent else host.view.state
        if host.view.state == "failed":
            state = "failed"
        return replace(host.view, state=state, heard_ns=heard)

    def _replace(self, host: _Host, update: wire.Update, now_ns: int) -> None:
        if host.whole and update.instance == host.instance and update.number < host.number:
            return  # asked for twice, and this answer came late
        before = host.records if update.instance == host.instance else {}
        host.instance, host.number = update.instance, update.number
        host.whole, host.missing = True, 0
        host.records = {}
        for rank in update.ranks:
            self._take(host, rank, now_ns)
            record, old = host.records.get(rank.key), before.get(rank.key)
            if record is not None and old is not None:
                record.keep_looks_of(old)
        host.view = replace(host.view, notes=update.notes, version=update.version)

    def _take(self, host: _Host, update: wire.RankUpdate, now_ns: int) -> None:
        identity = update.identity
        if identity is not None and identity.job.world_size > MAX_RANKS:
            # Out of the job's environment, where anything may stand; we count up to it.
            identity = structs.replace(identity, job=structs.replace(identity.job, world_size=0))
            update = structs.replace(update, identity=identity)
        record = host.records.get(update.key)
        if record is None:
            if update.identity is None:
                return  # the agent has never said who this is: nothing to hang it on
            record = RankRecord(host.view.name, host.clock, update.key, update.identity)
            host.records[update.key] = record
        if update.groups:
            # Shared values: a group of a thousand ranks has one list of members, not 1,000.
            groups = tuple(self._groups.setdefault(group, group) for group in update.groups)
            update = structs.replace(update, groups=groups)
        record.take(update, now_ns)

    def _jobs(self) -> tuple[dict[JobKey, list[RankRecord]], list[RankRecord]]:
        """Records by job, and those that do not know their rank yet."""
        jobs: dict[JobKey, list[RankRecord]] = {}
        keys: dict[wire.Job, JobKey] = {}
        nameless: list[RankRecord] = []
        for host in self._hosts.values():
            for record in host.records.values():
                job = record.identity.job
                if record.identity.rank < 0:
                    nameless.append(record)
                    continue
                key = keys.get(job)
                if key is None:
                    key = keys[job] = job_key(job)
                jobs.setdefault(key, []).append(record)
        # A rank on its way into its first group does not know the job's nonce yet.
        for key in [key for key in jobs if not key[-1]]:
            known = [other for other in jobs if other[:-1] == key[:-1] and other[-1]]
            living = [other for other in known if any(r.ending is None for r in jobs[other])]
            if len(living) == 1:
                jobs[living[0]] = jobs[living[0]] + jobs.pop(key)
        return jobs, nameless


def _started(record: RankRecord) -> int:
    return record.identity.started_ns + record.clock.offset


def _seniority(record: RankRecord) -> tuple[bool, int]:
    """Two processes that claim one rank: the living one is shown, else the newer."""
    return (record.ending is None, _started(record))


def _lives(records: list[RankRecord]) -> bool:
    return any(record.ending is None for record in records)


def _liveness_and_age(records: list[RankRecord]) -> tuple[bool, int]:
    return (_lives(records), max(map(_started, records)))


def _over(records: list[RankRecord], now_ns: int) -> int:
    """When the last of them ended; `now_ns` while one lives."""
    ended = [r.ending.at_ns + r.clock.offset for r in records if r.ending is not None]
    return min(now_ns, max(ended)) if len(ended) == len(records) else now_ns


def _nameless(strangers: list[RankRecord], job: wire.Job) -> int:
    """How many without a rank may matter: those that live, and those of `job` itself."""
    mine = job_key(job)[:-1]
    return sum(r.ending is None or job_key(r.identity.job)[:-1] == mine for r in strangers)


def _job_of(records: list[RankRecord]) -> wire.Job:
    jobs = [record.identity.job for record in records]
    return next((job for job in jobs if job.nonce), jobs[0])


def _is_called(records: list[RankRecord], name: str) -> bool:
    return name in job_names(_job_of(records))


def _health(views: Iterable[RankView]) -> Health:
    """Before anybody has judged."""
    postures = {view.posture for view in views}
    if postures <= {"done"}:
        return "ended"
    if postures <= {"dead", "done"}:
        return "dead"
    if postures <= {"dead", "done", "unheard"}:
        return "unheard"
    return "starting" if postures <= {"starting"} else "healthy"


def _problem(
    hosts: tuple[HostView, ...],
    job: str | None,
    known: tuple[wire.Job, ...],
    running: tuple[wire.Job, ...],
) -> str:
    if job is not None and known:
        there = [job_place(one, ended=one not in running) for one in known]
        return f"no job is called {job!r}: there is {listed(there)}; --job {job_title(known[0])}"
    return next((host.problem for host in hosts if host.problem), "")
