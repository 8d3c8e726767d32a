"""The metrics of a frame and its counts, as families of `prometheus_client`."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from frtop_tui.connect.op_follower import FollowedOps
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.metrics.host_families import HostMetrics
from frtop_tui.features.metrics.statistics_families import statistics_families
from frtop_tui.job.job_activity import known_jobs
from frtop_tui.job.model import Health, HostState, RankState
from frtop_tui.job.naming import job_call
from frtop_tui.text.job_counts import GroupLabels, JobCounts, label

FEW_RANKS: Final = 64
"""Up to as many ranks have series of their own, unless somebody chooses."""
LOSSES: Final = ("updates", "ops", "pending", "sizes", "hook_errors")
_WORD: Final = re.compile(r"[a-z_]{1,40}")
_GROUP: Final = ("group", "ranks")
_RANK: Final = ("rank", "host")
_VERDICT: Final = ("kind", "cause", "confidence", "progress")
_OVER: Final = ("dead", "done")


class JobCollector:
    """What `prometheus_client` asks at each scrape; `update` comes from the main thread."""

    def __init__(self, per_rank: bool | None = None) -> None:
        """Args: per_rank: whether ranks have series; None: up to `FEW_RANKS` of them."""
        self._per_rank = per_rank
        self._lock = threading.Lock()
        self._counts = JobCounts()
        self._frame: Frame | None = None
        self._version = metadata.version("frtop")
        self._hosts = HostMetrics()

    def update(self, frame: Frame, followed: list[FollowedOps], unfit: int) -> None:
        """Takes in the newest frame, ops that were followed, and how many of them did not fit."""
        with self._lock:
            self._frame = frame
            if not self._counts.are_of(frame):
                self._counts = JobCounts.begin(frame)
            self._counts.update(frame)
            for one in followed:
                self._counts.add_ops(frame.ranks.get(one.view.rank, one.view), one.issued, one.lost)
            self._counts.lost["ops"] += unfit

    def collect(self) -> Iterator[Any]:
        """All families, as of the newest frame."""
        with self._lock:
            families = [InfoMetricFamily("frtop_build", "frtop", {"version": self._version})]
            if self._frame is not None:
                families += [*self._of_job(self._frame), *self._of_groups(self._frame)]
                families += [*self._of_frtop(self._frame), *self._of_ranks(self._frame)]
                families += self._hosts.families(self._frame)
                families += statistics_families(self._frame)
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
        yield _states("frtop_ranks", "Ranks by state.", "state", get_args(RankState),
                      Counter(view.state for view in frame.ranks.values()))  # fmt: skip
        yield GaugeMetricFamily("frtop_ranks_expected", "Ranks that the job has.",
                                frame.coverage.expected)  # fmt: skip
        yield GaugeMetricFamily(
            "frtop_ranks_reporting", "Ranks that are reporting.", frame.coverage.reporting
        )
        yield _states("frtop_health", "1 for the health of the job.", "health", get_args(Health),
                      Counter([frame.health]))  # fmt: skip
        if frame.since_ns:
            yield GaugeMetricFamily("frtop_health_age_seconds", "For how long it has been so.",
                                    max(0.0, (frame.now_ns - frame.since_ns) / 1e9))  # fmt: skip
        verdicts = GaugeMetricFamily("frtop_verdicts", "Verdicts that stand now.",
                                     labels=_VERDICT)  # fmt: skip
        found = Counter(
            (one.kind, _word(one.why.cause), one.confidence, one.progress) for one in frame.verdicts
        )
        for words, count in found.items():
            verdicts.add_metric(words, count)
        yield verdicts
        culprits = {rank for verdict in frame.verdicts for rank in verdict.culprits}
        yield GaugeMetricFamily("frtop_culprits", "Ranks that verdicts blame.", len(culprits))
        left = [one.left_s for one in frame.verdicts if one.left_s is not None]
        if left:
            yield GaugeMetricFamily("frtop_timeout_left_seconds",
                                    "Until the first op that is waited in runs into its timeout.",
                                    min(left))  # fmt: skip
        steps = [one.step for one in self._counts.steps.values()]
        times = [one.seconds for one in self._counts.steps.values() if one.seconds is not None]
        yield _stats("frtop_step", "Training step of the ranks.", steps)
        yield _stats("frtop_step_seconds", "Duration of the last step of the ranks.", times)

    def _of_groups(self, frame: Frame) -> Iterator[Any]:
        counts = self._counts
        began, since = counts.job_began_s, counts.counted_from_s
        yield _group_counter("frtop_ops", "Ops that ranks issued, all ranks together.",
                             counts.ops, began)  # fmt: skip
        yield _group_counter("frtop_bytes", "Bytes of inputs of ops of the ranks of --bytes-of.",
                             counts.bytes, since)  # fmt: skip
        yield CounterMetricFamily("frtop_ops_without_size", "Ops of these ranks of unknown size.",
                                  counts.unsized, created=since)  # fmt: skip
        yield _group_counter("frtop_waiting_seconds",
                             "Seconds that ranks were blocked in ops, all ranks together.",
                             counts.waited_s, since)  # fmt: skip
        furthest: dict[GroupLabels, int] = {}
        late: Counter[GroupLabels] = Counter()
        waiting: Counter[GroupLabels] = Counter()
        for group in frame.groups:
            first = next((r for r in group.members if r in frame.ranks), None)
            known = frame.ranks[first].groups.values() if first is not None else ()
            wired = next((g for g in known if (g.name, g.ranks, g.epoch) == (
                group.key.name, group.key.ranks, group.key.epoch)), None)  # fmt: skip
            if wired is None:
                continue
            labels = counts.labels_of(wired)
            furthest[labels] = max(furthest.get(labels, 0), group.number)
            late[labels] += len(group.late)
            waiting[labels] += len(group.waiting)
        for name, text, values in (
            ("frtop_collective_number", "The furthest collective that anybody issued.", furthest),
            ("frtop_late_ranks", "Ranks that have not issued it.", late),
            ("frtop_waiting_ranks", "Ranks that are blocked in an op of the group.", waiting),
        ):
            family = GaugeMetricFamily(name, text, labels=_GROUP)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
        waits = [view.age_s(view.blocked_on.issued_ns, frame.now_ns)
                 for view in frame.ranks.values()
                 if view.state == "blocked" and view.blocked_on and view.blocked_on.issued_ns
                 ]  # fmt: skip
        yield GaugeMetricFamily("frtop_longest_wait_seconds",
                                "For how long the op is pending that a rank is blocked in.",
                                max(waits, default=0.0))  # fmt: skip

    def _of_frtop(self, frame: Frame) -> Iterator[Any]:
        yield _states("frtop_hosts", "Hosts by state.", "state", get_args(HostState),
                      Counter(host.state for host in frame.hosts))  # fmt: skip
        heartbeats = [
            age for view in frame.ranks.values() if (age := _heartbeat_age_s(view, frame))
        ]
        if heartbeats:
            yield GaugeMetricFamily("frtop_heartbeat_age_seconds",
                                    "Age of the oldest last heartbeat of a rank that lives.",
                                    max(heartbeats))  # fmt: skip
        lost = CounterMetricFamily("frtop_lost", "What frtop itself has missed.", labels=("what",))
        for what in LOSSES:
            lost.add_metric([what], self._counts.lost[what], created=self._counts.counted_from_s)
        yield lost
        errors = [host.clock_error_ns for host in frame.hosts if host.clock_error_ns is not None]
        if errors:
            yield GaugeMetricFamily("frtop_clock_error_seconds",
                                    "How far clocks of hosts may be off, at most.",
                                    max(errors) / 1e9)  # fmt: skip
        age_s = max(0, time.monotonic_ns() - frame.now_ns) / 1e9 if frame.recorded is None else 0.0
        yield GaugeMetricFamily("frtop_frame_age_seconds", "How old all of this is.", age_s)
        problem = frame.problem is not None
        yield GaugeMetricFamily("frtop_problem", "1: something keeps frtop from seeing the job.",
                                int(problem))  # fmt: skip

    def _of_ranks(self, frame: Frame) -> Iterator[Any]:
        shown = len(frame.ranks) <= FEW_RANKS if self._per_rank is None else self._per_rank
        if not shown:
            return
        state = GaugeMetricFamily("frtop_rank_state", "1 for the state of the rank.",
                                  labels=(*_RANK, "state"))  # fmt: skip
        step = GaugeMetricFamily("frtop_rank_step", "Training step.", labels=_RANK)
        heartbeat = GaugeMetricFamily(
            "frtop_rank_heartbeat_age_seconds", "Age of its heartbeat.", labels=_RANK
        )
        ops = CounterMetricFamily("frtop_rank_ops", "Ops that it issued.", labels=_RANK)
        waited = CounterMetricFamily("frtop_rank_waiting_seconds",
                                     "Seconds that it was blocked.", labels=_RANK)  # fmt: skip
        counts = self._counts
        for rank, view in sorted(frame.ranks.items()):
            labels = (str(rank), label(view.host))
            state.add_metric((*labels, view.state), 1)
            if rank in counts.steps:
                step.add_metric(labels, counts.steps[rank].step)
            if age := _heartbeat_age_s(view, frame):
                heartbeat.add_metric(labels, age)
            ops.add_metric(labels, counts.rank_ops[rank], created=counts.job_began_s)
            waited.add_metric(labels, counts.rank_waited_s[rank], created=counts.counted_from_s)
        yield from (state, step, heartbeat, ops, waited)


def _word(cause: str) -> str:
    """A cause is one of our own words; anything else would be free text."""
    return cause if _WORD.fullmatch(cause) else "unknown"


def _heartbeat_age_s(view: JudgedRank, frame: Frame) -> float | None:
    """Age of the last heartbeat; None where there is none, or no more."""
    return None if view.state in _OVER else view.heartbeat_age_s(frame.now_ns)


def _states(name: str, text: str, of: str, values: tuple[str, ...], found: Counter[Any]) -> Any:
    """A series for each value, also for those that nobody has: an alert needs its 0."""
    family = GaugeMetricFamily(name, text, labels=(of,))
    for value in values:
        family.add_metric((value,), found[value])
    return family


def _stats(name: str, text: str, values: list[Any]) -> Any:
    family = GaugeMetricFamily(name, text, labels=("stat",))
    if values:
        family.add_metric(("min",), min(values))
        family.add_metric(("mean",), sum(values) / len(values))
        family.add_metric(("max",), max(values))
    return family


def _group_counter(
    name: str, text: str, counts: Mapping[GroupLabels, float], created: float
) -> Any:
    family = CounterMetricFamily(name, text, labels=_GROUP)
    for labels, count in counts.items():
        family.add_metric(labels, count, created=created)
    return family
