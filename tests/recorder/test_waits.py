"""Waits, and the ends of ops that somebody waits for, are exact; others are upper bounds."""

from __future__ import annotations

import os

import pytest

from frtop_probe.ring.layout import Flag
from frtop_probe.ring.reader import EventRow, Ring
from frtop_probe.wire import ThreadStack, TraceFrame
from frtop_tui.diagnosis.evidence.stack_location import locate
from frtop_tui.job.stack_frames import is_wrapper, shown_frames
from recorder.rank_runner import FinishedRank, kind, ops, run

pytestmark = pytest.mark.torch

PROGRAM = """
    import contextlib, os, sys, threading, time
    import torch, torch.distributed as dist

    dist.init_process_group("gloo")
    rank, t = dist.get_rank(), torch.ones(4)
    truth = []

    def timed(call):
        before = time.monotonic_ns()
        call()
        truth.append((before, time.monotonic_ns()))

    def show_main_stack():
        time.sleep(0.15)
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None:
            code = frame.f_code
            print("at", code.co_name, code.co_filename, frame.f_lineno, file=sys.stderr)
            frame = frame.f_back

    for pause in (0.1, 0.3, 0.05):  # synchronous, then asleep
        timed(lambda: dist.all_reduce(t))
        time.sleep(pause)
    if rank == 1:
        time.sleep(0.3)
    else:
        threading.Thread(target=show_main_stack).start()
    timed(lambda: dist.broadcast(t, 0))  # one waits for the other
    if rank == 1:
        time.sleep(0.3)
    timed(lambda: dist.reduce_scatter_tensor(torch.ones(2), t))  # its handle tells nothing
    time.sleep(0.1)
    timed(lambda: dist.recv(t, 1) if rank == 0 else (time.sleep(0.3), dist.send(t, 0)))
    time.sleep(0.1)

    if rank == 1:
        time.sleep(0.3)
    handle = dist.all_gather_into_tensor(torch.ones(8), t, async_op=True)
    waiter = threading.Thread(target=lambda: timed(handle.wait))  # another thread waits
    waiter.start()
    waiter.join()
    handle = None
    time.sleep(0.1)

    if rank == 1:
        time.sleep(0.6)
    handle = dist.all_reduce(t, async_op=True)
    if rank == 0:
        time.sleep(0.1)
    timed(handle.wait)
    time.sleep(0.1)

    dist.barrier(async_op=True)  # nobody waits
    time.sleep(0.6)
    handle = dist.all_reduce(t, async_op=True)  # complete long before somebody waits
    time.sleep(0.1)
    handle.wait()
    if rank == 0:
        dist.isend(t, 1).wait()
    else:  # likewise
        handle = dist.irecv(t, 0)
        time.sleep(0.4)
        handle.wait()
    print(*(time for pair in truth for time in pair))

    if rank == 0:  # never ends
        threading.Thread(target=dist.irecv(t, 1, tag=9).wait, daemon=True).start()
    time.sleep(0.3)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("pid", str(os.getpid()))
        store.wait(["done"])  # otherwise rank 1 may still be in the barrier
    else:
        other = int(store.get("pid"))
        store.set("done", "")
        with contextlib.suppress(ProcessLookupError):  # if it left first, the receive would fail
            while True:
                os.kill(other, 0)
                time.sleep(0.01)
    os._exit(0)
"""
KINDS = ["all_reduce"] * 3 + ["broadcast", "reduce_scatter_tensor", "p2p", "all_gather_into_tensor",
         "all_reduce"]  # fmt: skip
MS = 1_000_000
NATIVE = os.environ["FRTOP_NATIVE"] != "0"
"""The native kernels are called back when an op ends, and their wrapper has no frame."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[FinishedRank]:
    return run(PROGRAM, tmp_path_factory.mktemp("waits") / "rings", ranks=2)


def test_most_ends_are_exact(world: list[FinishedRank]) -> None:
    late = [row for ended in world for row in rows(ended.ring) if Flag.LATE in row.flags]
    assert len(late) < len(world) * len(KINDS) / 2


def truth(ended: FinishedRank) -> list[tuple[int, int]]:
    times = [int(word) for word in ended.out.split()]
    return list(zip(times[::2], times[1::2], strict=True))


def rows(ring: Ring) -> list[EventRow]:
    return ops(ring)[: len(KINDS)]


def test_the_end_of_an_op_is_that_of_its_wait(world: list[FinishedRank]) -> None:
    errors = []
    for rank in world:
        assert rank.code == 0, rank.err
        for row, what, (began, ended) in zip(rows(rank.ring), KINDS, truth(rank), strict=True):
            assert row.issued_ns < row.done_ns <= ended, what
            if Flag.LATE in row.flags or row.done_ns < began:  # complete before its wait began
                continue
            assert row.wait_ns >= min(began, row.issued_ns) > 0, what
            errors.append(ended - row.done_ns)
    # Nothing comes between the two clocks but a few lines of Python, and here or there another
    # process of this machine.
    assert sorted(errors)[len(errors) // 2] < 5 * MS, errors


def test_how_long_its_own_thread_waited_is_known(world: list[FinishedRank]) -> None:
    """Rank 0 waits for the other for 0.5 s."""
    elsewhere, waited = rows(world[0].ring)[-2:]
    assert Flag.ELSEWHERE in elsewhere.flags
    assert Flag.ELSEWHERE not in waited.flags
    assert waited.wait_ns - waited.issued_ns >= 100 * MS
    began, ended = truth(world[0])[-1]
    assert ended - began > 150 * MS
    assert abs((waited.done_ns - waited.wait_ns) - (ended - began)) < 20 * MS


def test_an_op_for_which_nobody_waits_has_an_upper_bound(world: list[FinishedRank]) -> None:
    for ended in world:
        found = ops(ended.ring)
        number = [kind(ended.ring, row) for row in found].index("barrier")
        barrier = found[number]
        assert (Flag.LATE in barrier.flags) is not NATIVE
        assert barrier.wait_ns == 0
        assert barrier.issued_ns < barrier.done_ns < found[number + 1].issued_ns


def test_an_op_that_was_complete_before_the_wait_has_an_upper_bound(
    world: list[FinishedRank],
) -> None:
    for ended in world:
        found = ops(ended.ring)
        number = max(n for n, row in enumerate(found) if kind(ended.ring, row) == "all_reduce")
        reduced = found[number]
        assert (Flag.LATE in reduced.flags) is not NATIVE
        assert reduced.issued_ns < reduced.done_ns < found[number + 1].issued_ns
    received = [row for row in ops(world[1].ring) if kind(world[1].ring, row) == "recv"][-1]
    assert Flag.LATE in received.flags
    assert received.done_ns - received.issued_ns >= 400 * MS


def test_the_usual_wait_is_that_of_exact_ends(world: list[FinishedRank]) -> None:
    ring = world[0].ring
    count, usual = ring.typical_wait_ns(rows(ring)[0].site)
    assert count == sum(Flag.LATE not in row.flags for row in rows(ring)[:3])
    assert usual <= max(ended - began for began, ended in truth(world[0])[:3])


def test_a_wait_that_goes_on_is_seen(world: list[FinishedRank]) -> None:
    pending = [row for row in world[0].ring.pending() if kind(world[0].ring, row) == "recv"]
    assert len(pending) == 1
    assert pending[0].wait_ns >= pending[0].issued_ns


def test_the_stack_of_a_wait_reads_as_without_the_wrapper(world: list[FinishedRank]) -> None:
    seen = [line.split()[1:] for line in world[0].err.splitlines() if line.startswith("at ")]
    frames = tuple(TraceFrame(name, file, int(line)) for name, file, line in seen)
    assert is_wrapper(frames[0]) is not NATIVE
    shown = tuple(shown_frames(frames))
    assert shown[0].function == "broadcast"
    assert not any("frtop_probe" in frame.file for frame in shown)
    places = [locate(ThreadStack(1, 1, "", False, False, each)) for each in (frames, shown)]
    assert places[0] == places[1]
    assert places[0].kind == "collective"
