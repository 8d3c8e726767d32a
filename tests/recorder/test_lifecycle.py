"""The program does not notice how the recorder starts, stops, fails or ends."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from frtop_probe.ring.layout import Event, Flag, MarkKind, Side, State, StatusCell
from frtop_probe.ring.marks import watched
from frtop_probe.ring.reader import Ring
from recorder.rank_runner import FAKE, kind, kinds, marks, on_fake, ops, run, signature

pytestmark = pytest.mark.torch


def test_while_the_store_is_asked_the_rank_is_seen_in_the_call(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    asked = []
    class Store(dist.Store):
        def compare_set(self, key, expected, desired):
            from frtop_probe.recorder.process.lifecycle import lifecycle
            asked.append((key, len(lifecycle.recorder.pending.open)))
            return desired
    store = Store()
    dist.init_process_group("fake", rank=0, world_size=8, store=store)
    ((key, pending),) = asked
    print(key.rpartition("//")[2], pending)
    """,
    )
    assert ended.out == "frtop/nonce 1\n"
    (call,) = ops(ended.ring, Event.PSEUDO)
    assert call.done_ns > 0
    assert len(ended.ring.rank_identity["job"]["nonce"]) == 16


def test_groups_are_distinguished_by_name_members_and_epoch(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    init()
    evens = dist.new_group([0, 2, 4, 6], group_desc="evens")
    dist.all_reduce(torch.ones(2), group=evens)
    dist.broadcast(torch.ones(2), 4, group=evens)
    dist.destroy_process_group(evens)
    dist.destroy_process_group()
    init()
    dist.all_reduce(torch.ones(2))
    """,
    )
    ring = ended.ring
    first, evens, second = (ring.groups[number] for number in (1, 2, 3))
    assert (first["ranks"], first["epoch"], first["exact"]) == ("0-7", 0, True)
    assert (evens["ranks"], evens["description"]) == ("0,2,4,6", "evens")
    assert evens["destroyed"] is True
    assert (second["ranks"], second["epoch"], second["exact"]) == ("0-7", 1, True)
    assert second["backend"] == "fake"
    rows = {row.group: row for row in ring.group_rows()}
    assert (rows[2].number, rows[3].number) == (2, 1)
    last = ring.last_op(rows[2])
    assert last is not None
    assert signature(ring, last).root == 4
    assert [kind(ring, row) for row in ops(ring, Event.PSEUDO)] == [
        "init_process_group", "new_group", "destroy_process_group",
        "destroy_process_group", "init_process_group",
    ]  # fmt: skip


def test_a_call_that_creates_a_group_records_which_ranks_must_call_it(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    init()
    dist.new_group([0, 2])
    dist.new_group([0, 3], use_local_synchronization=True)
    """,
    )
    calls = [signature(ended.ring, row) for row in ops(ended.ring, Event.PSEUDO)]
    assert [(call.kind, call.members) for call in calls] == [
        ("init_process_group", None),
        ("new_group", "0-7"),  # all ranks, members or not
        ("new_group", "0,3"),
    ]


def test_a_call_that_creates_no_group_raises_as_without_the_recorder(tmp_path: Path) -> None:
    program = (
        FAKE
        + """
    init()
    gone = dist.new_group([0, 2])
    dist.destroy_process_group(gone)
    for parent in (gone, [gone]):
        try:
            dist.split_group(parent_pg=parent, split_ranks=[[0, 2]])
            raise AssertionError("split")
        except (LookupError, RuntimeError, TypeError, ValueError):
            pass
    dist.all_reduce(torch.ones(2))
    """
    )
    (ended,) = run(program, tmp_path / "rings")
    assert (ended.code, ended.err) == (0, "")
    assert (ended.ring.cell(StatusCell.HOOK_ERRORS), ended.ring.cell(StatusCell.STATE)) == (
        0,
        State.STOPPED,
    )
    assert kinds(ended.ring) == ["all_reduce"]


def test_numbers_are_relative_after_a_late_start_or_a_stop(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    import frtop_probe
    init()
    dist.all_reduce(torch.ones(2))
    frtop_probe.start()
    dist.all_reduce(torch.ones(2))
    fresh = dist.new_group([0, 1])
    dist.barrier(group=fresh)
    frtop_probe.stop()
    frtop_probe.stop()
    dist.all_reduce(torch.ones(3))
    frtop_probe.start()
    frtop_probe.start()
    dist.barrier(group=fresh)
    frtop_probe.step()
    frtop_probe.step(41)
    frtop_probe.annotate("checkpoint written")
    """,
        prepared=False,
    )
    ring = ended.ring
    assert kinds(ring) == ["all_reduce", "barrier", "barrier"]
    assert [row.number for row in ops(ring)] == [1, 1, 2]
    assert ring.groups[1]["exact"] is False
    texts = [p for k, n, p in _side(ended.ring) if k == Side.GROUP and n == 2]
    assert [text["exact"] for text in texts] == [True, False]
    assert ring.cell(StatusCell.STEP) == 41
    assert [row.number for row in marks(ring, MarkKind.STEP)] == [1, 41]
    assert list(ring.notes.values()) == ["checkpoint written"]
    assert ring.cell(StatusCell.STATE) == State.STOPPED


def _side(ring: Ring) -> list[tuple[int, int, dict[str, object]]]:
    """Returns every entry of the side table, also replaced ones."""
    entries: list[tuple[int, int, dict[str, object]]] = []
    ring._side_read = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "take", lambda *entry: entries.append(entry))
        ring.refresh()
    return entries


@pytest.mark.parametrize("where", ["encode", "caller_waits", "finish"])
def test_a_failing_hook_switches_off_with_one_line_and_training_goes_on(
    tmp_path: Path, where: str
) -> None:
    # Only the kernels in Python look at callers in Python.
    options: dict[str, Any] = {"FRTOP_NATIVE": "0"} if where == "caller_waits" else {}
    ended = on_fake(
        tmp_path,
        f"""
    from frtop_probe.recorder.ops import kernel, signatures
    from frtop_probe.recorder.ops.pending import PendingOps
    def broken(*args, **kwargs):
        raise ZeroDivisionError("ours")
    if "{where}" == "encode":
        signatures.encode = broken
    elif "{where}" == "caller_waits":
        kernel.caller_waits = broken
    else:
        PendingOps._finisher = lambda self: broken
    init()
    t = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(t)
        dist.isend(t, 1)
        dist.all_gather_into_tensor(torch.ones(32), t)
    wait_for_heartbeats(2)
    """,
        **options,
    )
    ring = ended.ring
    lines = [line for line in ended.err.splitlines() if line.startswith("frtop: ")]
    assert len(lines) == 1
    assert "ZeroDivisionError: ours" in lines[0]
    assert ring.cell(StatusCell.STATE) == State.OFF
    assert ring.cell(StatusCell.HOOK_ERRORS) >= 1
    assert any("ZeroDivisionError" in note for note in ring.notes.values())


def test_an_interrupt_in_the_hook_reaches_the_program_even_if_cleanup_fails(tmp_path: Path) -> None:
    program = (
        FAKE
        + """
    from frtop_probe.recorder.ops import kernel, signatures
    from frtop_probe.recorder.ops.groups import GroupTable
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt
    def broken(*args, **kwargs):
        raise ZeroDivisionError("ours")
    signatures.encode = interrupted
    GroupTable.mark_inexact = broken
    init()
    try:
        dist.all_reduce(torch.ones(4))
    except KeyboardInterrupt:
        print("interrupted")
    """
    )
    (ended,) = run(program, tmp_path / "rings")
    assert (ended.code, ended.out, ended.err) == (0, "interrupted\n", "")


def test_an_ops_own_exception_passes_unchanged_and_is_recorded(tmp_path: Path) -> None:
    program = """
    import sys, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    for bad in (
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.complex64), op=dist.ReduceOp.MAX),
        lambda: dist.all_gather_into_tensor(torch.ones(7), torch.ones(3)),
        lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(7)),
    ):
        try:
            bad()
        except Exception as error:
            # Without the time of day in some of gloo's texts.
            text = str(error).splitlines()[0]
            print(type(error).__name__, text.partition(" Check ")[2] or text)
    """
    (ours,) = run(program, tmp_path / "rings")
    (bare,) = run(program, tmp_path / "none", FRTOP_OFF="1")
    assert bare.rings == []
    assert (ours.code, ours.out) == (bare.code, bare.out) == (0, bare.out)
    assert bare.out.count("\n") == 3
    assert ours.ring.cell(StatusCell.HOOK_ERRORS) == 0
    failed = [row for row in ops(ours.ring) if row.done_ns < 0]
    assert failed
    assert not ours.ring.pending()


def test_an_op_fails_when_its_peer_has_ended(tmp_path: Path) -> None:
    program = """
    import os, time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(0.3)
        os._exit(0)
    dist.all_reduce(torch.ones(4))
    """
    waiting, gone = run(program, tmp_path / "rings", ranks=2)
    assert (waiting.code, gone.code) == (1, 0)
    ring = waiting.ring
    assert ops(ring)[-1].done_ns < 0
    assert ring.exceptions[0]["kind"] == "RuntimeError"
    assert ring.exceptions[0]["frames"][-1][1].endswith("train.py")
    assert "deprecated" not in waiting.err


ENDINGS = """
    import os, signal, sys, threading, time
    import torch, torch.distributed as dist

    sys.path.append(sys.argv[1])
    from free_port import free_port

    def issue():
        for _ in range(50):
            dist.all_reduce(torch.ones(10))

    def end(how):
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1000), async_op=True)
        handle = dist.all_reduce(torch.ones(1000), async_op=True)
        if how == "clean": return
        if how == "destroyed": return dist.destroy_process_group()
        if how == "exit": sys.exit(3)
        if how == "os_exit": os._exit(4)
        if how == "raise": raise ValueError("gone")
        if how == "term": os.kill(os.getpid(), signal.SIGTERM)
        if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if how == "abort": os.abort()
        if how == "thread":
            threading.Thread(target=issue).start()

    # One import of torch for all: each ending runs in a forked child that is its own rank.
    for how in sys.argv[2:]:
        pid = os.fork()
        if pid == 0:
            os.environ["MASTER_PORT"] = str(free_port())
            try:
                end(how)
            except BaseException as error:
                if not isinstance(error, SystemExit):
                    sys.excepthook(type(error), error, error.__traceback__)
                    sys.exit(1)
                raise
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        print(how, pid, os.waitstatus_to_exitcode(status), flush=True)
"""


def test_the_recorder_changes_no_exit_status(tmp_path: Path) -> None:
    expected = {
        "clean": 0,
        "destroyed": 0,
        "exit": 3,
        "os_exit": 4,
        "raise": 1,
        "term": -signal.SIGTERM,
        "kill": -signal.SIGKILL,
        "abort": -signal.SIGABRT,
        "thread": 0,
    }
    (ended,) = run(ENDINGS, tmp_path / "rings", str(Path(__file__).parents[1]), *expected)
    assert ended.code == 0, ended.err
    printed = [line.split() for line in ended.out.splitlines()]
    assert {how: int(code) for how, _, code in printed} == expected
    by_pid = {int(path.name.split("-")[0]): path for path in ended.rings}
    for how, pid, _ in printed:
        ring = Ring(by_pid[int(pid)])
        orderly = how in ("clean", "destroyed", "exit", "raise", "thread")
        assert ring.cell(StatusCell.STATE) == (State.STOPPED if orderly else State.ON), how
        assert not ring.writer_lives()
        assert bool(ring.cell(StatusCell.EXCEPTION_NS)) == (how == "raise")


def test_dataloader_workers_have_no_recorder(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    import os, time
    from torch.utils.data import DataLoader, Dataset
    from frtop_probe.recorder.process.lifecycle import lifecycle
    from frtop_probe.ring.layout import StatusCell
    class Numbers(Dataset):
        def __len__(self): return 8
        def __getitem__(self, i):
            if i == 2: time.sleep(0.6)
            return float(os.getpid()), float(lifecycle.recorder is None)
    if __name__ == "__main__":
        init()
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        cells = lifecycle.recorder.ring.cells
        loader = iter(DataLoader(Numbers(), batch_size=2, num_workers=2))
        pids = [w.pid for w in loader._workers]
        seen = []
        while True:
            try:
                pid, cut = next(loader)
            except StopIteration:
                break
            same_pid = cells[StatusCell.FETCH_WORKER_PID] == int(pid[0])
            seen.append((cells[StatusCell.FETCH_WORKER], same_pid))
            assert cut.all() and cells[StatusCell.FETCH_END_NS] > cells[StatusCell.FETCH_BEGIN_NS]
            optimizer.zero_grad(); model(torch.ones(1, 1)).sum().backward(); optimizer.step()
            dist.all_reduce(torch.ones(1))
        assert cells[StatusCell.FETCH_WORKERS] == 2
        print(seen)
        for _ in DataLoader(Numbers(), num_workers=0): break
        print(cells[StatusCell.FETCH_WORKER], cells[StatusCell.STEP])
    """,
    )
    assert ended.out.splitlines() == ["[(0, True), (1, True), (0, True), (1, True)]", "-2 4"]
    assert len(ended.rings) == 1
    steps = marks(ended.ring, MarkKind.STEP)
    assert [row.number for row in steps] == [1, 2, 3, 4]
    # Four batches, the end of the data, and one of the second loader.
    assert [row.number for row in marks(ended.ring, MarkKind.FETCH)] == [1, 2, 1, 2, 0, 0]
    inside = marks(ended.ring, MarkKind.OPTIMIZER)
    assert [row.number for row in inside] == [1, 2, 3, 4]
    assert all(a.begin_ns < a.end_ns <= b.begin_ns for a, b in zip(inside, steps, strict=True))
    assert watched(ended.ring) == {MarkKind.FETCH, MarkKind.OPTIMIZER}


def test_concurrent_threads_number_ops_without_gaps(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    import threading
    init()
    tensors = [torch.ones(n) for n in range(1, 5)]
    def issue():
        for n in range(300):
            dist.all_reduce(tensors[n % 4])
            dist.isend(tensors[n % 4], 1)
    threads = [threading.Thread(target=issue) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    """,
    )
    ring = ended.ring
    rows = ops(ring)
    for p2p in (False, True):
        numbers = [row.number for row in rows if (Flag.P2P in row.flags) == p2p]
        assert sorted(numbers) == list(range(1, 1201))
    (group_row,) = ring.group_rows()
    assert (group_row.number, group_row.p2p) == (1200, 1200)
    assert ring.cell(StatusCell.HEAD) == 2401
    assert ring.cell(StatusCell.HOOK_ERRORS) == 0
    assert 1 < len({row.thread for row in rows}) <= 4  # an ident is used again after its thread
    assert not ring.pending()


def test_spawned_ranks_have_rings_and_spawned_workers_have_none(tmp_path: Path) -> None:
    program = """
    import os, torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch.utils.data import DataLoader
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)  # as from a shell
    import frtop_probe
    frtop_probe.start()  # in every process that imports this file

    def rank(number, file):
        dist.init_process_group("gloo", init_method="file://" + file, rank=number, world_size=1)
        loader = DataLoader([1, 2], num_workers=1, multiprocessing_context="spawn")
        assert len(list(loader)) == 2
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(rank, (os.path.abspath("store"),), nprocs=1)
    """
    (ended,) = run(program, tmp_path / "rings", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (path,) = ended.rings  # none for the parent, which is not a rank, nor for the worker
    ring = Ring(path)
    assert ring.cell(StatusCell.RANK) == 0
    assert ring.rank_identity["job"]["master_addr"] == f"file://{tmp_path}/store"
    assert ring.groups[1]["exact"]


def test_an_unsuitable_torch_is_reported_once(tmp_path: Path) -> None:
    ended = on_fake(
        tmp_path,
        """
    saved = dist.Work.unbox
    del dist.Work.unbox
    init()
    dist.barrier()
    dist.destroy_process_group()
    init()
    dist.barrier()
    """,
    )
    (line,) = [line for line in ended.err.splitlines() if line.startswith("frtop")]
    assert "has no unbox: recorder off, it needs torch 2.8 or newer" in line
    ring = ended.ring
    assert ring.cell(StatusCell.STATE) == State.STOPPED or ring.cell(StatusCell.STATE) == State.OFF
    assert list(ring.notes.values()) == [line.removeprefix("frtop: ")]


def test_a_full_process_table_is_reported_in_one_line(tmp_path: Path) -> None:
    program = (
        """
    import threading
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("frtop"):
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refuse
    """
        + FAKE
        + """
    init()
    dist.barrier()
    dist.destroy_process_group()
    """
    )
    (ended,) = run(program, tmp_path / "rings")
    assert ended.code == 0, ended.err
    (line,) = ended.err.splitlines()
    assert "can't start new thread" in line


@pytest.mark.long
def test_a_program_that_ends_while_a_call_of_ours_is_slow_does_not_abort(tmp_path: Path) -> None:
    """Python aborts the process if a thread comes back from torch while the interpreter goes."""
    program = (
        FAKE
        + """
    import threading, time
    from datetime import timedelta
    init()
    from frtop_probe.recorder.process.lifecycle import lifecycle
    store = dist.HashStore()
    class Slow:
        def look(self, now):
            if threading.current_thread().name != "frtop":
                return
            print("in it", flush=True)
            try:
                store.wait(["never"], timedelta(seconds=3))
            except dist.DistStoreError:
                pass
    watch = lifecycle.recorder.devices
    watch.look = Slow().look
    flush_until = time.monotonic() + 1
    while time.monotonic() < flush_until:
        time.sleep(0.01)
    sys.exit()
    """
    )
    (ended,) = run(program, tmp_path / "rings")
    assert "in it" in ended.out
    assert ended.code == 0, ended.err
