"""What is out of the ordinary about a host: a table for each fact, the ordinary beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.diagnosis.evidence.host_facts import (
    CAUSES,
    HostFact,
    facts_for,
    facts_of,
    facts_of_host,
)
from frtop_tui.diagnosis.words.fact_words import fact_text
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView
from screens.gauge_scenes import DISK, GIB, GPU, HOST, PORT, Readings, braked, gauges, subject
from screens.scenes import HOST_NOW, S

BRAKE, CAP, HEAT = 0x80, 0x4, 0x20


def of(kind: str, base: dict[str, int], since_s: int = 300, **changes: Any) -> HostGauges:
    """One subject that has been so for some seconds, and ordinary before."""

    def readings(ago_s: int) -> Iterable[SubjectReading]:
        yield subject(kind, "x", base, **(changes if ago_s <= since_s else {}), pids=(5,))

    return gauges(readings)


def kinds(facts: tuple[HostFact, ...]) -> list[str]:
    return [fact.kind for fact in facts]


BASES = {
    "host": HOST,
    "cgroup": {"cpu": 900, "cpu_limit": 4000, "throttled": 0, "oom_kills": 0},
    "disk": DISK,
    "infiniband": PORT,
    "gpu": {**GPU, "others": 0},
}


@pytest.mark.parametrize(("kind", "changes", "found"), [
    *((kind, {}, []) for kind in BASES),
    ("host", {"psi_cpu": 400, "cpu": 990}, ["cpu pressure"]),
    ("host", {"psi_cpu": 400, "cpu": 500}, []),  # a processor is free: another reason
    ("host", {"steal": 250}, ["cpu stolen"]),
    ("host", {"psi_memory_full": 150}, ["memory pressure"]),
    ("host", {"psi_memory": 900}, []),  # some task waits: the others go on
    ("host", {"psi_io_full": 300}, ["io pressure"]),
    ("host", {"oom_kills": 2}, ["out of memory"]),
    ("host", {"retransmits": 9}, []),
    ("host", {"retransmits": 15}, ["retransmits"]),
    ("cgroup", {"throttled": 99}, []),
    ("cgroup", {"throttled": 120}, ["held back"]),
    ("cgroup", {"oom_kills": 1}, ["out of memory"]),
    ("cgroup", {"throttled": 900, "oom_kills": 1}, ["held back", "out of memory"]),
    ("disk", {"free": 9 * GIB}, ["disk full"]),
    ("disk", {"free": 50 * GIB}, []),  # 4 %, and many checkpoints
    ("disk", {"size": 20 * GIB, "free": 9 * GIB}, []),  # a small one, half empty
    ("disk", {"size": 64 << 20, "free": 1 << 20}, ["disk full"]),  # /dev/shm of a container
    ("disk", {"inodes_free": 3}, ["disk full"]),
    ("disk", {"problem": "it does not answer"}, ["disk silent"]),
    ("infiniband", {"received": 46 * 10**9}, ["nic saturated"]),
    ("infiniband", {"errors": 12}, ["link errors"]),
    ("infiniband", {"link_downed": 1, "errors": 3}, ["link errors", "link errors"]),
    ("infiniband", {"state": 1, "received": 0}, ["link down"]),
    ("gpu", {"throttle": BRAKE, "sm_mhz": 1110}, ["gpu slow"]),
    ("gpu", {"throttle": HEAT}, ["gpu slow"]),
    ("gpu", {"throttle": CAP, "sm_mhz": 1500}, []),  # at its power limit, as others are
    ("gpu", {"throttle": CAP, "sm_mhz": 900}, ["gpu slow"]),
    ("gpu", {"throttle": CAP, "sm_mhz": 345, "use": 0}, []),
    ("gpu", {"throttle": 0x1, "sm_mhz": 345, "use": 0}, []),  # idle
    ("gpu", {"others": 2, "others_mem": 3 * GIB}, ["gpu shared"]),
    ("gpu", {"xids": 1, "xid": 79}, ["gpu error"]),
    ("gpu", {"problem": "GPU is lost"}, ["gpu error"]),
])  # fmt: skip
def test_what_is_out_of_the_ordinary(kind: str, changes: dict[str, Any], found: list[str]) -> None:
    facts = facts_of(of(kind, BASES[kind], **changes))
    assert kinds(facts) == found
    if kind in ("cgroup", "gpu"):
        assert all(fact.keys == (5,) for fact in facts)


def test_a_port_without_a_cable_and_old_errors_are_ordinary() -> None:
    def readings(_ago_s: int) -> Iterable[SubjectReading]:
        yield subject("infiniband", "x", PORT, state=1, errors=700)

    assert facts_of(gauges(readings)) == ()


def clock(host_ns: int) -> str:
    return f"-{(HOST_NOW - host_ns) // S}s"


def texts(readings: Readings) -> list[str]:
    return [fact_text(fact, clock) for fact in facts_of(gauges(readings))]


def test_a_fact_says_since_when() -> None:
    assert texts(braked) == ["gpu4: 1,110 of 1,980 MHz since -300s, power brake"]


def test_what_was_so_before_the_history_begins_may_be_older() -> None:
    def readings(ago_s: int) -> Iterable[SubjectReading]:
        yield subject("host", "", HOST, psi_io_full=450)
        yield subject("gpu", "0", GPU, xids=2 if ago_s < 100 else 0, xid=79)

    assert texts(readings) == [
        "gpu0: 2 errors, the last an XID 79, last at -90s",
        "45 % of the time all tasks wait for disks since -590s or longer",
    ]


def test_without_a_history_a_fact_has_no_time() -> None:
    (fact,) = facts_of(gauges(braked, history=False))
    assert (fact.kind, fact.since_ns, fact.at_least, fact.cause) == ("gpu slow", 0, False,
                                                                     "throttled")  # fmt: skip
    assert fact_text(fact, clock) == "gpu4: 1,110 of 1,980 MHz, power brake"


def test_a_gap_in_the_history_ends_what_is_known() -> None:
    def readings(ago_s: int) -> Iterable[SubjectReading]:
        if not 200 <= ago_s <= 300:
            yield subject("gpu", "0", GPU, throttle=BRAKE)

    (fact,) = facts_of(gauges(readings))
    assert (fact.since_ns, fact.at_least) == (HOST_NOW - 190 * S, False)


def test_facts_for_a_rank_are_its_own_and_the_hosts() -> None:
    host = HostView("node1", "reporting", gauges=gauges(braked))
    assert kinds(facts_for(host, (5,))) == ["gpu slow"]
    assert facts_for(host, (4,)) == ()
    assert facts_for(HostView("node1", "silent", gauges=host.gauges), (5,)) == ()


def test_facts_are_computed_again_for_new_gauges_only() -> None:
    host = HostView("node1", "reporting", gauges=gauges(braked))
    assert facts_of_host(host)
    assert facts_of_host(host) is facts_of_host(host)
    assert facts_of_host(HostView("node1", "reporting", gauges=gauges())) == ()


def test_the_causes_are_words_of_slow() -> None:
    assert set(CAUSES.values()) <= {"data", "compute", "network", "throttled", "starved",
                                    "neighbour"}  # fmt: skip


def _steady(ago_s: int) -> int:
    return 8 * GIB - ago_s * (GIB >> 6)


@pytest.mark.parametrize(
    ("memory", "changes", "found"),
    [
        (_steady, {}, 1),  # 960 MiB a minute
        (lambda ago_s: _steady(ago_s) + (ago_s // 10 % 3) * (GIB >> 5), {}, 1),  # and some freed
        (lambda ago_s: _steady(min(ago_s, 100)), {}, 0),  # it began 100 s ago
        (lambda ago_s: _steady(max(ago_s, 150)), {}, 0),  # a cache that is full by now
        (lambda ago_s: 8 * GIB - (ago_s % 200) * (GIB >> 6), {}, 0),  # freed again and again
        (lambda _: 8 * GIB, {}, 0),
        (_steady, {"mem_available": 3000 * GIB}, 0),  # for two days
    ],
)
def test_memory_that_only_grows(
    memory: Callable[[int], int], changes: dict[str, int], found: int
) -> None:
    def readings(ago_s: int) -> Iterable[SubjectReading]:
        yield subject("host", "", HOST, **changes)
        yield subject("rank", "5", {"cpu": 1000, "mem": memory(ago_s)}, pids=(5,))
        yield subject("rank", "6", {"cpu": 1000, "mem": GIB}, pids=(6,))

    facts = facts_of(gauges(readings))
    assert [fact.keys for fact in facts] == [(5,)] * found
    for fact in facts:
        assert fact.value == pytest.approx(60 * (GIB >> 6), rel=0.1)
        assert fact.limit == pytest.approx(HOST["mem_available"] / (GIB >> 6), rel=0.1)
        words = fact_text(fact, lambda _: "13:52", {5: 3, 6: 4})
        assert words.startswith("rank 3: its memory grows by 1.0")
        assert fact_text(fact, lambda _: "").startswith("its memory grows by 1.0")
        assert "GB a minute since 13:52 or longer; what is left lasts 7h" in words
