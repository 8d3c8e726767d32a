"""Ops on devices, in real ranks: NCCL's place has a stand-in (`zoo.stand_in_nccl`)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frtop_probe import wire
from frtop_probe.agent.ring_view import RingView
from frtop_probe.recorder.ops.device_watch import DeviceWatch
from frtop_probe.ring.reader import GroupRow
from recorder import rank_runner

TESTS = Path(__file__).parents[1]
BEGIN = """
import os, sys, threading, time
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist
from zoo import stand_in_nccl as nccl
nccl.install({options})
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
from frtop_probe.recorder.process.lifecycle import lifecycle
tensor, recorder = nccl.tensor(), lifecycle.recorder
watch = recorder.devices
def look(later_ns=0):
    watch.look(time.monotonic_ns() + later_ns)
"""
GROUPS = """
ends, captured, mixed, destroyed = (dist.new_group([0]) for _ in range(4))
for group in ends, captured, mixed, destroyed:
    dist.all_reduce(tensor, group=group)
torch.cuda.synchronize()
look()

nccl.device_of(ends).delay_s = 100
nccl.device_of(ends).error = "COMM_ERROR"
dist.all_reduce(tensor, group=ends)
dist.all_reduce(tensor, group=ends, async_op=True)

nccl.capture()
dist.all_reduce(tensor, group=captured)
nccl.end_capture()
look()
dist.all_reduce(tensor, group=captured)
while nccl.device_of(captured).behind:
    time.sleep(0.01)

dist.isend(tensor, 0, group=mixed)
dist.all_reduce(tensor, group=mixed)

nccl.device_of(destroyed).delay_s = 100
dist.all_reduce(tensor, group=destroyed)
dist.destroy_process_group(destroyed)
look(1_100_000_000)
"""


class Found:
    """What the ring of a rank that has ended tells."""

    def __init__(self, ring: Any) -> None:
        self.view = RingView(ring)
        self.rows: dict[int, GroupRow] = {row.group: row for row in ring.group_rows()}
        self._ops = self.view.ops(1000)[0]

    def ops(self, group: int) -> list[wire.Op]:
        return [op for op in self._ops if op.group == group]

    def group(self, number: int) -> wire.Group:
        found = self.view.group(number)
        assert found is not None
        return found


def run(program: str, folder: Path, options: str = "") -> Found:
    begin = BEGIN.format(tests=str(TESTS), options=options)
    # The stand-in's threads may be inside gloo, which an orderly exit does not survive. Its devices
    # are devices to Python only.
    text = f"{begin}{program}\nos._exit(0)\n"
    (rank,) = rank_runner.run(text, folder / "frtop", FRTOP_NATIVE="0")
    assert rank.code == 0, rank.err
    return Found(rank.ring)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(GROUPS, tmp_path_factory.mktemp("devices"))


ENDS, CAPTURED, MIXED, DESTROYED = 2, 3, 4, 5


@pytest.mark.torch
def test_ops_end_when_the_device_has_done_them(found: Found) -> None:
    ops = found.ops(ENDS)
    assert all(op.on_device and op.enqueued and op.tracked for op in ops)
    assert [(op.done_ns > 0, op.late) for op in ops] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    row = found.rows[ENDS]
    assert (row.number, row.enqueued, row.completed, row.watched) == (3, 3, 1, 1)
    assert found.group(ENDS).backend == "cpu:gloo,cuda:nccl"


@pytest.mark.torch
def test_an_error_of_the_backend_is_told(found: Found) -> None:
    assert found.group(ENDS).error == "COMM_ERROR"
    assert found.group(CAPTURED).error == ""


@pytest.mark.torch
def test_captured_ops_are_not_taken_for_pending(found: Found) -> None:
    states = [(op.done_ns > 0, op.tracked) for op in found.ops(CAPTURED)]
    assert states == [(True, True), (False, False), (True, True)]


@pytest.mark.torch
def test_messages_make_a_groups_numbers_ambiguous(found: Found) -> None:
    assert [op.tracked for op in found.ops(MIXED)] == [True, False, False]
    assert (found.group(MIXED).blind, found.rows[MIXED].watched) == ("p2p", 0)


@pytest.mark.torch
def test_a_destroyed_group_leaves_no_op_pending(found: Found) -> None:
    first, last = found.ops(DESTROYED)
    assert first.done_ns > 0
    assert not last.tracked
    assert found.rows[DESTROYED].watched == 0


@pytest.mark.torch
def test_without_the_flight_recorder_ops_are_untracked(tmp_path: Path) -> None:
    program = "dist.all_reduce(tensor)\nlook()\ndist.all_reduce(tensor)"
    off = run(program, tmp_path, "recording=False")
    assert off.group(1).blind == "recorder off"
    assert [op.tracked for op in off.ops(1)] == [False, False]


@pytest.mark.torch
def test_nothing_is_read_while_a_groups_first_op_is_in_its_call(tmp_path: Path) -> None:
    program = """
from frtop_probe.recorder.ops.device_watch import device_words
seen = lambda: recorder.ring.words[device_words(1) + 3]
dist.all_reduce(tensor)
torch.cuda.synchronize()
look()
assert watch.fronts[1][0].listed and seen() == 1
reads = []
read, watch._dump = watch._dump, lambda *a, **k: reads.append(1) or read(*a, **k)
second = dist.new_group([0])
nccl.device_of(second).call_s = 0.5
issuing = threading.Thread(target=lambda: dist.all_reduce(tensor, group=second))
issuing.start()
while not watch.first_calls:
    time.sleep(0.01)
reads.clear()
look(1_100_000_000)
assert not reads
assert seen() == 0
issuing.join()
torch.cuda.synchronize()
look()
assert reads and seen() == 1
"""
    ended = run(program, tmp_path)
    assert [op.done_ns > 0 for op in (*ended.ops(1), *ended.ops(2))] == [True, True]


class Group:
    """A group on one device, as a recorder asks it."""

    _device_types = (SimpleNamespace(type="cuda"),)

    def _get_backend(self, _device: Any) -> Any:
        return SimpleNamespace(name=lambda: "nccl", uid=0, _get_sequence_number_for_group=lambda: 1)


@pytest.mark.parametrize(
    ("version", "core", "blind"),
    [
        ({"hip": "6.4"}, {}, "rocm"),
        ({}, {"_nccl_version_suffix": lambda: b"x"}, "nccl variant"),
        ({}, {}, "unreadable: AttributeError"),
        ({}, {"dump": b"[]"}, "unreadable: AttributeError"),
        ({}, {"dump": b"{"}, "unreadable: JSONDecodeError"),
        ({}, {"dump": b'{"pg_status":{"0":{}}}'}, "unreadable: KeyError"),
        ({}, {"dump": b'{"pg_status":7}'}, "unreadable: AttributeError"),
        ({}, {"dump": b"{}"}, "recorder off"),
    ],
)
def test_what_cannot_be_read_is_given_up_with_its_reason(
    version: dict[str, str], core: dict[str, Any], blind: str
) -> None:
    answer = core.pop("dump", None)
    dump = {} if answer is None else {"_dump_nccl_trace_json": lambda *_: answer}
    torch = SimpleNamespace(
        version=SimpleNamespace(**version),
        _C=SimpleNamespace(_distributed_c10d=SimpleNamespace(**dump), **core),
    )
    notes: list[tuple[int, str, str]] = []
    untracked: list[int] = []
    ops = SimpleNamespace(untrack=untracked.append)
    group = Group()
    watch = DeviceWatch(
        memoryview(bytearray(8192)).cast("q"), 4, ops, lambda *note: notes.append(note), torch
    )
    front = watch.front_of(1, group, lambda: group)
    if front is not None:
        front.handed_over(group, 7, 1, 0, 0)
        watch.look(0)
        watch.look(0)
        assert (untracked, watch.fronts) == ([7], {})
    ((number, reason, error),) = notes
    assert (number, error) == (1, "")
    assert reason.startswith(blind)
