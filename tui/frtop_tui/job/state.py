"""The job as it is being heard: updates and looks go in, frozen frames come out.

Pure: `now_ns` is the operator's monotonic clock and always an argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import MAX_RANKS
from frtop_tui.job.blocks import Ledgers
from frtop_tui.job.host import HostRecord
from frtop_tui.job.jobs import JobRanks, Picker, by_job, newest_first, nothing_to_show
from frtop_tui.job.model import HostState, HostView, ObservedFrame
from frtop_tui.job.naming import JobKey, job_key, listed
from frtop_tui.job.pulse import Pulses
from frtop_tui.job.record import RankRecord
from frtop_tui.job.roll import Roll


class JobState:
    """Merges what agents say. Not thread-safe: belongs to the source's thread."""

    def __init__(self, read_only: str = "") -> None:
        """Args: read_only: why nothing may be asked of ranks, "" if it may."""
        self._read_only = read_only
        self._picker = Picker()
        self._hosts: dict[str, HostRecord] = {}
        self._groups: dict[wire.Group, wire.Group] = {}
        self._touched: set[RankRecord] = set()
        """Records that took something in since a job was last shown."""
        self._jobs: tuple[list[JobRanks], list[RankRecord]] | None = None
        """Which records make up which job; None: to be found out anew."""
        self._roll = Roll()
        self._ledgers = Ledgers()
        self._pulses = Pulses()

    def set_host(self, name: str, state: HostState, problem: str = "", now_ns: int = 0) -> None:
        """What the connection to an address is like; unknown names are added."""
        host = self._host(name)
        if state == "failed" and host.view.state == "heard":
            host.losses.add(now_ns, problem)
        host.view = replace(host.view, state=state, problem=problem)

    def place_host(self, name: str, address: str) -> None:
        """Where its agent is."""
        host = self._host(name)
        host.view = replace(host.view, address=address)

    def permit(self, name: str, *, may_act: bool) -> None:
        """Whether our key may ask anything of the ranks there."""
        host = self._host(name)
        host.view = replace(host.view, may_act=may_act)

    def refused(self, name: str, problem: str) -> None:
        """Its agent does not tell us its state; it may be heard all the same for a while."""
        host = self._host(name)
        state: HostState = "heard" if host.view.state == "heard" else "failed"
        host.view = replace(host.view, state=state, problem=problem)

    def forget_host(self, name: str) -> None:
        """Another name for an agent that is known already."""
        if (host := self._hosts.pop(name, None)) is not None:
            self._touched.difference_update(host.records.values())
        self._jobs = None

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
        known.clock.anchor_ns = update.wall_ns - update.monotonic_ns
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
        self._forget(known, update.forgotten)
        if update.notes:
            known.view = replace(known.view, notes=update.notes)
        return True

    def apply_look(self, host: str, answer: wire.SnapshotResponse, now_ns: int) -> None:  # noqa: ARG002
        """Takes in looks; those at ranks that are no longer known are dropped."""
        known = self._host(host)
        for look in answer.snapshots:
            record = known.records.get(look.key)
            if record is not None:
                record.take_look(look)
                self._touched.add(record)

    def time(self, host: str, sent_ns: int, received_ns: int, answer: wire.TimeResponse) -> None:
        """Takes in what clocks said that were asked at `sent_ns` and heard at `received_ns`."""
        clock = self._host(host).clock
        clock.measure(sent_ns, received_ns, answer.monotonic_ns)
        clock.anchor_ns = answer.wall_ns - answer.monotonic_ns

    def doubted(self) -> list[str]:
        """Hosts whose clocks may have jumped: to be asked now."""
        return [name for name, host in self._hosts.items() if host.clock.doubted]

    def apply_tensors(self, host: str, answer: wire.TensorsResponse) -> None:
        """Takes in what a rank itself says, or why it cannot."""
        record = self._host(host).records.get(answer.key)
        if record is not None:
            record.take_tensors(answer)
            self._touched.add(record)

    def apply_ops(self, host: str, key: int, parting: int, ops: tuple[wire.Op, ...]) -> None:
        """Takes in the ops of a rank that it was asked for because of a parting."""
        record = self._host(host).records.get(key)
        if record is not None:
            self._ledgers.tell(parting, record, ops)

    def frame(self, now_ns: int, wall_ns: int, job: str | JobKey | None = None) -> ObservedFrame:
        """The moment `now_ns` of one job: `job` by key, name, run id, nonce or `address:port`.

        Without `job`, the newest one with live ranks, which then stays for as long as it
        lives, else the newest that ended.
        """
        hosts = tuple(host.shown(now_ns, wall_ns) for host in self._hosts.values())
        jobs, strangers = self._by_job()
        chosen = self._picker.pick(jobs, job, now_ns)
        shown = [chosen] if chosen is not None else []
        self._ledgers.keep(one.key for one in (*shown, *jobs))
        rest = [one for one in jobs if one is not chosen]
        others = tuple(one.job for one in rest)
        running = tuple(one.job for one in rest if one.lives)
        pulses = self._pulses.at(now_ns, jobs, chosen)
        if chosen is None:
            return ObservedFrame(
                now_ns=now_ns,
                wall_ns=wall_ns,
                health="empty" if any(host.heard_ns for host in hosts) else "connecting",
                other_jobs=others,
                hosts=hosts,
                problem=nothing_to_show(hosts, job, jobs),
                running_jobs=running,
                read_only=self._read_only,
                pulses=pulses,
            )
        self._turn(chosen, now_ns)
        roll = self._roll
        missing = sum(host.missing for host in self._hosts.values() if not host.whole)
        nameless = _nameless(strangers, chosen.job)
        return ObservedFrame(
            now_ns=now_ns,
            wall_ns=wall_ns,
            health=roll.health,
            since_ns=roll.since_ns,
            job=chosen.job,
            other_jobs=others,
            up_s=chosen.up_s(now_ns),
            hosts=hosts,
            ranks=roll.views,
            groups=roll.groups.views(),
            coverage=roll.census.coverage(roll.views, chosen.job.world_size, missing, nameless),
            notes=self._picker.notes(chosen, jobs, now_ns, job),
            running_jobs=running,
            read_only=self._read_only or _may_only_read(hosts, chosen.records),
            pulses=pulses,
            partings=self._ledgers.partings(chosen.key, now_ns),
        )

    def _by_job(self) -> tuple[list[JobRanks], list[RankRecord]]:
        """As `by_job`, which goes over all records: only when one came, went, or is another."""
        if self._jobs is None:
            hosts = self._hosts.values()
            self._jobs = by_job(record for host in hosts for record in host.records.values())
        jobs, strangers = self._jobs
        return newest_first(jobs), strangers

    def _turn(self, chosen: JobRanks, now_ns: int) -> None:
        """Brings the roll of the job that is shown to this moment."""
        touched, self._touched = self._touched, set()
        for host in self._hosts.values():
            touched.update(host.moved())
        for record in touched:
            self._hosts[record.host].watch(record)
        self._roll.turn(chosen, touched, now_ns)

    def _host(self, name: str) -> HostRecord:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = HostRecord(HostView(name, "connecting"))
        return host

    def _replace(self, host: HostRecord, update: wire.Update, now_ns: int) -> None:
        if host.whole and update.instance == host.instance and update.number < host.number:
            return  # asked for twice, and this answer came late
        before = host.records if update.instance == host.instance else {}
        host.instance, host.number = update.instance, update.number
        host.whole, host.missing = True, 0
        self._touched.difference_update(host.records.values())
        host.records = {}
        host.alarms.clear()
        self._jobs = None
        for rank in update.ranks:
            self._take(host, rank, now_ns)
            record, old = host.records.get(rank.key), before.get(rank.key)
            if record is not None and old is not None:
                record.keep_looks_of(old)
        host.view = replace(host.view, notes=update.notes, version=update.version)

    def _forget(self, host: HostRecord, keys: Iterable[int]) -> None:
        for key in keys:
            self._touched.discard(host.records.pop(key, None))
            self._jobs = None

    def _take(self, host: HostRecord, update: wire.RankUpdate, now_ns: int) -> None:
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
            self._jobs = None
        if update.exit_info is not None or identity not in (None, record.identity):
            self._jobs = None
        if update.groups:
            # Shared values: a group of a thousand ranks has one list of members, not 1,000.
            groups = tuple(self._groups.setdefault(group, group) for group in update.groups)
            update = structs.replace(update, groups=groups)
        record.take(update, now_ns)
        if update.blocks:
            self._ledgers.take(record, update.blocks, now_ns)
        self._touched.add(record)


def _may_only_read(hosts: Iterable[HostView], records: Iterable[RankRecord]) -> str:
    """Why nothing may be asked of any of these ranks."""
    if all(host.may_act for host in hosts):
        return ""
    places = {record.host for record in records}
    barred = [host.name for host in hosts if host.name in places and not host.may_act]
    if len(barred) < len(places):
        return ""
    return f"our key may only read on {listed(barred, 3)}"


def _nameless(strangers: list[RankRecord], job: wire.Job) -> int:
    """How many without a rank may matter: those that live, and those of `job` itself."""
    mine = job_key(job)[:-1]
    return sum(r.exit_info is None or job_key(r.identity.job)[:-1] == mine for r in strangers)
