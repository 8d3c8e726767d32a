"""c10d's state of real gloo jobs, read while they hang and while they run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.proc.memory import GONE, REPLACED, NotReadable, identify
from frtop_probe.unprepared import c10d_state, reader, torch_layout
from frtop_probe.unprepared.cpython import UNEXPECTED, UNKNOWN_PYTHON, Python, open_python
from frtop_probe.unprepared.model import GroupState
from frtop_probe.unprepared.reader import UnpreparedReader
from frtop_probe.unprepared.torch_layout import BackendClass
from unprepared.ranks import (
    PROGRAM,
    default_group,
    job,
    only_backend,
    pending_kinds,
    program,
    wait_for_c10d,
)
from waiting import wait_for

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def absent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """Ranks 0 and 1 wait in an all_reduce; rank 2 holds the GIL in C instead."""
    with job("absent", tmp_path_factory.mktemp("absent")) as pids:
        yield pids


def test_numbers_and_pending_ops_tell_who_is_absent(absent: list[int]) -> None:
    with UnpreparedReader(absent[0]) as reader:
        waiting = wait_for_c10d(reader, lambda c10d: bool(pending_kinds(c10d)), "an op")
    with UnpreparedReader(absent[2]) as reader:  # with the GIL held
        missing = wait_for_c10d(reader, lambda c10d: not pending_kinds(c10d), "its last op's end")

    group = default_group(waiting)
    backend = only_backend(group)
    (work,) = backend.pending
    assert (group.name, group.ranks, group.rank, group.size) == ("0", (0, 1, 2), 0, 3)
    assert group.config == "gloo"
    assert (backend.kind, backend.number, backend.timeout_s) == ("gloo", 6, 300.0)
    assert backend.counts_p2p
    assert (work.op, work.number, work.completed, work.running) == ("allreduce", 6, False, True)
    if work.outputs is not None:  # torch before 2.9 has no timeout to find them by
        assert [(tensor.shape, tensor.dtype) for tensor in work.outputs] == [((7, 3, 2), "float32")]
    late = only_backend(default_group(missing))
    assert (late.number, late.pending) == (5, ())


def test_sub_groups_have_their_members_and_descriptions(absent: list[int]) -> None:
    with UnpreparedReader(absent[0]) as reader:
        groups = {group.description: group for group in reader.read().groups}
    assert groups["left"].ranks == (0, 1)
    assert only_backend(groups["left"]).number == 1
    long = groups["a description too long for a short string"]
    assert (long.ranks, long.rank, only_backend(long).number) == ((0, 2), 0, 0)

    with UnpreparedReader(absent[2]) as reader:
        assert [group.ranks for group in reader.read().groups] == [(0, 1, 2), (0, 2)]


def test_a_second_look_costs_few_reads(absent: list[int]) -> None:
    with UnpreparedReader(absent[0]) as reader:
        first = wait_for_c10d(reader, lambda c10d: bool(pending_kinds(c10d)), "an op")
        second = reader.read()
    assert second.groups == first.groups
    assert second.cost.reads < 60 < first.cost.reads < 5000


def test_a_look_into_an_import_does_not_make_the_build_unknown(
    absent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank whose build is unknown is left alone for a minute."""
    fails = 0

    def torn(*args: Any) -> Python:
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise NotReadable(UNKNOWN_PYTHON, "no sys.modules")
        return open_python(*args)

    monkeypatch.setattr("frtop_probe.unprepared.reader.open_python", torn)
    with UnpreparedReader(absent[0]) as reader:
        fails = 2
        assert reader.read().groups
        reader._forget(exec_done=False)
        fails = 3
        assert reader.read().reason == UNEXPECTED
        assert reader.read().groups
    with UnpreparedReader(absent[0]) as reader:
        fails = 3
        assert reader.read().reason == UNKNOWN_PYTHON


def test_environment_set_at_run_time_is_read_and_nothing_else(absent: list[int]) -> None:
    with UnpreparedReader(absent[1]) as reader:
        found = reader.environment(("SET_LATER", "RANK", "NOT_SET"))
    assert found == {"SET_LATER": "of rank 1", "RANK": "1"}


def test_a_stopped_process_is_readable(absent: list[int]) -> None:
    os.kill(absent[1], signal.SIGSTOP)
    try:
        wait_for(lambda: identify(absent[1]).state == "T", "the stop")
        with UnpreparedReader(absent[1]) as reader:
            c10d = reader.read()
        assert c10d.state == "T"
        assert only_backend(default_group(c10d)).number in (5, 6)
    finally:
        os.kill(absent[1], signal.SIGCONT)


def test_the_flight_recorder_ring(absent: list[int]) -> None:
    with UnpreparedReader(absent[0]) as reader:
        wait_for_c10d(reader, lambda c10d: bool(pending_kinds(c10d)), "an op")
        (ring,) = reader.rings()
        (newest,) = reader.rings(limit=2)
    if not ring.capacity:
        pytest.skip("this torch records nothing by default")
    assert (ring.kind, ring.capacity, ring.recorded, ring.torn) == ("gloo", 2000, 7, 0)
    assert [entry.id for entry in ring.entries] == list(range(7))
    assert [entry.group for entry in ring.entries] == ["0"] * 5 + ["1", "0"]
    assert [entry.description for entry in ring.entries][4:6] == ["default_pg", "left"]
    assert [entry.retired for entry in ring.entries] == [True] * 6 + [False]
    last = ring.entries[-1]
    assert (last.op, last.number, last.p2p_number, last.is_p2p) == ("gloo:all_reduce", 6, 0, False)
    assert (last.inputs, last.outputs) == (((7, 3, 2),), ((7, 3, 2),))
    assert last.timeout_ms == 300_000
    assert (last.input_types, last.output_types) == (("float32",), ("float32",))
    assert newest.entries == ring.entries[-2:]
    if (3, 11) <= sys.version_info < (3, 15):
        lines = PROGRAM.read_text().splitlines()
        found = [(file, lines[line - 1].strip(), function) for file, line, function in
                 (entry.site for entry in ring.entries if entry.site is not None)]  # fmt: skip
        called = "dist.all_reduce(torch.ones(3))"
        assert found[0] == (str(PROGRAM), called, "join")
        assert found[-1][1:] == ("hold_gil() if last else dist.all_reduce(tensor)", "run")
        assert len(found) == 7
    with UnpreparedReader(absent[0]) as reader:
        (later,) = reader.rings(since={"gloo": 3})
        (nothing,) = reader.rings(since={"gloo": 7})
        (reset,) = reader.rings(since={"gloo": 700})
    assert later.entries == ring.entries[3:]
    assert (nothing.entries, nothing.recorded) == ((), 7)
    assert reset.entries == ring.entries


def test_one_in_a_barrier_others_in_an_all_reduce(tmp_path: Path) -> None:
    with job("mismatch", tmp_path) as pids:
        found = []
        for pid in pids:
            with UnpreparedReader(pid) as reader:
                c10d = wait_for_c10d(reader, lambda c10d: bool(pending_kinds(c10d)), "an op")
                found.append((pending_kinds(c10d), only_backend(default_group(c10d)).number))
    assert found == [(["allreduce"], 6), (["allreduce"], 6), (["barrier"], 6)]


def test_queued_ops(tmp_path: Path) -> None:
    with job("queued", tmp_path) as pids, UnpreparedReader(pids[1]) as reader:
        c10d = wait_for_c10d(reader, lambda c10d: len(pending_kinds(c10d)) == 6, "six ops")
    backend = only_backend(default_group(c10d))
    assert backend.number == 11  # five, and six queued
    assert [work.number for work in backend.pending] == [6, 7, 8, 9, 10, 11]
    assert [work.running for work in backend.pending] == [True] * 2 + [False] * 4


def test_behind_the_wrapper_of_detailed_debugging(tmp_path: Path) -> None:
    with job("absent", tmp_path, TORCH_DISTRIBUTED_DEBUG="DETAIL") as pids:

        def ahead() -> bool:
            numbers = []
            for pid in (pids[0], pids[2]):
                with UnpreparedReader(pid) as reader:
                    backend = only_backend(default_group(reader.read()))
                assert backend.checked
                assert backend.kind == "gloo"
                assert backend.number == 5  # an op counts only after its check
                assert backend.check_number is not None
                numbers.append(backend.check_number)
            return numbers[0] > numbers[1]

        wait_for(ahead, "a rank that waits in a check")


def test_a_running_job_a_hundred_times(tmp_path: Path) -> None:
    with job("busy", tmp_path) as pids, UnpreparedReader(pids[0]) as reader:
        last: dict[str, int] = {}
        seen = 0
        for _ in range(100):
            c10d = reader.read()
            assert not c10d.reason
            for group in c10d.groups:
                backend = only_backend(group)
                assert not group.reason + backend.reason
                assert backend.number is not None
                assert backend.number >= last.get(group.name, 0)
                last[group.name] = backend.number
                seen += len(backend.pending)
        assert seen
        wait_for(lambda: only_backend(default_group(reader.read())).number, "groups")
        for _ in range(10):
            (ring,) = reader.rings()
            ids = [entry.id for entry in ring.entries]
            assert ring.torn or ids == list(range(ids[0], ids[0] + len(ids)))
    assert min(last.values()) > 0


def test_counters_read_between_their_increments_are_read_again(
    absent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """gloo counts a collective first, then all ops; an op in progress would be a number off."""
    with UnpreparedReader(absent[0]) as reader:
        steady = wait_for_c10d(reader, lambda c10d: bool(pending_kinds(c10d)), "an op")
        assert reader._c10d is not None
        intact = reader._c10d._backends._block
        torn: list[bool] = []

        def block(address: int, vtable: int, kind: BackendClass, group: GroupState) -> bytes:
            raw = intact(address, vtable, kind, group)
            if torn or kind.collectives is None:
                return raw
            torn.append(True)
            count = int.from_bytes(raw[kind.collectives :][:4], "little") + 1
            changed = count.to_bytes(4, "little")
            return raw[: kind.collectives] + changed + raw[kind.collectives + 4 :]

        monkeypatch.setattr(reader._c10d._backends, "_block", block)
        assert reader.read().groups == steady.groups
        assert torn


def test_books_are_found_again_after_the_module_grew(tmp_path: Path) -> None:
    with job("moved", tmp_path, size=2) as (pid, _), UnpreparedReader(pid) as reader:
        before = reader.read()
        assert default_group(before).size == 2
        (tmp_path / "store.looked").touch()
        wait_for((tmp_path / "store.bound").exists, "the names are bound")
        assert reader.read().groups == before.groups


def test_torch_without_groups_has_a_reason(tmp_path: Path) -> None:
    with job("without_groups", tmp_path) as (pid,), UnpreparedReader(pid) as reader:
        assert reader.read().reason == c10d_state.NO_GROUPS


def test_without_torch_there_is_a_reason() -> None:
    code = "print('started', flush=True); input()"
    with program(code) as process, UnpreparedReader(process.pid) as reader:
        assert reader.read().reason == torch_layout.NO_TORCH
        with pytest.raises(NotReadable) as refused:
            reader.rings()
        assert refused.value.reason == torch_layout.NO_TORCH


def test_a_process_that_ends_between_looks() -> None:
    code = "print('started', flush=True); input()"
    with program(code) as process, UnpreparedReader(process.pid) as reader:
        reader.environment(("HOME",))
        process.kill()
        wait_for(lambda: process.poll() is not None, "the end")
        with pytest.raises(NotReadable) as refused:
            reader.read()
    assert refused.value.reason == GONE


def test_a_process_that_becomes_another_program() -> None:
    code = (
        "import os, sys; print('started', flush=True); input();"
        "os.execv(sys.executable, [sys.executable, '-c',"
        ' \'import os; os.environ["A"] = "after"; print("again", flush=True); input()\'])'
    )
    with program(code) as process, UnpreparedReader(process.pid) as reader:
        assert reader.environment(("A",)) == {}
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"again\n"
        assert reader.environment(("A",)) == {"A": "after"}


def test_a_recycled_pid_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    own = UnpreparedReader(os.getpid())
    later = replace(identify(os.getpid()), start_ticks=1)
    monkeypatch.setattr(reader, "identify", lambda _: later)
    with pytest.raises(NotReadable) as refused:
        own.read()
    assert refused.value.reason == REPLACED
