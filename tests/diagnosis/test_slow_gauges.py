"""Gauges as evidence of why a rank is late: what holds for it, and for nobody who is on time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from diagnosis.scenes import SECOND, only
from diagnosis.slow_jobs import Meeting, SteppingJob, data_parallel, over_a_slow_link
from diagnosis.test_slow_verdict import SlowScene
from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.diagnosis.cases.slow.host_evidence import lasting_facts
from frtop_tui.diagnosis.model import Verdict
from screens.gauge_scenes import GPU, HOST, gauges, subject
from screens.scenes import HOST_NOW, S

CGROUP = {"cpu": 500, "cpu_limit": 500, "throttled": 0, "oom_kills": 0}
DISK = {"size": 1 << 40, "free": 1 << 39}
KEYS = {0: 1, 1: 2, 2: 3, 3: 4}
"""The keys of the scene's ranks."""
Readings = Callable[[int], list[SubjectReading]]


class GaugedScene(SlowScene):
    """Rank 2 is late by 40 of 240 ms; each rank has a host of its own, unless all have one."""

    def __init__(
        self, readings: dict[int, Readings], *, hosts: int = 4, history: bool = True
    ) -> None:
        job = data_parallel().run(150, late={2: 40.0})
        super().__init__(job)
        self.hosts = [f"node{n}" for n in range(hosts)]
        self.skews = [0.0] * hosts
        for actor in self.actors.values():
            actor.host = actor.rank % hosts
        self.tables = {n: self._table(readings.get(n, ordinary)) for n in range(hosts)}
        self.with_history = history

    def _table(self, readings: Readings) -> GaugeTable:
        table = GaugeTable()
        for ago in range(120, -1, -5):
            at_ns = round((self.now - ago) * SECOND)
            table.add(at_ns, readings(ago), (), lambda pid: pid)
        return table

    def frame(self) -> Any:
        for n, table in self.tables.items():
            full = table.full()
            assert full is not None
            record = self.state._hosts[self.hosts[n]].gauges
            record.apply(full, full=True)
            if self.with_history:
                record.apply_history(table.history((), 60))
        return super().frame()


def ordinary(_ago_s: int = 0) -> list[SubjectReading]:
    return [
        subject("host", "", HOST),
        subject("nic", "eth0", {"received": 9000, "sent": 5000, "errors": 0, "speed": 10**9}),
        subject("gpu", "0", {**GPU, "others": 0}, pids=tuple(KEYS.values())),
        subject("disk", "/data", DISK, pids=tuple(KEYS.values())),
        subject("cgroup", "/job", CGROUP, pids=tuple(KEYS.values())),
    ]


def with_change(kind: str, since_s: int = 100, **changes: Any) -> Readings:
    def readings(ago_s: int) -> list[SubjectReading]:
        if ago_s > since_s:
            return ordinary()
        return [replace_reading(one, changes) if one.kind == kind else one for one in ordinary()]

    return readings


def replace_reading(one: SubjectReading, changes: dict[str, Any]) -> SubjectReading:
    problem = changes.get("problem", "")
    values = {**one.values, **{k: v for k, v in changes.items() if k != "problem"}}
    return SubjectReading(one.kind, one.name, {} if problem else values, one.detail, problem,
                          one.pids)  # fmt: skip


def verdict_with(readings: dict[int, Readings], **shape: Any) -> Verdict:
    return only(GaugedScene(readings, **shape).judge().frame)


CAUSES = [
    ("cgroup", {"throttled": 800}, "starved", "held back at 0.5 cores in 80 % of its periods"),
    ("host", {"psi_cpu": 500, "cpu": 990}, "starved", "all processors are busy"),
    ("host", {"steal": 300}, "starved", "the hypervisor gives 30 %"),
    ("host", {"psi_memory_full": 200}, "starved", "wait for memory"),
    ("host", {"psi_io_full": 400}, "data", "wait for disks"),
    ("disk", {"problem": "it does not answer"}, "data", "it does not answer"),
    ("gpu", {"throttle": 0x20, "sm_mhz": 1100}, "throttled", "1,100 of 1,980 MHz, "),
    ("gpu", {"others": 1, "others_mem": 1 << 30}, "neighbour", "another process computes on it"),
    ("nic", {"sent": 95 * 10**7}, "network", "sent 949 MB/s of 1.00 GB/s"),
    ("host", {"retransmits": 30}, "network", "3 % of what TCP sends is lost"),
    ("nic", {"errors": 900}, "network", "900 errors in ten minutes"),
]  # fmt: skip


def lasting(changes: dict[str, Any]) -> int:
    """For how many seconds it has been so: errors are counted within the window, of 36 s."""
    return 20 if "errors" in changes else 100


@pytest.mark.parametrize(("kind", "changes", "cause", "says"), CAUSES)
def test_what_holds_for_the_late_rank_alone_is_the_cause(
    kind: str, changes: dict[str, Any], cause: str, says: str
) -> None:
    verdict = verdict_with({2: with_change(kind, lasting(changes), **changes)})
    assert (verdict.culprits, verdict.why.cause) == ((2,), cause)
    assert says in verdict.why.text


@pytest.mark.parametrize(("kind", "changes", "cause", "says"), CAUSES[::4])
def test_what_holds_for_a_peer_too_is_context_and_for_a_peer_alone_nothing(
    kind: str, changes: dict[str, Any], cause: str, says: str
) -> None:
    ill = with_change(kind, lasting(changes), **changes)
    verdict = verdict_with({0: ill, 2: ill})
    assert verdict.why.cause == "unknown", cause
    assert any(says in line and "other ranks may be affected" in line for line in verdict.evidence)
    verdict = verdict_with({0: ill})
    assert (verdict.why.cause, verdict.culprits) == ("unknown", (2,)), cause
    assert not any(says in line for line in verdict.evidence)


@pytest.mark.parametrize("readings", [
    with_change("cgroup", 0, throttled=800),  # in the last reading only
    lambda ago_s: with_change("cgroup", throttled=800 if 70 <= ago_s <= 100 else 0)(ago_s),
    with_change("cgroup", throttled=60),  # out of the ordinary it is not
])  # fmt: skip
def test_a_moment_or_another_time_is_no_cause(readings: Readings) -> None:
    assert verdict_with({2: readings}).why.cause == "unknown"


def test_what_costs_less_than_the_lateness_is_no_cause() -> None:
    """It is late for 17 % of the time, and was held back in 3 % of the periods at most."""
    scene = GaugedScene({2: with_change("host", psi_memory_full=104)})
    assert only(scene.judge().frame).why.cause == "starved"
    job = SteppingJob(4)
    job.meetings = [Meeting((job.everybody,), lambda rank, step: 100.0 + 100.0 * (rank == 2))]
    scene = GaugedScene({2: with_change("host", psi_memory_full=104)})
    scene.statistics = job.run(100).statistics()
    assert only(scene.judge().frame).why.cause == "unknown"


def test_ranks_of_one_host_have_its_figures_in_common() -> None:
    ill = with_change("host", psi_cpu=500, cpu=990)
    verdict = verdict_with({0: ill}, hosts=1)
    assert verdict.why.cause == "unknown"
    assert any("all processors are busy" in line for line in verdict.evidence)


def limited(_ago_s: int) -> list[SubjectReading]:
    """Rank 2 has a cgroup of its own."""
    others = subject("cgroup", "/job", CGROUP, pids=(1, 2, 4))
    own = subject("cgroup", "/limited", CGROUP, throttled=900, pids=(3,))
    return [*ordinary()[:-1], others, own]


def test_the_cgroup_of_one_rank_of_a_host_is_its_own() -> None:
    verdict = verdict_with({0: limited}, hosts=1)
    assert verdict.why.cause == "starved"
    assert "/limited: held back at 0.5 cores in 90 % of its periods" in verdict.why.text


def test_what_nobody_can_compare_is_context() -> None:
    """The hosts of all others have no GPU that is known."""

    def without(_ago_s: int) -> list[SubjectReading]:
        return [one for one in ordinary() if one.kind != "gpu"]

    ill = with_change("gpu", throttle=0x20, sm_mhz=1100)
    verdict = verdict_with({0: without, 1: without, 2: ill, 3: without})
    assert verdict.why.cause == "unknown"
    assert any("1,100 of 1,980 MHz" in line for line in verdict.evidence)


def test_a_main_thread_that_had_its_processor_is_not_starved_by_a_limit() -> None:
    frame = GaugedScene({0: limited}, hosts=1).looks_of({2: 0.2}, {2: 0.01})
    assert only(frame).why.cause == "unknown"


def test_looks_and_the_limit_say_it_together() -> None:
    verdict = only(GaugedScene({0: limited}, hosts=1).looks_of({2: 0.2}, {2: 0.16}))
    assert verdict.why.cause == "starved"
    assert "no processor, 16 % of the time: /limited: held back at 0.5 cores" in verdict.why.text
    assert "cpu.max" in verdict.next


def test_one_reading_is_not_enough() -> None:
    ill = with_change("cgroup", throttled=800)
    assert verdict_with({2: ill}, history=False).why.cause == "unknown"


def test_readings_outside_of_the_window_do_not_count() -> None:
    def readings(ago_s: int) -> Iterable[SubjectReading]:
        yield subject("cgroup", "/a", CGROUP, throttled=800 if ago_s <= 100 else 0, pids=(5,))

    known = gauges(readings)
    [found] = lasting_facts(known, HOST_NOW - 60 * S, HOST_NOW)
    assert (found.fact.kind, found.share, found.lasts) == ("held back", 1.0, True)
    [found] = lasting_facts(known, HOST_NOW - 400 * S, HOST_NOW)
    assert not found.lasts
    assert lasting_facts(known, HOST_NOW - 400 * S, HOST_NOW - 300 * S) == ()


def test_a_slow_link_says_what_its_interface_does() -> None:
    scene = GaugedScene({1: with_change("host", retransmits=30)})
    scene.statistics = over_a_slow_link().statistics()
    verdict = only(scene.judge().frame)
    assert (verdict.culprits, verdict.why.cause) == ((1,), "network")
    assert "3 % of what TCP sends is lost" in verdict.why.text
