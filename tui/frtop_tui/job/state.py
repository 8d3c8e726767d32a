"""The state of all hosts and jobs: updates and snapshots go in, immutable frames come out.

Pure: `now_ns` is the operator's monotonic clock and always an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS, fold, unfold
from frtop_tui.job.checksums import ChecksumComparisons
from frtop_tui.job.coverage import nameless_text
from frtop_tui.job.host import HostRecord
from frtop_tui.job.host_gauges import GaugeRecord
from frtop_tui.job.job_activity import JobActivities
from frtop_tui.job.jobs import JobPicker, JobRanks, by_job, newest_first, nothing_to_show
from frtop_tui.job.model import (
    Coverage,
    CoverageNote,
    HostState,
    HostView,
    ObservedFrame,
    Problem,
)
from frtop_tui.job.naming import Wanted, job_key, listed, same_job
from frtop_tui.job.rank_views import RankViews
from frtop_tui.job.record import OneRankAnswer, RankRecord
from frtop_tui.job.statistics import JobStatistics

MAX_SHARED_GROUPS: Final = 65_536
MAX_WRITTEN: Final = 256 * 1024 * 1024
"""Characters of members that agents sent in short; a million ranks have 70 million."""
MOST_DOUBTED: Final = 16


class JobState:
    """Merges the messages of agents. Not thread-safe: belongs to the source's thread."""

    def __init__(self, read_only: str = "") -> None:
        """Args: read_only: why we may not ask ranks, "" if we may."""
        self._read_only = read_only
        self._picker = JobPicker()
        self._hosts: dict[str, HostRecord] = {}
        self._groups: dict[wire.Group, wire.Group] = {}
        self._written = 0
        """Characters of their members that were written out."""
        self._changed: set[RankRecord] = set()
        """Records that changed since the last frame."""
        self._jobs: tuple[list[JobRanks], list[RankRecord]] | None = None
        """Which records make up which job; None: needs to be computed again."""
        self._views = RankViews()
        self._checksums = ChecksumComparisons()
        self._activities = JobActivities()
        self._statistics: tuple[wire.Job, JobStatistics | None, JobStatistics | None] | None = None

    def set_statistics(
        self,
        job: wire.Job,
        statistics: JobStatistics | None,
        shown: JobStatistics | None = None,
    ) -> None:
        """Sets the newest statistics of a job; None: nobody wants them any more.

        `shown` are those of a screen's window, if it differs.
        """
        self._statistics = job, statistics, shown

    def set_host(
        self, name: str, state: HostState, problem: Problem | None = None, now_ns: int = 0
    ) -> None:
        """Sets the state of the connection to a host; adds the host if it is new."""
        host = self._host(name)
        if state == "failed" and problem is not None and host.view.state == "reporting":
            host.losses.add(now_ns, problem)
        host.view = replace(host.view, state=state, problem=problem, progress="")

    def set_on_host(self, name: str, **fields: Any) -> None:
        """Sets what the connection knows about a host; adds the host if it is new."""
        host = self._host(name)
        host.view = replace(host.view, **fields)

    def set_limits(self, name: str, limits: tuple[str, ...]) -> None:
        """Sets what the agent of a host cannot do there, in sentences."""
        self._host(name).limits = limits

    def set_refused(self, name: str, text: str) -> None:
        """Notes that the agent refused to send its state; updates may still come for a while."""
        host = self._host(name)
        state: HostState = "reporting" if host.view.state == "reporting" else "failed"
        host.view = replace(host.view, state=state, problem=Problem.parse(text))

    def forget_host(self, name: str) -> None:
        """Removes a host: the name turned out to be an alias of another."""
        if (host := self._hosts.pop(name, None)) is not None:
            self._changed.difference_update(host.records.values())
        self._jobs = None

    def apply(self, host: str, update: wire.Update, now_ns: int) -> bool:
        """Takes in an update of the agent at `host`.

        Returns:
            False when something is missing (no full state yet, a gap, another agent
            instance): the caller requests the full state; until then nothing is applied.
        """
        known = self._host(host)
        if update.instance != known.instance and known.instance:
            known.clock.forget()
            known.complete = False
        known.clock.hear(update.monotonic_ns, now_ns)
        known.clock.anchor_ns = update.wall_ns - update.monotonic_ns
        known.clock.silent = False
        if known.view.state != "reporting":
            known.view = replace(known.view, state="reporting", problem=None, progress="")
        if update.full:
            self._replace(known, update, now_ns)
            return True
        if update.instance != known.instance or not known.complete:
            return False
        if update.number <= known.number:
            return True  # the full state already contained it
        if update.number != known.number + 1:
            lost = update.number - known.number - 1
            known.missing += lost
            known.complete = False
            known.view = replace(known.view, lost_updates=known.view.lost_updates + lost)
            return False
        known.number = update.number
        for rank in update.ranks:
            self._apply_rank(known, rank, now_ns)
        self._forget(known, update.forgotten)
        searched = update.none_found, update.searching
        if update.notes or searched != (known.view.none_found, known.view.searching):
            # ("",): none any more
            notes = tuple(filter(None, update.notes or known.view.notes))
            known.view = replace(
                known.view, notes=notes, none_found=update.none_found, searching=update.searching
            )
        if update.gauges is not None:
            known.gauges.apply(update.gauges, full=False)
        return True

    def apply_gauge_history(self, host: str, history: wire.GaugeHistory) -> None:
        """Takes in the last ten minutes of a host's gauges."""
        if (known := self._hosts.get(host)) is not None:
            known.gauges.apply_history(history)

    def apply_gauge_minutes(self, host: str, history: wire.GaugeHistory) -> None:
        """Takes in the gauges of each minute of a run on a host."""
        if (known := self._hosts.get(host)) is not None:
            record = GaugeRecord()
            record.apply_history(history)
            known.view = replace(known.view, minutes=record.view())

    def apply_snapshots(self, host: str, response: wire.SnapshotResponse) -> None:
        """Takes in snapshots; drops those of ranks that are no longer known."""
        known = self._host(host)
        for snapshot in response.snapshots:
            record = known.records.get(snapshot.key)
            if record is not None:
                record.apply_snapshot(snapshot)
                self._changed.add(record)

    def measure_clock(
        self, host: str, sent_ns: int, received_ns: int, response: wire.TimeResponse
    ) -> None:
        """Takes in a host's clocks, requested at our `sent_ns`, received at `received_ns`."""
        clock = self._host(host).clock
        clock.measure(sent_ns, received_ns, response.monotonic_ns)
        clock.anchor_ns = response.wall_ns - response.monotonic_ns

    def hosts_with_doubted_clocks(self) -> list[str]:
        """Hosts whose clocks may have jumped, a few at a time: they need to be asked now.

        If all updates seem late, we were: then answers must not come on top of them.
        """
        doubted = (name for name, host in self._hosts.items() if host.clock.doubted)
        return [*islice(doubted, MOST_DOUBTED)]

    def apply_answer(self, host: str, response: OneRankAnswer) -> None:
        """Takes in a rank's tensors, native stacks or output, or why it has none."""
        record = self._host(host).records.get(response.key)
        if record is not None:
            record.apply_answer(response)
            self._changed.add(record)

    def apply_ops(self, host: str, key: int, hint: int, ops: tuple[wire.Op, ...]) -> None:
        """Takes in ops that a rank sent because of a divergence hint."""
        record = self._host(host).records.get(key)
        if record is not None:
            self._checksums.add_ops(hint, record, ops)

    def frame(self, now_ns: int, wall_ns: int, job: Wanted = None) -> ObservedFrame:
        """The frame of one job.

        `job` is its key, name, run id, nonce or `address:port`, or the pid of one of its ranks.
        Without `job` it is the newest job that lives, for as long as it lives, else the
        newest that ended.
        """
        hosts = tuple(host.view_at(now_ns, wall_ns) for host in self._hosts.values())
        jobs, nameless_records = self._by_job()
        chosen = self._picker.pick(jobs, job, now_ns)
        shown = [chosen] if chosen is not None else []
        self._checksums.retain(one.key for one in (*shown, *jobs))
        rest = [one for one in jobs if one is not chosen]
        others = tuple(one.job for one in rest)
        running = tuple(one.job for one in rest if one.lives)
        activities = self._activities.at(now_ns, jobs, chosen)
        if chosen is None:
            return ObservedFrame(
                now_ns=now_ns,
                wall_ns=wall_ns,
                health="empty" if any(host.reported_ns for host in hosts) else "connecting",
                other_jobs=others,
                hosts=hosts,
                coverage=_coverage_of_nameless(nameless_records),
                problem=nothing_to_show(hosts, job, jobs),
                running_jobs=running,
                read_only=self._read_only,
                activities=activities,
            )
        views = self._update_views(chosen, now_ns)
        missing = sum(host.missing for host in self._hosts.values() if not host.complete)
        nameless = _count_nameless(nameless_records, chosen.job)
        return ObservedFrame(
            now_ns=now_ns,
            wall_ns=wall_ns,
            health=views.health,
            since_ns=views.since_ns,
            job=chosen.job,
            other_jobs=others,
            up_s=chosen.up_s(now_ns),
            hosts=hosts,
            ranks=views.views,
            groups=views.groups.views(),
            coverage=views.counts.coverage(
                views.views,
                chosen.job.world_size,
                missing,
                nameless,
                [host.name for host in hosts if host.searching],
            ),
            notes=self._picker.notes(chosen, jobs, now_ns, job),
            running_jobs=running,
            read_only=self._read_only or _may_only_read(hosts, chosen.records),
            activities=activities,
            divergence_hints=self._checksums.hints(chosen.key, now_ns),
            statistics=self._statistics_of(chosen.job)[0],
            shown_statistics=self._statistics_of(chosen.job)[1],
        )

    def _statistics_of(self, job: wire.Job) -> tuple[JobStatistics | None, JobStatistics | None]:
        if self._statistics is None or not same_job(self._statistics[0], job):
            return None, None
        return self._statistics[1:]

    def _by_job(self) -> tuple[list[JobRanks], list[RankRecord]]:
        """Cached `by_job`: computed again only when a record is added, removed or replaced."""
        if self._jobs is None:
            hosts = self._hosts.values()
            self._jobs = by_job(record for host in hosts for record in host.records.values())
        jobs, nameless_records = self._jobs
        return newest_first(jobs), nameless_records

    def _update_views(self, chosen: JobRanks, now_ns: int) -> RankViews:
        """Brings the views of the shown job to `now_ns`."""
        changed, self._changed = self._changed, set()
        for host in self._hosts.values():
            changed.update(host.changed_by_time())
        for record in changed:
            self._hosts[record.host].set_timer(record)
        self._views.update(chosen, changed, now_ns)
        return self._views

    def _host(self, name: str) -> HostRecord:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = HostRecord(HostView(name, "connecting"))
        return host

    def _replace(self, host: HostRecord, update: wire.Update, now_ns: int) -> None:
        if host.complete and update.instance == host.instance and update.number < host.number:
            return  # requested twice; this response is late
        before = host.records if update.instance == host.instance else {}
        if update.instance != host.instance:
            host.gauges.forget()
        if update.gauges is not None:
            host.gauges.apply(update.gauges, full=True)
        host.instance, host.number = update.instance, update.number
        host.complete, host.missing = True, 0
        self._changed.difference_update(host.records.values())
        host.records = {}
        host.timers.clear()
        self._jobs = None
        for rank in update.ranks:
            self._apply_rank(host, rank, now_ns)
            record, old = host.records.get(rank.key), before.get(rank.key)
            if record is not None and old is not None:
                record.adopt_responses(old)
        host.view = replace(
            host.view,
            notes=update.notes,
            version=update.version,
            none_found=update.none_found,
            searching=update.searching,
        )

    def _forget(self, host: HostRecord, keys: Iterable[int]) -> None:
        for key in keys:
            self._changed.discard(host.records.pop(key, None))
            self._jobs = None

    def _apply_rank(self, host: HostRecord, update: wire.RankUpdate, now_ns: int) -> None:
        identity = update.identity
        if identity is not None and identity.job.world_size > MAX_RANKS:
            # From the job's environment, so it may be any number; we count up to it.
            identity = replace(identity, job=replace(identity.job, world_size=0))
            update = replace(update, identity=identity)
        record = host.records.get(update.key)
        if record is None:
            if update.identity is None:
                return  # the agent has never sent its identity
            record = RankRecord(host.view.name, host.clock, update.key, update.identity)
            host.records[update.key] = record
            self._jobs = None
        if update.exit_info is not None or (identity is not None and identity != record.identity):
            self._jobs = None
        if update.groups:
            # Values are shared: a group of 1,000 ranks has one list of members, not 1,000.
            if len(self._groups) >= MAX_SHARED_GROUPS:
                self._groups.clear()  # a job that keeps making groups; sharing begins anew
            known = record.latest.groups
            groups = tuple(self._shared(one, known.get(one.id)) for one in update.groups)
            update = replace(update, groups=groups)
            if gone := [replace(one, gone=False) for one in groups if one.gone]:
                self._checksums.forget(record, gone)
                for group in gone:
                    self._groups.pop(group, None)
        record.apply(update, now_ns)
        if update.blocks:
            self._checksums.add(record, update.blocks, now_ns)
        self._changed.add(record)

    def _shared(self, group: wire.Group, before: wire.Group | None) -> wire.Group:
        if group.gone and before is not None:
            return replace(before, gone=True)
        known = self._groups.get(group)
        if known is None:
            known = group
            if "/" in group.ranks and self._written < MAX_WRITTEN:
                known = _written_out(group)
                self._written += len(known.ranks)
            if not group.gone:
                self._groups[group] = known
        return known


def _written_out(group: wire.Group) -> wire.Group:
    """The group with its members as all other sources of evidence write them."""
    try:
        return replace(group, ranks=fold(unfold(group.ranks)))
    except ValueError:
        return group


def _may_only_read(hosts: Iterable[HostView], records: Iterable[RankRecord]) -> str:
    """Why we may not ask any of these ranks, "" if we may ask one."""
    if all(host.may_act for host in hosts):
        return ""
    names = {record.host for record in records}
    read_only = [host.name for host in hosts if host.name in names and not host.may_act]
    if len(read_only) < len(names):
        return ""
    return f"our key may only read on {listed(read_only, 3)}"


def _count_nameless(records: list[RankRecord], job: wire.Job) -> int:
    """Number of relevant processes without a rank: living ones, and those of `job`."""
    mine = job_key(job)[:-1]
    return sum(not r.ended or job_key(r.identity.job)[:-1] == mine for r in records)


def _coverage_of_nameless(records: list[RankRecord]) -> Coverage:
    """Coverage without a job: living processes that have not said which rank they are."""
    living = sum(not record.ended for record in records)
    return Coverage(notes=(CoverageNote(nameless_text(living)),) if living else ())
