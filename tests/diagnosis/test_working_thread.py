"""Which thread of a rank works, and that all that is said of the rank is read from it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from diagnosis.scenes import BACKWARD, COLLECTIVE, LOCK, MAIN, Scene, frame, only, told
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.evidence.working_thread import working_thread

TRAINER = 77
RAY = "/venv/lib/python3.11/site-packages/ray"
RAY_LOOP = (frame(f"{RAY}/_private/worker.py:915", "main_loop"),)
SOCKET = (
    frame("/usr/lib/python3.11/socket.py:718", "recv_into"),
    frame("train.py:31", "fetch", "batch = self.link.recv(size)"),
)
ASYNCIO = (
    frame("/usr/lib/python3.11/selectors.py:468", "select"),
    frame("/usr/lib/python3.11/asyncio/base_events.py:1884", "_run_once"),
)
WORK = (frame("train.py:39", "train", "work.wait()"),)
RAY_GET = (
    frame(f"{RAY}/_private/worker.py:2623", "get"),
    frame("train.py:40", "train", "batch = ray.get(loader.next.remote())"),
)


def thread(ident: int, frames: tuple[wire.TraceFrame, ...], name: str = "") -> wire.ThreadStack:
    return wire.ThreadStack(ident, 2000 + ident, name or f"Thread-{ident}", False, False, frames)


def beside_a_loop(
    scene: Scene, rank: int, *frames: wire.TraceFrame, syscall: str = "futex", file: str = ""
) -> None:
    """MainThread is in Ray's event loop, and the loop of training in a thread beside it."""
    actor = scene.actors[rank]
    actor.stack = RAY_LOOP
    actor.process = wire.Process(actor.pid, "S", "ray::train", "ep_poll", "epoll_wait")
    actor.other_threads = (thread(TRAINER, (*frames, frame("train.py:90", "main")), "trainer"),)
    actor.threads = (wire.Process(2000 + TRAINER, "S", "trainer", "", syscall, file),)


def issues_in(scene: Scene, ident: int) -> None:
    """What was issued so far was issued by another thread than the main one."""
    for actor in scene.actors.values():
        actor.recent = [replace(op, thread=ident) for op in actor.recent]
        actor.pending = [replace(op, thread=ident) for op in actor.pending]
        actor.group_progress = {
            group: replace(front, last=replace(front.last, thread=ident))
            for group, front in actor.group_progress.items()
            if front.last is not None
        }


def in_ray(scene: Scene) -> Scene:
    """Ranks 0 and 1 wait in the backward pass, rank 2 for an answer that does not come."""
    scene.waits([0, 1], "all_reduce", for_s=40, sync=False)
    for rank in (0, 1):
        beside_a_loop(scene, rank, *BACKWARD)
    beside_a_loop(scene, 2, *RAY_GET)
    issues_in(scene, TRAINER)
    return scene


def test_the_rank_whose_training_thread_is_away_is_named_beside_an_event_loop() -> None:
    found = in_ray(Scene(3)).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("not_entered", (2,), "0-1")
    assert 'thread "trainer" waits for a lock or another thread' in verdict.why.text
    assert "train.py:40 (train)" in verdict.why.text
    assert "thread 2077 state S, syscall futex" in verdict.evidence
    assert found.health == "hung"


def test_a_synchronous_op_of_the_training_thread_keeps_its_rank() -> None:
    scene = Scene(3)
    scene.waits([0, 1], "all_reduce", for_s=40)
    for rank in (0, 1):
        beside_a_loop(scene, rank, *COLLECTIVE)
    beside_a_loop(scene, 2, *SOCKET, syscall="recvfrom", file="socket:[7]")
    issues_in(scene, TRAINER)
    assert told(scene.settle(), "culprits", "why.cause") == ((2,), "socket")
    assert {scene.frame().ranks[rank].state for rank in (0, 1)} == {"moving"}  # before judgement
    judged = scene.settle(0)
    assert {judged.ranks[rank].state for rank in (0, 1)} == {"blocked"}


def test_without_a_recorder_the_entries_of_torchs_own_tell_the_thread() -> None:
    scene = in_ray(Unprepared(3))
    for rank, actor in scene.actors.items():
        scene.recorded[rank] = [*actor.recent]  # type: ignore[attr-defined]
    verdict = only(scene.settle(8))
    assert (verdict.culprits, fold(verdict.victims)) == ((2,), "0-1")


@pytest.mark.parametrize(("main", "others", "name"), [
    (RAY_LOOP, [BACKWARD], "Thread-1"),
    (ASYNCIO, [BACKWARD], "Thread-1"),
    (ASYNCIO, [LOCK, COLLECTIVE], "Thread-2"),
    (ASYNCIO, [WORK], "Thread-1"),
    (ASYNCIO, [COLLECTIVE, BACKWARD], "MainThread"),  # which one is not known
    (ASYNCIO, [LOCK], "MainThread"),  # a worker of the program, waiting for work
    (LOCK, [BACKWARD], "MainThread"),  # the chain of waits leads there
    (COLLECTIVE, [BACKWARD], "MainThread"),
], ids=str)  # fmt: skip
def test_beside_an_event_loop_the_only_thread_in_training_code_works(
    main: tuple[wire.TraceFrame, ...], others: list[tuple[wire.TraceFrame, ...]], name: str
) -> None:
    scene = Unprepared(2)
    actor = scene.actors[0]
    actor.recent.clear()
    actor.stack = main
    syscall = "futex" if main in (LOCK, COLLECTIVE) else "epoll_wait"
    scene.kernel(0, syscall=syscall)
    actor.other_threads = tuple(thread(n, frames) for n, frames in enumerate(others, 1))
    scene.hear()
    answer = wire.SnapshotResponse(1, "node0", (scene.look_of(actor),))
    scene.state.apply_snapshots("node0", answer)
    working = working_thread(scene.rank(0))
    assert working is not None
    assert name in working.name


def test_a_thread_beside_that_issues_ops_does_not_become_the_working_one() -> None:
    scene = Scene(2)
    scene.group("ckpt", range(2), "checkpoint")
    scene.does(range(2), "gather", group="ckpt", ago=1.0)
    for actor in scene.actors.values():
        actor.recent = [
            replace(op, thread=MAIN if op.group == 1 else TRAINER) for op in actor.recent
        ]
        beside_a_loop(scene, actor.rank, *SOCKET)
        actor.stack = COLLECTIVE
        scene.kernel(actor.rank, syscall="futex")
    scene.hear()
    answer = wire.SnapshotResponse(1, "node0", (scene.look_of(scene.actors[0]),))
    scene.state.apply_snapshots("node0", answer)
    working = working_thread(scene.frame().ranks[0])
    assert working is not None
    assert working.name == "MainThread"
