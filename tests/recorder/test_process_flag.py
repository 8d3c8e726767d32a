"""Forks that Python does not see, as C++ data loaders and other libraries make them."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import kinds, run

WAYS = ["exit", "raise", "destroy", "group", "start", "fork"]
"""What children do; all of them issue ops, make groups, end steps and write notes, too."""
PROGRAM = """
    import atexit, ctypes, json, os, signal, sys, time, torch, torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    import frtop_probe
    from frtop_probe.recorder.process.lifecycle import lifecycle
    from frtop_probe.ring.layout import StatusCell
    libc = ctypes.PyDLL(None)
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    kept = dist.all_reduce(torch.ones(2), async_op=True)
    def child(how):
        dist.broadcast(torch.ones(3), 0)
        dist.new_group([0, 1])
        frtop_probe.step()
        frtop_probe.annotate("from a child")
        if how == "raise":
            raise ValueError("in a child")
        if how == "destroy":
            dist.destroy_process_group()
            os._exit(0)
        if how == "group":
            dist.destroy_process_group()
            dist.init_process_group("fake", rank=5, world_size=8, store=FakeStore())
        if how == "start":
            frtop_probe.start()
        if how in ("group", "start"):
            dist.broadcast(torch.ones(3), 0)
            frtop_probe.annotate("mine")
        if how == "fork":
            pid = os.fork()
            if pid:
                sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        dist.broadcast(torch.ones(3), 0)
        if how != "exit":
            atexit._run_exitfuncs()  # the rest of an exit takes seconds
            os._exit(0)
    def after_a_beat():
        # The child would wait for ever for a thread that has or wants the GIL just then.
        cells = lifecycle.recorder.ring.cells
        beats = cells[StatusCell.HEARTBEATS]
        while cells[StatusCell.HEARTBEATS] == beats:
            time.sleep(0.01)
        time.sleep(0.02)
    ended = {}
    for how in sys.argv[1:]:
        dist.all_reduce(torch.ones(2))
        after_a_beat()
        pid = libc.syscall(57) if how == "syscall" else libc.fork()
        if pid == 0:
            signal.alarm(50)
            child(how)
            sys.exit(0)
        ended[how] = pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    dist.all_reduce(torch.ones(2))
    frtop_probe.annotate("from the parent")
    print(json.dumps(ended))
"""


@pytest.mark.torch
def test_a_child_that_c_forked_leaves_its_parents_ring_alone(tmp_path: Path) -> None:
    ways = [*WAYS, *["syscall"] * (platform.machine() == "x86_64")]  # the number is that of x86
    (rank,) = run(PROGRAM, tmp_path / "rings", *ways)
    assert rank.code == 0, rank.err
    ended = json.loads(rank.out)
    assert {how: status for how, (_, status) in ended.items()} == {
        how: how == "raise" for how in ways
    }
    ring = rank.ring
    assert kinds(ring) == ["all_reduce"] * (2 + len(ways))
    assert ring.cell(StatusCell.STEP) == 0
    assert ring.cell(StatusCell.STATE) == State.STOPPED
    assert list(ring.notes.values()) == ["from the parent"]
    assert not ring.exceptions
    assert ring.rank_identity["rank"] == 0
    own = {how: [Ring(one) for one in rank.folder.glob(f"{ended[how][0]}-*.ring")] for how in ways}
    assert {how for how in ways if own[how]} == {"group", "start"}
    for how, number in (("group", 5), ("start", 0)):
        (ring,) = own[how]
        assert kinds(ring) == ["broadcast", "broadcast"]
        assert list(ring.notes.values()) == ["mine"]
        assert ring.cell(StatusCell.STATE) == State.STOPPED
        assert ring.rank_identity["rank"] == number
    assert len(rank.rings) == 3
    assert "frtop" not in rank.err
