"""Gauges of a host as the agent keeps and sends them, and as an operator has them then."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.unprepared_fakes import candidate, job
from frtop_probe import wire
from frtop_probe.agent.gauges import host_watch
from frtop_probe.agent.gauges.gauge_table import (
    MAX_POINTS,
    MOST_MINUTE_SERIES,
    MOST_MINUTES,
    WINDOW_NS,
    GaugeTable,
    rounded,
)
from frtop_probe.agent.gauges.gpu_watch import GpuWatch
from frtop_probe.agent.gauges.host_watch import HostWatch, HostWorker
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, GaugeRecord, HostGauges
from waiting import wait_for_async

S = 1_000_000_000
GONE = 99
"""A pid that is no rank's."""


def key_of(pid: int) -> int | None:
    return None if pid == GONE else pid


def add(table: GaugeTable, second: float, *subjects: SubjectReading, notes: Iterable[str] = ()):  # type: ignore[no-untyped-def]
    table.add(int(second * S), subjects, notes, key_of)


def host(**values: int) -> SubjectReading:
    return SubjectReading("host", "", values)


def disk(name: str, *pids: int, **values: int) -> SubjectReading:
    return SubjectReading("disk", name, values, pids=pids)


class Operator:
    """Takes what a table sends, by way of the wire."""

    def __init__(self) -> None:
        self.record = GaugeRecord()

    def take(self, sample: wire.HostSample | None, *, full: bool = False) -> int:
        """Returns the bytes of it."""
        if sample is None:
            return 0
        update = wire.Update("h", "i", 1, 1, 1, gauges=sample)
        data = wire.encode(update)
        received = wire.decode_update(data).gauges
        assert received is not None
        self.record.apply(received, full=full)
        return len(data)

    @property
    def subjects(self) -> tuple[GaugedSubject, ...]:
        found = self.record.view()
        return found.subjects if found is not None else ()

    @property
    def view(self) -> HostGauges:
        found = self.record.view()
        assert found is not None
        return found


def test_only_what_has_changed_is_sent() -> None:
    table, operator = GaugeTable(), Operator()
    add(table, 0, host(cpu=500, cores=8), disk("/tmp", 1, free=7), notes=["no InfiniBand"])
    first = table.changes()
    assert first is not None
    assert (len(first.subjects), len(first.series), first.values) == (2, 3, (500, 8, 7))
    operator.take(first)
    add(table, 2, host(cpu=501, cores=8), disk("/tmp", 1, free=7), notes=["no InfiniBand"])
    second = table.changes()
    assert second == wire.HostSample(2 * S, ids=(1,), values=(501,))
    operator.take(second)
    assert operator.view.host == {"cpu": 501, "cores": 8}
    assert list(operator.view.notes) == ["no InfiniBand"]
    add(table, 4, host(cpu=501, cores=8), disk("/tmp", 1, 2, free=7))
    operator.take(table.changes())
    assert operator.view.of_kind("disk")[0].keys == (1, 2)
    assert list(operator.view.notes) == []
    assert table.changes() is None


def test_what_is_not_known_now_is_no_value() -> None:
    table, operator = GaugeTable(), Operator()
    add(table, 0, host(cpu=500), disk("/data", 1, free=7))
    operator.take(table.full(), full=True)
    hung = SubjectReading("disk", "/data", {}, problem="it does not answer", pids=(1,))
    table.changes()
    add(table, 2, host(cpu=500), hung)
    operator.take(table.changes())
    (found,) = operator.view.of_kind("disk")
    assert (found.values, found.problem) == ({}, "it does not answer")
    operator.record.apply_history(table.history())
    (found,) = operator.view.of_kind("disk")
    assert operator.view.past(found, "free") == (7, UNKNOWN)


def test_a_series_that_came_late_was_not_known_before() -> None:
    table, operator = GaugeTable(), Operator()
    add(table, 0, host(cpu=1))
    add(table, 2, host(cpu=2), disk("/tmp", 1, free=7))
    operator.take(table.full(), full=True)
    operator.record.apply_history(table.history())
    (found,) = operator.view.of_kind("disk")
    assert operator.view.past(found, "free") == (UNKNOWN, 7)
    assert operator.view.past_times() == (0, 2 * S)


def test_ten_minutes_are_kept_and_no_more() -> None:
    table = GaugeTable()
    for second in range(0, 2000, 2):
        subjects = [host(cpu=second % 1000)]
        add(table, second, *subjects, *([disk("/old", 1, free=1)] if second < 100 else []))
    history = table.history()
    assert 300 <= history.points <= MAX_POINTS + 32
    assert [one.kind for one in history.subjects] == ["host"]
    thin = table.history(("cpu",), 60)
    assert thin.points <= 60
    record = GaugeRecord()
    record.apply_history(thin)
    view = record.view()
    assert view is not None
    times = view.past_times()
    assert times[-1] == 1998 * S
    assert times[-1] - times[0] >= WINDOW_NS - 20 * S


def test_a_host_that_is_read_every_second_has_ten_minutes_as_well() -> None:
    table = GaugeTable()
    for second in range(1500):
        add(table, second, host(cpu=second % 2 * 1000, oom_kills=second))
    assert table.history().points <= MAX_POINTS + 32
    view = viewed(table.history())
    times = view.past_times()
    assert times[-1] - times[0] >= WINDOW_NS - 20 * S
    assert set(view.past(view.subjects[0], "cpu")[:-1]) == {500}  # means of both: none is lost
    assert view.past(view.subjects[0], "oom_kills")[-1] == 1499


def viewed(history: wire.GaugeHistory | None) -> HostGauges:
    assert history is not None
    record = GaugeRecord()
    record.apply_history(history)
    view = record.view()
    assert view is not None
    return view


def test_each_minute_of_a_run_has_a_mean_of_some_gauges() -> None:
    table = GaugeTable()
    for second in range(0, 602, 2):
        disks = [disk("/data", 1, free=7)] if second > 300 else []
        add(table, 1 + second, host(cpu=(second - 2) // 60 * 100 + second % 4, load=3), *disks)
    view = viewed(table.minutes(0))
    first, data = view.subjects
    assert view.past(first, "cpu")[:3] == (1, 101, 201)
    assert not view.past(first, "load")
    assert view.past(data, "free") == (*[UNKNOWN] * 5, *[7] * 5)
    assert viewed(table.minutes(301 * S)).past_times() == view.past_times()[5:]
    assert table.minutes(601 * S) is None


def test_minutes_of_a_run_of_days_are_joined_and_cover_all_of_it() -> None:
    table = GaugeTable()
    hours = 60
    for minute in range(60 * hours + 1):
        add(table, 60 * minute, host(cpu=minute))
    view = viewed(table.minutes(0))
    assert MOST_MINUTES / 2 <= len(view.past_times()) < MOST_MINUTES
    values = view.past(view.subjects[0], "cpu")
    assert values[0] <= 4
    assert values[-1] >= 60 * hours - 8
    assert list(values) == sorted(values)


def test_a_host_with_very_many_gauges_keeps_minutes_of_some() -> None:
    table = GaugeTable()
    for second in (0, 60, 120):
        ranks = (SubjectReading("rank", "", {"cpu": 1, "mem": 2}, pids=(n,)) for n in range(500))
        add(table, second, *ranks)
    found = table.minutes(0)
    assert found is not None
    assert len(found.columns) == MOST_MINUTE_SERIES


def test_a_subject_that_is_gone_is_forgotten_after_ten_minutes() -> None:
    table, operator = GaugeTable(), Operator()
    add(table, 0, host(cpu=1), disk("/old", 1, free=1))
    operator.take(table.changes())
    add(table, 700, host(cpu=1))
    operator.take(table.changes())
    assert [one.kind for one in operator.view.subjects] == ["host"]


def test_counts_are_exact_and_the_last_holds() -> None:
    table = GaugeTable()
    for second, drops in enumerate((5, 5, 12_345)):
        link = {"drops": drops, "throttle": 1 << second, "received": 12_345}
        add(table, second, SubjectReading("nic", "eth0", link))
    record = GaugeRecord()
    record.apply_history(table.history((), 1))
    view = record.view()
    assert view is not None
    (nic,) = view.of_kind("nic")
    assert view.past(nic, "drops") == (12_345,)
    assert view.past(nic, "throttle") == (0b111,)  # one of the readings had each
    assert view.past(nic, "received") == (rounded(12_345),)


@given(st.integers(0, 2**63 - 1))
def test_rounding_loses_little(value: int) -> None:
    assert value - value // 500 <= rounded(value) <= value


VALUES = st.dictionaries(st.sampled_from(["cpu", "free", "errors"]), st.integers(0, 2**62))
READINGS = st.lists(
    st.builds(
        SubjectReading,
        st.sampled_from(["host", "disk", "rank"]),
        st.sampled_from(["", "a", "b"]),
        VALUES,
        pids=st.lists(st.sampled_from([1, 2, GONE]), max_size=2).map(tuple),
    ),
    max_size=4,
)


@given(st.lists(READINGS, max_size=8), st.integers(0, 7))
def test_an_operator_has_what_the_agent_has_whenever_it_comes(
    rounds: list[list[SubjectReading]], joins: int
) -> None:
    table, operator, there = GaugeTable(), Operator(), False
    for number, subjects in enumerate(rounds):
        add(table, 200 * number, *subjects)
        changes = table.changes()
        if there:
            operator.take(changes)
        elif number == joins:
            operator.take(table.full(), full=True)
            there = True
    if there:
        late = Operator()
        late.take(table.full(), full=True)
        assert operator.subjects == late.subjects


def test_messages_without_sense_are_left_out() -> None:
    record = GaugeRecord()
    subject, series = wire.GaugeSubject(1, "host", ""), wire.GaugeSeries(1, 1, "cpu")
    record.apply(wire.HostSample(1, (subject,), (series,), (1, 7, 1), (5, 6, -3)), full=False)
    record.apply_history(wire.GaugeHistory(2**40))
    column = wire.HistoryColumn(5, 8, b"odd")
    record.apply_history(
        wire.GaugeHistory(3, column, (subject,), (wire.GaugeColumn(series, column),))
    )
    view = record.view()
    assert view is not None
    assert view.host == {}
    assert view.past(view.subjects[0], "cpu") == view.past_times() == ()


@contextmanager
def tracked(folder: Path) -> Iterator[RankTracker]:
    """A tracker with one rank, a process that sleeps."""
    tracker = RankTracker([folder])
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        found = candidate(process.pid)
        assert tracker.add_unprepared(found, job(found)) is not None
        yield tracker
    finally:
        tracker.clear()
        process.kill()
        process.wait()


async def test_a_host_with_a_rank_is_read_and_one_without_has_no_child(tmp_path: Path) -> None:
    with tracked(tmp_path) as tracker:
        reader = HostWorker()
        gpus = GpuWatch(tracker, lambda: -math.inf)
        watch = HostWatch(tracker, lambda: math.inf, gpus, reader, period_s=0.1)
        task = asyncio.create_task(watch.run())
        try:
            await wait_for_async(lambda: watch.table.history().points > 2,
                                 "readings")  # fmt: skip
            record = GaugeRecord()
            full = watch.table.full()
            assert full is not None
            record.apply(full, full=True)
            view = record.view()
            assert view is not None
            (key,) = tracker.ranks
            assert view.host["cores"] == os.cpu_count()
            assert [one.keys for one in view.of_kind("rank")] == [(key,)]
            assert any(key in one.keys or not one.keys for one in view.of_kind("disk"))
            assert abs(view.at_ns - time.monotonic_ns()) < 60 * S
            for rank in tracker.ranks.values():
                rank.lives = False
            await wait_for_async(lambda: not reader.runs, "no child")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('{\"ready\": true}', flush=True); input(); input()", host_watch.HANGS),
        ("print('{\"ready\": true}', flush=True); input(); print('{}')", host_watch.FAILS),
        (("print('{\"ready\": true}', flush=True); input(); "
         "print('{\"at_ns\": 1, \"notes\": [], \"subjects\": [{\"values\": {\"cpu\": \"x\"}}]}')"),
         host_watch.FAILS),
        ("raise SystemExit", host_watch.FAILS),
    ],
)  # fmt: skip
async def test_a_child_that_fails_is_named_and_not_asked_again_at_once(
    tmp_path: Path, program: str, said: str
) -> None:
    begun = tmp_path / "begun"
    program = f"open({str(begun)!r}, 'a').write('x'); {program}"
    reader = HostWorker(deadline_s=0.1, command=[sys.executable, "-c", program])
    try:
        for _ in range(2):
            assert (await reader.read([1])).notes == (said,)
        assert begun.read_text() == "x"
    finally:
        await reader.close()
