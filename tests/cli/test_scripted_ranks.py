"""`frtop demo --ranks`: what scripted ranks tell is consistent, and shows their fault."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.history_columns import unpack_column
from frtop_probe.statistics.samples import is_chosen
from frtop_tui.connect.live import LiveSource
from frtop_tui.demo.faults import SLOW
from frtop_tui.demo.scripted.counts import Counts
from frtop_tui.demo.scripted.culprit import SUPPORTED
from frtop_tui.demo.scripted.job import ScriptedJob
from frtop_tui.demo.scripted.ranks import HostRanks
from frtop_tui.demo.scripted.script import DELAY_NS, DP, JITTER_NS, MS, SECOND, Script, ScriptedMesh
from frtop_tui.demo.scripted.service import rank_answer
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import UsageError
from frtop_tui.files.histories import ops_of
from frtop_tui.job.mesh import Mesh, find_mesh
from frtop_tui.job.state import JobState
from waiting import wait_for

BEGIN = 1_000 * SECOND
OFTEN = ("none", "slow", "mismatch", "stall", "stop", "exception")
"""One of each kind."""


class Watched:
    """The agents of a scripted job and an operator, without sockets, on one clock."""

    def __init__(self, fault: str, ranks: int = 16) -> None:
        self.script = Script(ScriptedMesh.of(ranks), fault, BEGIN)
        self.hosts = [HostRanks(self.script, n) for n in range(self.script.shape.hosts)]
        self.state, self.engine = JobState(), Engine()
        self.now = BEGIN
        self.number = 0

    def tick(self, seconds: float = 0.5) -> Frame:
        self.now += int(seconds * SECOND)
        self.number += 1
        for host in self.hosts:
            full = self.number == 1
            ranks = host.state(self.now) if full else host.changes(self.now)
            at = self.now + host.skew_ns
            update = wire.Update(host.name, host.name, self.number, at, 0, ranks, full=full)
            sent = wire.decode_update(wire.encode(update))
            assert self.state.apply(host.name, sent, self.now)
        judgement = self.engine.judge(self.state.frame(self.now, 0))
        for look in judgement.look_requests:
            host = next(one for one in self.hosts if one.name == look.host)
            request = wire.SnapshotRequest(1, (look.key,), look.stacks, 32)
            answer = wire.decode_response(wire.encode(rank_answer(host, request, self.now)))
            assert isinstance(answer, wire.SnapshotResponse)
            self.state.apply_snapshots(host.name, answer)
        return judgement.frame

    def watch(self, seconds: float) -> list[Frame]:
        return [self.tick() for _ in range(int(seconds / 0.5))]


@pytest.mark.parametrize("fault", [
    pytest.param(fault, marks=() if fault in OFTEN else pytest.mark.long) for fault in SUPPORTED
])  # fmt: skip
def test_the_fault_of_one_rank_is_found_and_nothing_before_it(fault: str) -> None:
    job = Watched(fault)
    before = job.watch((job.script.fault_ns - BEGIN) / SECOND - 1)
    assert {frame.health for frame in before[1:]} == {"healthy"}
    frame = job.watch(25)[-1]
    if fault in ("none", *SLOW):
        assert frame.health == "healthy"
        assert not any(one.kind != "slow" for one in frame.verdicts)
        return
    (verdict,) = frame.verdicts
    assert verdict.confidence == "confirmed"
    if fault == "mismatch":
        assert verdict.kind == "mismatch"
        assert (job.script.culprit,) in verdict.parties or verdict.culprits
    else:
        assert verdict.culprits == (job.script.culprit,)


def test_the_mesh_of_its_groups_is_found() -> None:
    job = Watched("none", 256)
    frame = job.tick()
    mesh = find_mesh(frame.groups)
    assert isinstance(mesh, Mesh)
    assert mesh.shape == "pp 4 x dp 8 x tp 8"


def test_the_straggler_comes_last_by_its_delay_in_the_samples() -> None:
    job = Watched("slow", 32)
    script = job.script
    now = script.fault_ns + 40 * SECOND
    issued: dict[int, dict[int, int]] = {}
    for host in job.hosts:
        since = now - 20 * SECOND + host.skew_ns
        request = wire.StatisticsRequest(
            1, tuple(rank + 1 for rank in host.ranks), since, 0, samples=64, steps=8
        )
        answer = wire.decode_response(wire.encode(Counts(host).answer(request, now)))
        assert isinstance(answer, wire.StatisticsResponse)
        for one in answer.ranks:
            (tp,) = [samples for samples in one.samples if samples.group == 4]
            numbers = unpack_column(tp.number, tp.count)
            times = unpack_column(tp.issued_ns, tp.count)
            assert all(is_chosen(number, tp.stride) for number in numbers)
            for number, at in zip(numbers, times, strict=True):
                issued.setdefault(number, {})[one.key - 1] = at - host.skew_ns
            assert one.steps is not None
            assert one.steps.count == 8
            assert one.steps.took_ns.first == SECOND + DELAY_NS
    tp_group = range(script.culprit // 8 * 8, script.culprit // 8 * 8 + 8)
    skews = []
    for arrivals in issued.values():
        mates = {rank: arrivals[rank] for rank in tp_group}
        if max(mates, key=mates.__getitem__) == script.culprit:
            skews.append(max(mates.values()) - min(mates.values()))
    before = script.numbers[0][0]  # it computes longer before each op of its tp group
    assert len(skews) * 2 > len(issued)
    assert all(abs(skew - DELAY_NS // before) < 2 * JITTER_NS for skew in skews)


def marks_of(job: Watched, rank: int, now: int) -> list[wire.Mark]:
    """Marks out of a rank's history, by the operator's clock."""
    (host,) = (one for one in job.hosts if rank in one.ranks)
    answer = wire.decode_response(
        wire.encode(rank_answer(host, wire.HistoryRequest(1, rank + 1, limit=400), now))
    )
    assert isinstance(answer, wire.HistoryResponse)
    return [
        replace(
            mark,
            begin_ns=mark.begin_ns - host.skew_ns,
            end_ns=mark.end_ns - host.skew_ns if mark.end_ns else 0,
        )
        for mark in answer.history.marks
    ]


@pytest.mark.parametrize("fault", ["none", *SLOW])
def test_a_step_has_phases_in_order_and_they_last_as_its_statistics_say(fault: str) -> None:
    job = Watched(fault, 32)
    script = job.script
    now = script.fault_ns + 20 * SECOND + 500 * MS
    for rank in (script.culprit, script.culprit - 1, 0):
        marks = marks_of(job, rank, now)
        host = job.hosts[rank // script.shape.per_host]
        request = wire.StatisticsRequest(
            1, (rank + 1,), now - 9 * SECOND + host.skew_ns, 0, steps=4
        )
        (told,) = Counts(host).answer(request, now).ranks
        assert told.steps is not None
        columns = zip(
            *(unpack_column(column, told.steps.count) for column in (
                told.steps.number, told.steps.data_ns, told.steps.forward_ns,
                told.steps.backward_ns, told.steps.optimizer_ns, told.steps.took_ns,
            )), strict=True,
        )  # fmt: skip
        for number, *lasted, took in columns:
            (step,) = (one for one in marks if one.kind == "step" and one.number == number)
            inner = [one for one in marks if step.begin_ns <= one.begin_ns < step.end_ns][:4]
            assert [one.kind for one in inner] == ["fetch", "forward", "backward", "optimizer"]
            assert [one.end_ns - one.begin_ns for one in inner] == lasted
            assert all(
                a.end_ns <= b.begin_ns for a, b in pairwise((*inner, wire.Mark("", step.end_ns, 0)))
            )
            assert step.end_ns - step.begin_ns == took >= sum(lasted)


@pytest.mark.parametrize(("fault", "phase"), [("stall", "fetch"), ("sleep", "forward")])
def test_a_rank_that_hangs_is_still_in_its_phase(fault: str, phase: str) -> None:
    job = Watched(fault, 32)
    now, culprit = job.script.fault_ns + 30 * SECOND, job.script.culprit
    found = [marks_of(job, rank, now)[-1] for rank in (culprit, culprit - 1, 0)]
    assert [one.kind for one in found] == [phase, "forward", "backward"]
    # Rank 0 waits in an op after its backward.
    assert [one.end_ns > 0 for one in found] == [False, False, True]
    assert all(one.begin_ns >= job.script.fault_ns for one in found)


def test_counted_ops_are_those_of_the_history() -> None:
    job = Watched("none", 16)
    host, now = job.hosts[1], BEGIN + 30 * SECOND + 500 * MS
    first = host.ranks[0]
    window = (BEGIN + 10 * SECOND + host.skew_ns, BEGIN + 30 * SECOND + host.skew_ns)
    answer = Counts(host).answer(wire.StatisticsRequest(1, (first + 1,), *window), now)
    rows = answer.ranks[0].rows
    assert rows is not None
    places = zip(rows.group, rows.kind, rows.site, strict=True)
    counted = Counter(dict(zip(places, rows.count, strict=True)))
    history = rank_answer(host, wire.HistoryRequest(2, first + 1), now)
    assert isinstance(history, wire.HistoryResponse)
    ops = [op for op in ops_of(history.history) if window[0] <= op.issued_ns < window[1]]
    lines = [(site.file, site.line) for site in answer.sites]
    kinds = Counter(
        (op.group, op.signature.kind, lines.index((op.site.file, op.site.line)) + 1)
        for op in ops
        if op.signature is not None and op.site is not None
    )
    assert counted == kinds


def test_ops_of_one_group_are_found_in_a_history_by_number() -> None:
    job = Watched("none", 16)
    host = job.hosts[0]
    request = wire.HistoryRequest(1, 1, group=DP, first=801, last=804)
    answer = rank_answer(host, request, BEGIN + 5 * SECOND)
    assert isinstance(answer, wire.HistoryResponse)
    assert [op.number for op in ops_of(answer.history)] == [801, 802, 803, 804]


@pytest.mark.parametrize("ranks", [8, 20, 16_392])
def test_a_number_of_ranks_without_a_mesh_is_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match="cannot be scripted"):
        ScriptedMesh.of(ranks)


def test_real_sockets_carry_it_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "unused"))
    with ScriptedJob(16, "none") as job:
        source = LiveSource(agents=job.start())
        pids = [process.pid for process in job.processes]
        try:
            frame = wait_for(
                lambda: f if len((f := source.frame()).ranks) == 16 and f.groups else None,
                "all ranks are reporting",
            )
            assert [host.name for host in frame.hosts] == ["node0", "node1"]
            source.watch([3])
            wait_for(lambda: source.frame().ranks[3].snapshot, "a snapshot")
            wait_for(
                lambda: all(host.clock_error_ns is not None for host in source.frame().hosts),
                "clocks are compared",
            )
        finally:
            source.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "cause"), [("slow", "slowed by power brake"), ("slow-data", "its batches take")]
)
def test_without_a_screen_the_straggler_is_told_with_its_cause(fault: str, cause: str) -> None:
    """Nobody but the verdict asks for the statistics by which it is found."""
    demo = [sys.executable, "-m", "frtop_tui", "demo", "--headless", "--ranks", "16"]
    done = subprocess.run(
        [*demo, "--fault", fault],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert (done.returncode, cause in done.stdout) == (0, True), done.stdout + done.stderr


def test_hosts_end_with_whoever_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_KEY_FILE", "")
    with ScriptedJob(16, "none") as job:
        job.start()
        (process,) = job.processes
        assert process.stdin is not None
        process.stdin.close()  # as the kernel does it when the other end dies
        assert process.wait(60) == 0
