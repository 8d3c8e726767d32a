"""A job that never ends: training is over, and a process stays."""

from __future__ import annotations

import pytest

from diagnosis.scenes import C10D, COLLECTIVE, MAIN, Scene, frame, only
from diagnosis.unprepared import Unprepared
from frtop_probe import wire
from frtop_tui.text.exit_status import exit_status

LIBRARY = "/usr/lib/python3.11"
SHUTDOWN = (frame(f"{LIBRARY}/threading.py:1590", "_shutdown"),)
RECV = (
    frame("report.py:9", "report", "answer = line.recv(100)"),
    frame(f"{LIBRARY}/threading.py:982", "run"),
    frame(f"{LIBRARY}/threading.py:1002", "_bootstrap"),
)
IDLE = (
    frame(f"{LIBRARY}/threading.py:331", "wait"),
    frame("pool.py:30", "work"),
    frame(f"{LIBRARY}/threading.py:982", "run"),
    frame(f"{LIBRARY}/threading.py:1002", "_bootstrap"),
)
CALLS = (frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1", "_call_impl"),)
CHILD = (
    frame(f"{LIBRARY}/subprocess.py:2047", "_wait"),
    frame("train.py:8", "upload", "subprocess.run(command)"),
)


def thread(name: str, frames: tuple[wire.TraceFrame, ...], tid: int = 77) -> wire.ThreadStack:
    return wire.ThreadStack(MAIN + tid, tid, name, False, False, frames)


def left(scene: Scene, *ranks: int, ago: float = 40.0) -> None:
    for rank in ranks:
        scene.ends(rank, exit_code=0, clean=True, ago=ago)


def ends_at(scene: Scene, rank: int, *frames: wire.TraceFrame, call: str = "futex") -> None:
    """The main thread is here, and nothing of the program is outside of it."""
    scene.actors[rank].stack = frames
    scene.kernel(rank, "S", call)


def in_shutdown(scene: Scene, *threads: wire.ThreadStack) -> None:
    ends_at(scene, 1, *SHUTDOWN)
    scene.actors[1].other_threads = threads
    tasks = [wire.Process(one.tid, "S", one.name, "", "recvfrom", "socket:[9]") for one in threads]
    scene.actors[1].threads = tuple(tasks)


def test_the_thread_that_does_not_end_is_named_with_its_line() -> None:
    scene = Scene(4, ago=60)
    left(scene, 0, 2, 3)
    in_shutdown(scene, thread("reporter", RECV))
    found = scene.settle(50)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("stuck", (1,), "socket")
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert verdict.headline == ("ranks 0,2-3 have left, and rank 1 (node0 pid 1001) does not end")
    assert verdict.why.text == (
        "its program has finished, and MainThread joins its non-daemon threads: thread"
        ' "reporter" waits for a socket at report.py:9 (report) `answer = line.recv(100)`'
    )
    assert verdict.next.startswith("look at report.py:9 (report)")
    assert (found.health, exit_status(found), found.ranks[1].state) == ("hung", 3, "late")


def test_of_several_threads_none_is_said_to_be_the_one() -> None:
    scene = Scene(4, ago=60)
    left(scene, 0, 2, 3)
    in_shutdown(scene, thread("reporter", RECV), thread("pool", IDLE, 78))
    verdict = only(scene.settle(50))
    assert verdict.why.cause == "lock"
    assert 'one of these: thread "reporter" waits for a socket' in verdict.why.text
    assert '; thread "pool" waits for a lock' in verdict.why.text


@pytest.mark.parametrize(("frames", "call", "cause", "says"), [
    (CHILD, "wait4", "subprocess", "exit handler does not return: MainThread waits for a process"),
    (
        (frame(f"{LIBRARY}/threading.py:1119", "join"),
         frame(f"{LIBRARY}/multiprocessing/util.py:360", "_exit_function")),
        "futex", "lock", "exit handler does not return: MainThread waits for a lock",
    ),
    (
        (frame(f"{C10D}:2300", "destroy_process_group"), frame("train.py:60", "main"),
         frame("train.py:90", "<module>")),
        "futex", "other_group", "is in destroy_process_group, which does not return",
    ),
    (
        (frame("train.py:70", source="upload.write(state)"), frame("train.py:90", "<module>")),
        "write", "file_io", "is in a file operation",
    ),
])  # fmt: skip
def test_where_it_stays_is_told(
    frames: tuple[wire.TraceFrame, ...], call: str, cause: str, says: str
) -> None:
    scene = Scene(4, ago=60)
    left(scene, 0, 2, 3)
    ends_at(scene, 1, *frames, call=call)
    verdict = only(scene.settle(50))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("stuck", (1,), cause)
    assert says in verdict.why.text


def test_all_that_stay_in_their_exit_are_named() -> None:
    scene = Scene(4, ago=60)
    for rank in range(4):
        ends_at(scene, rank, frame(f"{C10D}:2300", "destroy_process_group"), frame("train.py:60"))
    verdict = only(scene.settle(50))
    assert (verdict.kind, verdict.culprits) == ("stuck", (0, 1, 2, 3))
    assert verdict.headline == "ranks 0-3 do not end"


def test_who_works_on_after_the_others_is_not_named() -> None:
    scene = Scene(4, ago=60)
    left(scene, 0, 2, 3)
    scene.at(1, frame("train.py:70", source="score += evaluate(batch)"), active=True)
    scene.kernel(1, "R")
    found = scene.settle(50)
    assert (found.verdicts, found.health, exit_status(found)) == ((), "healthy", 0)


def test_it_takes_a_minute_since_the_last_one_left() -> None:
    scene = Scene(4, ago=60)
    left(scene, 0, 2, 3, ago=10)
    in_shutdown(scene, thread("reporter", RECV))
    assert scene.settle(18).verdicts == ()
    found = scene.settle(25)
    assert (found.verdicts, found.health) == ((), "waiting")
    assert only(scene.settle(15)).culprits == (1,)


def test_a_server_that_the_others_left_is_no_hang() -> None:
    scene = Scene(4, ago=60)
    left(scene, 0, 2, 3)
    scene.at(1, frame(f"{LIBRARY}/socket.py:292", "accept"), frame("serve.py:40"))
    scene.kernel(1, "S", "accept4", "inet_csk_accept")
    found = scene.settle(50)
    assert (only(found).kind, found.health) == ("undecided", "undecided")


@pytest.mark.parametrize("frames", [
    (frame(f"{LIBRARY}/multiprocessing/popen_fork.py:27", "poll"),
     frame(f"{LIBRARY}/multiprocessing/util.py:357", "_exit_function")),
    (frame(f"{C10D}:2417", "destroy_process_group"), frame("train.py:90", "<module>")),
])  # fmt: skip
def test_who_is_in_its_exit_does_not_start(frames: tuple[wire.TraceFrame, ...]) -> None:
    scene = Unprepared(4, begun=0)
    scene.gone(0, 2, 3)
    scene.actors[1].groups.clear()
    ends_at(scene, 1, *frames)
    found = scene.settle(50)
    assert (only(found).kind, only(found).culprits, found.health) == ("stuck", (1,), "hung")


@pytest.mark.parametrize("groups", [True, False])
def test_without_a_recorder_whoever_is_not_seen_has_left(*, groups: bool) -> None:
    """frtop came when the others had ended: its main thread says that nobody starts any more."""
    scene = Unprepared(4, ago=60)
    scene.gone(0, 2, 3)
    if not groups:
        scene.actors[1].groups.clear()
        scene.actors[1].group_progress.clear()
    in_shutdown(scene, thread("reporter", RECV))
    found = scene.settle(50)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("stuck", (1,), "socket")
    assert (found.health, verdict.confidence) == ("hung", "confirmed")
    assert verdict.missing == ("ranks 0,2-3: they have left, or are elsewhere",)


def test_nobody_has_to_come_to_a_call_that_leaves_the_groups() -> None:
    """A recorder shows the call as it shows `new_group`."""
    scene = Scene(4, ago=60)
    scene.in_pseudo([1], "destroy_process_group", for_s=45)
    left(scene, 0, ago=40)
    ends_at(scene, 1, frame(f"{C10D}:2300", "destroy_process_group"), frame("train.py:60", "main"))
    for rank in (2, 3):
        scene.at(rank, frame("train.py:61", source="upload(model)"), active=True)
    assert scene.settle(5).verdicts == ()
    left(scene, 2, 3, ago=30)
    verdict = only(scene.settle(60))
    assert (verdict.kind, verdict.culprits) == ("stuck", (1,))
    assert "is in destroy_process_group, which does not return" in verdict.why.text


def test_a_launcher_that_waits_for_the_last_rank_tells_that_the_others_have_left() -> None:
    """It never had a group that anybody saw, and nothing in its stack is of an exit's own."""
    scene = Unprepared(4, begun=0)
    scene.gone(0, 2, 3)
    scene.actors[1].groups.clear()
    scene.at(1, frame("train.py:70", source="answer = line.recv(100)"))
    scene.kernel(1, "S", "recvfrom", "", "socket:[9]")
    open_ = scene.settle(50)
    assert (only(open_).kind, open_.health) == ("undecided", "undecided")
    assert only(open_).missing == ("ranks 0,2-3: whether they are alive",)
    scene.notes[1] = (wire.OTHERS_ENDED,)
    found = scene.settle(50)
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("stuck", (1,), "socket")
    assert (found.health, wire.OTHERS_ENDED in verdict.evidence) == ("hung", True)
    assert verdict.headline == "ranks 0,2-3 have left, and rank 1 (node0 pid 1001) does not end"


@pytest.mark.parametrize("kind", [Scene, Unprepared])
@pytest.mark.parametrize("trains", [False, True])
def test_of_a_rank_that_others_wait_for_it_is_told_that_its_program_is_over(
    kind: type[Scene], *, trains: bool
) -> None:
    """As when it raised, and a thread keeps its process; not if that thread may train."""
    scene = kind(4)
    scene.waits([0, 2, 3], "all_reduce", for_s=40)
    for rank in (0, 2, 3):
        scene.at(rank, *COLLECTIVE)
    inside = CALLS if trains else ()
    in_shutdown(scene, thread("logger", (RECV[0], *inside, *RECV[1:])))
    verdict = only(scene.settle(12))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (1,))
    said = 'its program has finished, and MainThread joins its non-daemon threads: thread "logger"'
    assert verdict.why.text.startswith(said) is not trains
    assert verdict.next.startswith("why did its program end before the others'?") is not trains
