"""Ops on devices, in real ranks: NCCL's place has a stand-in (`zoo.stand_in_nccl`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from frtop_probe import wire
from frtop_probe.agent.ring_view import RingView
from frtop_probe.ring.reader import GroupRow
from recorder import rank_runner

TESTS = Path(__file__).parents[1]
BEGIN = """
import sys, time
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist
from zoo import stand_in_nccl as nccl
nccl.install({options}); {before}
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
tensor, group, device = nccl.tensor(), dist.group.WORLD, nccl.device_of()
def look():
    from frtop_probe.recorder.lifecycle import lifecycle
    lifecycle.recorder.devices.look(time.monotonic_ns())
"""


def run(
    program: str, folder: Path, options: str = "", before: str = ""
) -> tuple[RingView, list[wire.Op], dict[int, GroupRow]]:
    """Runs one rank; returns its ring, its ops and its groups' rows."""
    begin = BEGIN.format(tests=str(TESTS), options=options, before=before)
    # The stand-in's threads may be inside gloo, which an orderly exit does not survive.
    (rank,) = rank_runner.run(f"{begin}{program}\nimport os\nos._exit(0)\n", folder / "frtop")
    assert rank.code == 0, rank.err
    ring = rank.ring
    view = RingView(ring)
    ops = [op for op in view.ops(1000)[0] if not op.pseudo]
    return view, ops, {row.group: row for row in ring.group_rows()}


@pytest.mark.torch
def test_ops_end_when_the_device_has_done_them(tmp_path: Path) -> None:
    program = """
for _ in range(3):
    dist.all_reduce(tensor)
torch.cuda.synchronize()
look()
device.delay_s = 100
dist.all_reduce(tensor)
dist.all_reduce(tensor, async_op=True)
look()
"""
    view, ops, rows = run(program, tmp_path)
    assert all(op.on_device and op.enqueued and op.tracked for op in ops)
    assert [(op.done_ns > 0, op.late) for op in ops] == [(True, True)] * 3 + [(False, False)] * 2
    row = rows[1]
    assert (row.number, row.enqueued, row.completed) == (5, 5, 3)
    group = view.group(1)
    assert group is not None
    assert (group.backend, group.blind, group.error) == ("cpu:gloo,cuda:nccl", "", "")


@pytest.mark.torch
def test_captured_ops_are_not_taken_for_pending(tmp_path: Path) -> None:
    program = """
dist.all_reduce(tensor)
torch.cuda.synchronize()
look()
nccl.capture()
dist.all_reduce(tensor)
nccl.end_capture()
look()
dist.all_reduce(tensor)
torch.cuda.synchronize()
look()
"""
    _, ops, _ = run(program, tmp_path)
    assert [(op.done_ns > 0, op.tracked) for op in ops] == [
        (True, True), (False, False), (True, True)
    ]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize(
    ("more", "options", "before", "blind"),
    [
        ("", "recording=False", "", "recorder off"),
        ("dist.isend(tensor, 0)", "", "", "p2p"),
        ("", "", "torch.version.hip = '6'", "rocm"),
        ("", "", "del nccl.CORE._dump_nccl_trace_json", "unreadable: AttributeError"),
        ("", "", "nccl.CORE._dump_nccl_trace_json = lambda *_: b'[]'", "unreadable: Attr"),
    ],
)
def test_ops_of_which_nothing_can_be_known_are_untracked(
    tmp_path: Path, more: str, options: str, before: str, blind: str
) -> None:
    program = f"dist.all_reduce(tensor); {more}\nlook()"
    view, ops, rows = run(program, tmp_path, options, before)
    group = view.group(1)
    assert group is not None
    assert group.blind.startswith(blind)
    assert not any(op.tracked for op in ops)
    assert rows[1].watched == 0


@pytest.mark.torch
def test_nothing_is_read_while_a_groups_first_op_is_in_its_call(tmp_path: Path) -> None:
    program = """
import threading
from frtop_probe.recorder.lifecycle import lifecycle
dist.all_reduce(tensor)
torch.cuda.synchronize()
look()
watch = lifecycle.recorder.devices
assert watch.fronts[1][0].listed
reads = []
read, watch._dump = watch._dump, lambda *a, **k: reads.append(1) or read(*a, **k)
second = dist.new_group([0])
nccl.device_of(second).call_s = 2.5
issuing = threading.Thread(target=lambda: dist.all_reduce(tensor, group=second))
issuing.start()
while not watch.first_calls:
    time.sleep(0.01)
reads.clear()
time.sleep(1.5)
look()
assert not reads
words = lifecycle.recorder.writer.words
from frtop_probe.recorder.device_watch import device_words
assert words[device_words(1) + 3] == 0, "said to be seen"
issuing.join()
torch.cuda.synchronize()
look()
assert reads and words[device_words(1) + 3] == 1
"""
    _, ops, rows = run(program, tmp_path)
    assert [op.done_ns > 0 for op in ops] == [True, True]
    assert rows[2].completed == 1


@pytest.mark.torch
def test_an_error_of_the_backend_is_told(tmp_path: Path) -> None:
    program = """
dist.all_reduce(tensor)
torch.cuda.synchronize()
device.delay_s = 100
dist.all_reduce(tensor)
device.error = "COMM_ERROR"
time.sleep(1.2)
look()
"""
    view, _, _ = run(program, tmp_path)
    group = view.group(1)
    assert group is not None
    assert group.error == "COMM_ERROR"


@pytest.mark.torch
def test_a_destroyed_group_leaves_no_op_pending(tmp_path: Path) -> None:
    program = """
second = dist.new_group([0])
dist.all_reduce(tensor, group=second)
nccl.device_of(second).delay_s = 100
dist.all_reduce(tensor, group=second)
dist.destroy_process_group(second)
from frtop_probe.recorder.lifecycle import lifecycle
assert not lifecycle.recorder.devices.fronts.get(2)
assert not lifecycle.recorder.pending.open
"""
    _, ops, _ = run(program, tmp_path)
    assert not ops[-1].tracked
    assert ops[-1].done_ns == 0
