"""Metrics of a frame and its counts, as families of `prometheus_client`; all are bounded."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from frtop_tui.connect.op_follower import FollowedOps
from frtop_tui.diagnosis.evidence.host_facts import FactKind, facts_of_host
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.metrics.job_counts import GroupLabels, JobCounts, label
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.job_activity import known_jobs
from frtop_tui.job.model import GroupView, Health, HostState, RankState
from frtop_tui.job.naming import job_call
from frtop_tui.job.reported import latest_value
from frtop_tui.job.statistics import CallRow, JobStatistics
from frtop_tui.statistics.group_skew import group_skews
from frtop_tui.statistics.orders import ordered
from frtop_tui.statistics.step_table import step_rows
from frtop_tui.text.statistics_words import group_words, labels_of

FEW_RANKS: Final = 64
"""Up to this many ranks have their own series, unless an option says otherwise."""
FEW_HOSTS: Final = 64
"""Up to this many hosts have their own series; facts are counted over all hosts."""
MOST_LINKS: Final = 8
MOST_GPUS: Final = 16
MOST_NAMES: Final = 32
MOST_ROWS: Final = 32
"""Kinds, groups and sizes with a series: those that took most time. Lines have none: paths are
not in the metrics, and a program may have any number."""
LOSSES: Final = ("updates", "ops", "pending", "sizes", "hook_errors")
_WORD: Final = re.compile(r"[a-z_]{1,40}")
_GROUP: Final = ("group", "ranks")
_RANK: Final = ("rank", "host")
_CALL: Final = ("op", "group", "bytes")
_OVER: Final = ("dead", "done")
_PRESSURES: Final = (("cpu", "psi_cpu"), ("memory", "psi_memory"), ("io", "psi_io"))
_GPU: Final = (
    ("busy_ratio", "Time in which any kernel ran.", "use", 1000),
    ("power_watts", "Power draw.", "power_mw", 1000),
    ("clock_hertz", "Clock of its multiprocessors.", "sm_mhz", 1e-6),
    ("memory_used_bytes", "Memory in use.", "mem_used", 1),
    ("temperature_celsius", "Temperature.", "temperature", 1),
)
"""Suffix, help, gauge, and by what to divide it."""
_PARTS: Final = {
    "all": "took_ns", "own": "own_ns", "communication_least": "blocked_ns",
    "communication_most": "pending_ns", "data": "data_ns", "forward": "forward_ns",
    "backward": "backward_ns", "optimizer": "optimizer_ns",
}  # fmt: skip
"""Parts of a step, and their fields in `StepRow`."""
Rows = Iterable[tuple[tuple[str, ...], float | None]]


class JobCollector:
    """Called by `prometheus_client` at each scrape; the main thread calls `update`."""

    def __init__(self, per_rank: bool | None = None) -> None:
        """Args: per_rank: whether ranks have series; None: if there are at most `FEW_RANKS`."""
        self._per_rank = per_rank
        self._lock = threading.Lock()
        self._counts = JobCounts()
        self._frame: Frame | None = None
        self._version = metadata.version("frtop")

    def update(self, frame: Frame, followed: list[FollowedOps], unfit: int) -> None:
        """Takes the newest frame, the followed ops, and how many of them did not fit."""
        with self._lock:
            self._frame = frame
            if not self._counts.are_of(frame):
                self._counts = JobCounts.begin(frame)
            self._counts.update(frame)
            for one in followed:
                self._counts.add_ops(frame.ranks.get(one.view.rank, one.view), one.issued, one.lost)
            self._counts.lost["ops"] += unfit

    def collect(self) -> Iterator[Any]:
        """All families of the newest frame."""
        with self._lock:
            families = [InfoMetricFamily("frtop_build", "frtop", {"version": self._version})]
            if self._frame is not None:
                families += [*self._of_job(self._frame), *self._of_groups(self._frame)]
                families += [*self._of_frtop(self._frame), *self._of_ranks(self._frame)]
                families += self._of_hosts(self._frame)
                if self._frame.statistics is not None:
                    families += _of_statistics(self._frame, self._frame.statistics)
                    families.append(self._skews(self._frame, self._frame.statistics))
        yield from families

    def _of_job(self, frame: Frame) -> Iterator[Any]:
        if frame.job is not None:
            job = frame.job
            yield InfoMetricFamily("frtop_job", "The job that is shown.", {
                "name": label(job.name),
                "run_id": label(job.run_id),
                "attempt": str(job.attempt),
                "call": label(job_call(job, known_jobs(frame))),
            })  # fmt: skip
        states = Counter(view.state for view in frame.ranks.values())
        yield _states("ranks", "Ranks by state.", "state", get_args(RankState), states)
        yield _gauge("ranks_expected", "Ranks that the job has.", frame.coverage.expected)
        yield _gauge("ranks_reporting", "Ranks that are reporting.", frame.coverage.reporting)
        yield _states("health", "1 for the health of the job.", "health", get_args(Health),
                      Counter([frame.health]))  # fmt: skip
        if frame.since_ns:
            yield _gauge("health_age_seconds", "How long the health has been the same.",
                         max(0.0, (frame.now_ns - frame.since_ns) / 1e9))  # fmt: skip
        found = Counter(
            (one.kind, _word(one.why.cause), one.confidence, one.progress) for one in frame.verdicts
        )
        yield _gauges("verdicts", "Current verdicts.",
                      ("kind", "cause", "confidence", "progress"), found.items())  # fmt: skip
        culprits = {rank for verdict in frame.verdicts for rank in verdict.culprits}
        yield _gauge("culprits", "Ranks that verdicts blame.", len(culprits))
        if left := [one.left_s for one in frame.verdicts if one.left_s is not None]:
            yield _gauge("timeout_left_seconds",
                         "Time until the first op that ranks wait in reaches its timeout.",
                         min(left))  # fmt: skip
        steps = [one.step for one in self._counts.steps.values()]
        times = [one.seconds for one in self._counts.steps.values() if one.seconds is not None]
        yield _stats("step", "Training step of the ranks.", steps)
        yield _stats("step_seconds", "Duration of the last step of the ranks.", times)

    def _of_groups(self, frame: Frame) -> Iterator[Any]:
        counts = self._counts
        began, since = counts.job_began_s, counts.counted_from_s
        yield _counts("ops", "Ops that ranks issued, all ranks together.", _GROUP, counts.ops,
                      began)  # fmt: skip
        yield _counts("bytes", "Bytes of inputs of ops of the ranks of --bytes-of.", _GROUP,
                      counts.bytes, since)  # fmt: skip
        yield CounterMetricFamily("frtop_ops_without_size", "Ops of unknown size on these ranks.",
                                  counts.unsized, created=since)  # fmt: skip
        yield _counts("waiting_seconds",
                      "Seconds for which ranks were blocked in ops, all ranks together.", _GROUP,
                      counts.waited_s, since)  # fmt: skip
        furthest: Counter[GroupLabels] = Counter()
        late: Counter[GroupLabels] = Counter()
        waiting: Counter[GroupLabels] = Counter()
        for group in frame.groups:
            if (labels := self._labels_of(group, frame)) is not None:
                furthest[labels] = max(furthest[labels], group.number)
                late[labels] += len(group.late)
                waiting[labels] += len(group.waiting)
        yield _gauges("collective_number", "The furthest collective that a rank issued.", _GROUP,
                      furthest.items())  # fmt: skip
        yield _gauges("late_ranks", "Ranks that have not issued it yet.", _GROUP, late.items())
        yield _gauges("waiting_ranks", "Ranks that are blocked in an op of the group.", _GROUP,
                      waiting.items())  # fmt: skip
        waits = [view.age_s(view.blocked_on.issued_ns, frame.now_ns)
                 for view in frame.ranks.values()
                 if view.state == "blocked" and view.blocked_on and view.blocked_on.issued_ns
                 ]  # fmt: skip
        yield _gauge("longest_wait_seconds",
                     "How long the op that blocks a rank has been pending.",
                     max(waits, default=0.0))  # fmt: skip

    def _skews(self, frame: Frame, found: JobStatistics) -> Any:
        """The skew of each group; of groups with the same labels that with the largest median."""
        views = {group.key: group for group in frame.groups}
        largest: dict[GroupLabels, tuple[int, int]] = {}
        for one in group_skews(found):
            view = views.get(one.group)
            if view is not None and (labels := self._labels_of(view, frame)) is not None:
                times = one.median_ns, one.max_ns
                largest[labels] = max(times, largest.get(labels, (0, 0)))
        return _gauges("group_skew_seconds",
                       "Time from the first to the last arrival at sampled collectives of a group.",
                       (*_GROUP, "quantile"),
                       (((*labels, quantile), _seconds(ns)) for labels, times in largest.items()
                        for quantile, ns in zip(("0.5", "1"), times, strict=True)))  # fmt: skip

    def _labels_of(self, group: GroupView, frame: Frame) -> GroupLabels | None:
        """The group's labels, as its first known member names it."""
        first = next((r for r in group.members if r in frame.ranks), None)
        known = frame.ranks[first].groups.values() if first is not None else ()
        key = (group.key.name, group.key.ranks, group.key.epoch)
        wired = next((one for one in known if (one.name, one.ranks, one.epoch) == key), None)
        return None if wired is None else self._counts.labels_of(wired)

    def _of_frtop(self, frame: Frame) -> Iterator[Any]:
        yield _states("hosts", "Hosts by state.", "state", get_args(HostState),
                      Counter(host.state for host in frame.hosts))  # fmt: skip
        ages = [_heartbeat_age_s(view, frame) for view in frame.ranks.values()]
        if heartbeats := [age for age in ages if age]:
            yield _gauge("heartbeat_age_seconds",
                         "Age of the oldest last heartbeat of a running rank.",
                         max(heartbeats))  # fmt: skip
        counts = self._counts
        lost = {(what,): counts.lost[what] for what in LOSSES}
        yield _counts("lost", "Items that frtop itself has missed.", ("what",), lost,
                      counts.counted_from_s)  # fmt: skip
        errors = [host.clock_error_ns for host in frame.hosts if host.clock_error_ns is not None]
        if errors:
            yield _gauge("clock_error_seconds", "The most that the clocks of hosts may be off.",
                         max(errors) / 1e9)  # fmt: skip
        age_s = max(0, time.monotonic_ns() - frame.now_ns) / 1e9 if frame.recorded is None else 0.0
        yield _gauge("frame_age_seconds", "Age of all these figures.", age_s)
        yield _gauge("problem", "1 if something keeps frtop from seeing the job.",
                     int(frame.problem is not None))  # fmt: skip

    def _of_ranks(self, frame: Frame) -> Iterator[Any]:
        shown = len(frame.ranks) <= FEW_RANKS if self._per_rank is None else self._per_rank
        if not shown:
            return
        counts = self._counts
        rows = [((str(rank), label(view.host)), view) for rank, view in sorted(frame.ranks.items())]
        yield _gauges("rank_state", "1 for the state of the rank.", (*_RANK, "state"),
                      (((*labels, view.state), 1) for labels, view in rows))  # fmt: skip
        yield _gauges("rank_step", "Training step.", _RANK,
                      ((labels, counts.steps[view.rank].step)
                       for labels, view in rows if view.rank in counts.steps))  # fmt: skip
        yield _gauges("rank_heartbeat_age_seconds", "Age of the rank's heartbeat.", _RANK,
                      ((labels, _heartbeat_age_s(view, frame)) for labels, view in rows)
                      )  # fmt: skip
        yield _counts("rank_ops", "Ops that the rank issued.", _RANK,
                      {labels: counts.rank_ops[view.rank] for labels, view in rows},
                      counts.job_began_s)  # fmt: skip
        yield _counts("rank_waiting_seconds", "Seconds for which the rank was blocked.", _RANK,
                      {labels: counts.rank_waited_s[view.rank] for labels, view in rows},
                      counts.counted_from_s)  # fmt: skip

        yield _gauges("reported", "The newest value that the job reported.", ("name", "rank"),
                      reported_values(view for _, view in rows))  # fmt: skip

    def _of_hosts(self, frame: Frame) -> Iterator[Any]:
        """Gauges of reporting hosts: an unreachable host has no current figures."""
        hosts = [one for one in frame.hosts if one.gauges is not None and one.state == "reporting"]
        found: Counter[Any] = Counter()
        for host in hosts:
            found.update({fact.kind for fact in facts_of_host(host)})
        yield _states("host_facts", "Hosts with an unusual fact, by its kind.", "kind",
                      get_args(FactKind), found)  # fmt: skip
        if len(hosts) <= FEW_HOSTS:
            yield from _of_gauges(
                [(label(host.name), host.gauges) for host in hosts if host.gauges is not None]
            )


def reported_values(ranks: Iterable[JudgedRank]) -> Rows:
    """Name, rank and newest value, of the first `MOST_NAMES` names of all ranks together."""
    names: set[str] = set()
    for view in ranks:
        for one in view.reported:
            if one.name not in names and len(names) >= MOST_NAMES:
                continue
            names.add(one.name)
            if (latest := latest_value(one)) is not None:
                yield (label(one.name), str(view.rank)), latest.value


def _of_gauges(hosts: list[tuple[str, HostGauges]]) -> Iterator[Any]:
    def read(name: str, divisor: float = 1) -> Rows:
        return (
            ((host,), gauges.host[name] / divisor) for host, gauges in hosts if name in gauges.host
        )

    yield _gauges("host_cpu_ratio", "Share of processor time in use.", ("host",), read("cpu", 1000))
    yield _gauges("host_memory_available_bytes", "Memory available.", ("host",),
                  read("mem_available"))  # fmt: skip
    yield _gauges("host_memory_bytes", "Memory that there is.", ("host",), read("mem_total"))
    yield _gauges("host_pressure_ratio", "Share of the last 10 s in which some task waited.",
                  ("host", "resource"),
                  (((*labels, resource), share)
                   for resource, gauge in _PRESSURES for labels, share in read(gauge, 1000))
                  )  # fmt: skip
    yield _gauges("host_disk_used_ratio", "Fullest file system that ranks use.", ("host",),
                  (((host,), _fullest(gauges)) for host, gauges in hosts))  # fmt: skip
    yield _gauges("host_disk_bytes_per_second",
                  "Throughput of the disks that ranks use, all together.", ("host", "way"),
                  (((host, way), sum(rates)) for host, gauges in hosts
                   for way in ("read", "written")
                   if (rates := [disk.values[way] for disk in gauges.of_kind("disk")
                                 if way in disk.values])))  # fmt: skip
    yield _gauges("host_disk_busy_ratio", "Share of time in which the busiest of them worked.",
                  ("host",),
                  (((host,), max(shares) / 1000) for host, gauges in hosts
                   if (shares := [disk.values["busy"] for disk in gauges.of_kind("disk")
                                  if "busy" in disk.values])))  # fmt: skip
    yield _gauges("host_link_bytes_per_second", "Throughput of a link.", ("host", "link", "way"),
                  (((host, label(link.name), way), link.values[way])
                   for host, gauges in hosts
                   for link in (*gauges.of_kind("infiniband"), *gauges.of_kind("nic"))[:MOST_LINKS]
                   for way in ("received", "sent") if way in link.values))  # fmt: skip
    for suffix, text, gauge, divisor in _GPU:
        yield _gauges(f"gpu_{suffix}", text, ("gpu", "host"),
                      (((label(gpu.name), host), gpu.values[gauge] / divisor)
                       for host, gauges in hosts for gpu in gauges.of_kind("gpu")[:MOST_GPUS]
                       if gauge in gpu.values))  # fmt: skip


def _fullest(gauges: HostGauges) -> float | None:
    used = [
        1 - disk.values.get("free", 0) / size
        for disk in gauges.of_kind("disk")
        if (size := disk.values.get("size"))
    ]
    return max(used, default=None)


def _of_statistics(frame: Frame, found: JobStatistics) -> Iterator[Any]:
    """Families that cover the last minute."""
    yield _gauge("window_seconds", "Time that figures of steps and ops cover.", found.seconds)
    if rows := step_rows(found):
        job, *slowest = rows
        values = {name: getattr(job, field) for name, field in _PARTS.items()}
        yield _gauges("step_part_seconds", "Median time of a part of a step, over the steps of all"
                      " ranks.", ("part",),
                      (((name,), _seconds(value)) for name, value in values.items())
                      )  # fmt: skip
        if job.samples_per_s is not None:
            yield _gauge("samples_per_second", "As reported by the job.", job.samples_per_s)
        yield _gauges("rank_own_seconds", "Median time of a step in which no op was pending, of the"
                      " ranks with the most of it.", ("rank",),
                      (((str(row.rank),), row.own_ns / 1e9) for row in slowest))  # fmt: skip
    labels = labels_of(frame.groups)
    calls: dict[tuple[str, ...], CallRow] = {}
    for row in ordered(found.calls):  # if several lines look alike, the one that took most time
        key = (label(row.kind), label(group_words(row, labels)), str(row.size))
        if len(calls) < MOST_ROWS:
            calls.setdefault(key, row)
    yield _gauges("op_seconds", "Duration of ops from issue to end.", (*_CALL, "quantile"),
                  (((*key, name), _seconds(value)) for key, row in calls.items()
                   for name, value in (
                       ("0.5", row.p50_ns), ("0.95", row.p95_ns), ("1", row.max_ns)))
                  )  # fmt: skip
    yield _gauges("op_skew_seconds", "Median time from the first to the last arrival.", _CALL,
                  ((key, _seconds(row.skew_ns)) for key, row in calls.items()))  # fmt: skip
    yield _gauges("op_bus_bytes_per_second", "Bus bandwidth, as nccl-tests has it.", _CALL,
                  ((key, row.bus_bandwidth) for key, row in calls.items()))  # fmt: skip


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _word(cause: str) -> str:
    """A cause, if it is one of frtop's own words; other causes are free text."""
    return cause if _WORD.fullmatch(cause) else "unknown"


def _heartbeat_age_s(view: JudgedRank, frame: Frame) -> float | None:
    return None if view.state in _OVER else view.heartbeat_age_s(frame.now_ns)


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(f"frtop_{name}", text, value)


def _gauges(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Any:
    """A series for each row with a value."""
    family = GaugeMetricFamily(f"frtop_{name}", text, labels=labels)
    for words, value in rows:
        if value is not None:
            family.add_metric(words, value)
    return family


def _states(name: str, text: str, of: str, values: tuple[str, ...], found: Counter[Any]) -> Any:
    """A series for each value, including those that nothing has: an alert needs the 0."""
    return _gauges(name, text, (of,), (((value,), found[value]) for value in values))


def _stats(name: str, text: str, values: list[Any]) -> Any:
    rows: Rows = ()
    if values:
        mean = sum(values) / len(values)
        rows = ((("min",), min(values)), (("mean",), mean), (("max",), max(values)))
    return _gauges(name, text, ("stat",), rows)


def _counts(
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Mapping[Any, float],
    created: float,
) -> Any:
    family = CounterMetricFamily(f"frtop_{name}", text, labels=labels)
    for words, count in values.items():
        family.add_metric(words, count, created=created)
    return family
