"""Waits between the threads of a rank, followed to the thread that is the reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from diagnosis.scenes import (
    BACKWARD,
    C10D,
    COLLECTIVE,
    LOCK,
    MAIN,
    Scene,
    frame,
    only,
    three_wait,
    told,
)
from diagnosis.unprepared import Unprepared
from frtop_probe import wire

LIB = "/usr/lib/python3.11"
RESULT = (
    frame(f"{LIB}/threading.py:327", "wait"),
    frame(f"{LIB}/concurrent/futures/_base.py:451", "result"),
    frame("ckpt.py:70", "finish", "future.result()"),
)
JOIN = (
    frame(f"{LIB}/threading.py:1119", "join"),
    frame("ckpt.py:71", "finish", "writer.join()"),
)
ENTERS = (frame("cache.py:8", "get", "with self.lock:"),)
OPENS = (frame("ckpt.py:12", "save", "open(path, 'wb')"),)
RECEIVES = (
    frame(f"{LIB}/socket.py:718", "recv_into"),
    frame("cache.py:3", "fill", "self.link.read(8)"),
)
LOOPS = (frame("metrics.py:9", "loop", "time.sleep(60)"),)
FILE = "/ckpt/step-100.pt"


def beside(
    scene: Scene,
    rank: int,
    number: int,
    frames: Sequence[wire.TraceFrame],
    *,
    name: str = "",
    syscall: str = "futex",
    file: str = "",
    wait: wire.ThreadWait | None = None,
) -> None:
    """Another thread of a rank, of which the kernel shows a system call."""
    actor, tid = scene.actors[rank], 2000 + number
    frames = (*frames, frame(f"{LIB}/threading.py:1002", "_bootstrap"))
    stack = wire.ThreadStack(MAIN + number, tid, name, False, False, frames, wait)
    actor.other_threads = (*actor.other_threads, stack)
    actor.threads = (*actor.threads, wire.Process(tid, "S", name, "", syscall, file))


def waits(kind: str, *numbers: int) -> wire.ThreadWait:
    """For the threads with these numbers; 0 is MainThread."""
    return wire.ThreadWait(kind, tuple(MAIN + number for number in numbers))


def saves_in_a_thread(scene: Scene, rank: int) -> None:
    scene.at(rank, *RESULT)
    scene.actors[rank].wait = waits("future", 1)
    beside(scene, rank, 1, OPENS, name="saver_0", syscall="openat", file=FILE)


def fills_under_a_lock(scene: Scene, rank: int) -> None:
    scene.at(rank, *RESULT)
    scene.actors[rank].wait = waits("future", 1)
    beside(scene, rank, 1, ENTERS, name="getter_0", wait=waits("lock", 2))
    beside(scene, rank, 2, RECEIVES, name="filler", syscall="recvfrom", file="socket:[7]")


def joins(scene: Scene, rank: int) -> None:
    scene.at(rank, *JOIN)
    scene.actors[rank].wait = waits("thread", 1)
    beside(scene, rank, 1, LOOPS, name="metrics", syscall="clock_nanosleep")


@pytest.mark.parametrize(("play", "cause", "text", "step"), [
    (saves_in_a_thread, "file_io",
     ('MainThread waits at ckpt.py:70 (finish) for a future, most likely that of thread "saver_0",'
      " which is in a file operation: openat /ckpt/step-100.pt at ckpt.py:12 (save)"),
     "stat -f /ckpt/step-100.pt"),
    (fills_under_a_lock, "socket",
     ('most likely that of thread "getter_0", which waits at cache.py:8 (get) for a lock that'
      ' thread "filler" holds, which waits for a socket at cache.py:3 (fill)'), "ss -tnp"),
    (joins, "sleeping",
     'waits at ckpt.py:71 (finish) for thread "metrics" to end, which sleeps at metrics.py:9',
     "look at metrics.py:9"),
], ids=lambda v: getattr(v, "__name__", ""))  # fmt: skip
@pytest.mark.parametrize("kind", [Scene, Unprepared])
def test_the_thread_at_the_end_is_the_reason(
    kind: type[Scene], play: object, cause: str, text: str, step: str
) -> None:
    scene = kind(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=40)
    play(scene, 2)  # type: ignore[operator]
    verdict = only(scene.settle(8))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
    assert verdict.why.cause == cause
    assert text in verdict.why.text
    assert step in verdict.next
    assert verdict.progress == "none"
    if play is saves_in_a_thread:
        assert f"thread 2001 state S, syscall openat, {FILE}" in verdict.evidence


def test_threads_that_wait_for_each_other_are_a_deadlock_of_their_rank() -> None:
    scene = three_wait()
    scene.at(2, *JOIN)
    scene.actors[2].wait = waits("thread", 1)
    beside(scene, 2, 1, ENTERS, name="writer", wait=waits("lock", 0))
    verdict = only(scene.settle())
    assert (verdict.culprits, verdict.why.cause) == ((2,), "lock")
    assert (
        'for thread "writer" to end, which waits at cache.py:8 (get) for a lock that MainThread'
        " holds: a deadlock of threads of this rank" in verdict.why.text
    )


def test_a_lock_that_a_thread_holds_itself_is_a_deadlock() -> None:
    scene = three_wait()
    scene.at(2, *ENTERS)
    scene.actors[2].wait = waits("lock", 0)
    assert "for a lock that it holds: a deadlock" in only(scene.settle()).why.text


@pytest.mark.parametrize("meant", [(), (1, 2), (9,)])
def test_where_nobody_is_known_to_be_meant_the_threads_of_the_program_are_listed(
    meant: tuple[int, ...],
) -> None:
    scene = three_wait()
    scene.at(2, *RESULT)
    scene.actors[2].wait = waits("future", *meant)
    beside(scene, 2, 1, LOOPS, name="metrics", syscall="clock_nanosleep")
    beside(scene, 2, 2, OPENS, name="saver", syscall="openat", file=FILE)
    verdict = only(scene.settle())
    assert (verdict.culprits, verdict.why.cause) == ((2,), "lock")
    several = ' (thread "metrics" or thread "saver")' if meant == (1, 2) else ""
    assert f"waits at ckpt.py:70 (finish) for a future{several};" in verdict.why.text
    assert 'thread "metrics" is at metrics.py:9 (loop), in clock_nanosleep' in verdict.evidence
    assert 'thread "saver" is at ckpt.py:12 (save), in openat' in verdict.evidence
    assert verdict.next == 'look at ckpt.py:12 (save): thread "saver" may be waited for'


def test_a_thread_that_waits_for_another_one_in_an_op_is_blocked_in_that_op() -> None:
    scene = Scene(2)
    scene.waits([0], "gather", for_s=40, thread=MAIN + 1)
    scene.at(0, *RESULT)
    scene.actors[0].wait = waits("future", 1)
    beside(scene, 0, 1, COLLECTIVE, name="saver_0")
    scene.sleeps(1)
    assert only(scene.settle()).culprits == (1,)


def test_a_thread_in_a_call_of_several_ops_blocks_its_rank_without_a_recorder_too() -> None:
    """c10d lists one of them, and of which thread it is not known."""
    scene = Unprepared(2)
    scene.waits([0], "all_gather", for_s=40, sync=False, thread=0)
    scene.at(0, *RESULT)
    scene.actors[0].wait = waits("future", 1)
    gathers = (frame(f"{C10D}:3208", "all_gather"), frame(f"{C10D}:3300", "gather_object"))
    beside(scene, 0, 1, gathers, name="saver_0")
    saves_in_a_thread(scene, 1)
    assert told(scene.settle(12), "culprits", "why.cause") == ((1,), "file_io")


def test_a_thread_in_an_op_that_nobody_waits_for_is_no_excuse() -> None:
    """Rank 0 waits for a file in one thread, and another one of it waits in an op beside."""
    scene = Scene(2)
    scene.group("ckpt", range(2), "checkpoint")
    scene.waits([0], "gather", for_s=40, group="ckpt", thread=MAIN + 2)
    scene.waits([1], "all_reduce", for_s=40)
    scene.at(0, *RESULT)
    scene.actors[0].wait = waits("future", 1)
    beside(scene, 0, 1, OPENS, name="saver_0", syscall="openat", file=FILE)
    beside(scene, 0, 2, COLLECTIVE, name="other")
    assert told(scene.settle(), "culprits", "why.cause") == ((0,), "file_io")


def test_a_thread_that_moves_is_progress_of_its_rank() -> None:
    scene = three_wait()
    joins(scene, 2)
    scene.judge()
    for line in range(10, 30):
        scene.pass_time(0.5)
        (thread,) = scene.actors[2].other_threads
        frames = (replace(thread.frames[0], line=line), *thread.frames[1:])
        scene.actors[2].other_threads = (replace(thread, frames=frames),)
        scene.judge()
    assert only(scene.settle(0)).progress == "active"


@pytest.mark.parametrize(("frames", "cause"), [
    ((frame("hooks.py:9", "hook", "time.sleep(5)"),), "sleeping"),
    ((frame("/usr/lib/python3.11/socket.py:718", "recv_into"), frame("hooks.py:9")), "socket"),
])  # fmt: skip
@pytest.mark.parametrize("of_its_own", [True, False])
def test_a_hook_is_where_its_backward_pass_is(
    frames: tuple[wire.TraceFrame, ...], cause: str, of_its_own: bool
) -> None:
    """It runs in a thread of autograd, or in the one that has called `backward`."""
    scene = three_wait(sync=False)
    for rank in (0, 1, 3):
        scene.at(rank, *BACKWARD)
    scene.waits([2], "all_reduce", for_s=9, sync=False, number=7)
    scene.actors[2].group_progress = {
        1: replace(scene.actors[0].group_progress[1], number=7, last=scene.actors[2].recent[-1])
    }
    scene.actors[2].pending.clear()
    scene.at(2, *(() if of_its_own else frames), *BACKWARD)
    scene.kernel(2, "S", "futex", "futex_do_wait")
    if of_its_own:
        stack = wire.ThreadStack(MAIN + 1, 2001, "", False, False, frames)
        scene.actors[2].other_threads = (stack,)
        scene.actors[2].threads = (wire.Process(2001, "S", "pt_autograd_0", "", "recvfrom"),)
    verdict = only(scene.settle())
    assert (verdict.culprits, verdict.why.cause) == ((2,), cause)
    assert "hooks.py:9" in verdict.why.text
    name = "autograd's thread" if of_its_own else "MainThread"
    assert verdict.why.text.startswith(name)


def test_a_child_that_was_killed_is_mentioned_beside_a_wait_for_it() -> None:
    scene = three_wait()
    scene.at(2, *LOCK)
    scene.actors[2].wait = wire.ThreadWait("child's queue")
    scene.actors[2].children.append(wire.Process(4711, "Z", "python", parent=1002, exit_status=9))
    verdict = only(scene.settle())
    assert "its child pid 4711 (python) has ended, by SIGKILL" in verdict.evidence
    assert "waits at train.py:40 (train) for what a child process puts" in verdict.why.text


@pytest.mark.parametrize("library", ["multiprocessing", "multiprocess"])
def test_what_a_child_hangs_at_is_told_beside_a_wait_for_its_pool(library: str) -> None:
    scene = three_wait()
    inner = frame(f"/venv/lib/python3.11/site-packages/{library}/connection.py:383", "_recv")
    scene.at(2, inner, frame("train.py:40", source="rows.map(tokenize)"))
    scene.kernel(2, "S", "read", file="socket:[7]")
    scene.actors[2].children += [
        wire.Process(pid, "S", "python", "", call, file, parent=1002)
        for pid, call, file in ((4711, "futex", ""), (4712, "openat", "/data/x"))
    ]
    scene.actors[2].child_stacks[4712] = (
        frame("train.py:12", "tokenize", "open(path)"),
        frame(f"/venv/lib/python3.11/site-packages/{library}/popen_fork.py:71", "_launch"),
        frame("train.py:40"),
    )
    verdict = only(scene.settle())
    (told,) = (text for text in verdict.evidence if "its child" in text)
    assert told == (
        "its child pid 4712 (python) is in openat /data/x at train.py:12 (tokenize) `open(path)`"
    )


def test_a_child_that_its_parent_has_reaped_is_mentioned_if_it_ended_since_the_last_op() -> None:
    scene = three_wait()
    scene.at(2, *LOCK)
    scene.actors[2].wait = wire.ThreadWait("pool")
    scene.settle()
    last_ns = max(one.issued_ns for one in scene.frame().ranks[2].group_progress.values())
    before = wire.EndedChild(4710, "python", last_ns - 1)
    scene.actors[2].ended = (before, replace(before, pid=4711, at_ns=last_ns + 1))
    frame = scene.settle()
    ended = [text for text in only(frame).evidence if "its child" in text]
    assert [text.partition(" ended ")[0] for text in ended] == ["its child pid 4711 (python)"]
    assert ended[0].endswith("s ago")
