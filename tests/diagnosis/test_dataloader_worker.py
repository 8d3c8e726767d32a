"""What a DataLoader worker does while its rank waits for it."""

from __future__ import annotations

import pytest

from diagnosis.absences import absent, sleeps
from diagnosis.scenes import DATALOADER, LOADER, Scene, frame, only
from diagnosis.unprepared import Unprepared
from frtop_probe import wire

POOL = "/usr/lib/python3.11/multiprocessing"
DATA = LOADER.rpartition("/")[0]
FORKED = (  # every worker has these outermost: the fork's frames and its parent's
    frame(f"{POOL}/popen_fork.py:66", "_launch", "self.pid = os.fork()"),
    frame(f"{POOL}/popen_fork.py:19", "__init__"),
    frame(f"{LOADER}:1176", "__init__"),
    frame("train.py:14"),
)
WORKER = (
    frame(f"{DATA}/_utils/fetch.py:52", "fetch"),
    frame(f"{DATA}/_utils/worker.py:349", "_worker_loop"),
    frame(f"{POOL}/process.py:108", "run"),
    frame(f"{POOL}/process.py:314", "BaseProcess._bootstrap"),
    frame(f"{POOL}/popen_fork.py:71", "_launch"),
    *FORKED[1:],
)


@pytest.mark.parametrize(("frames", "call", "text"), [
    ((frame("data.py:31", "decode", "time.sleep(3)"), *WORKER), "clock_nanosleep",
     "sleeps at data.py:31 (decode)"),
    ((frame("data.py:31", "decode", "lock.acquire()"), *WORKER), "futex",
     "waits for a lock or another thread at data.py:31 (decode)"),
    ((frame(f"{DATA}/dataset.py:9", "__getitem__"), *WORKER), "futex",
     "at torch/utils/data/dataset.py:9 (__getitem__)"),
    ((frame("data.py:8", "__setstate__", "time.sleep(3)"), frame(f"{POOL}/queues.py:113", "get"),
      *WORKER[1:]), "clock_nanosleep", "sleeps at data.py:8 (__setstate__)"),
    ((frame(f"{POOL}/popen_fork.py:73", "_launch", "os._exit(code)"), *FORKED[1:]), "futex", ""),
    ((frame(f"{POOL}/connection.py:257", "poll"), frame(f"{POOL}/queues.py:113", "get"),
      *WORKER[1:]), "poll", "waits for the next index, for"),
    ((frame(f"{POOL}/queues.py:94", "put"), *WORKER[1:]), "futex",
     "waits for a lock or another thread at multiprocessing/queues.py:94 (put)"),
    ((frame("data.py:40", "connect", "sock.connect(a)"), frame("data.py:9", "init"), *WORKER[1:]),
     "connect", "waits for a socket at data.py:40 (connect)"),
    (FORKED, "futex", "is still in its fork, asleep on a lock"),
    (FORKED, "", "is still in its fork, for"),
    ((frame("lib.py:10", "_after_fork", "_lock.acquire()"), *FORKED), "futex",
     "is still in its fork: waits for a lock or another thread at lib.py:10 (_after_fork)"),
    ((frame("lib.py:10", "_after_fork", "_lock.acquire()"),
      frame(f"{POOL}/popen_fork.py:66", "Popen._launch"), *FORKED[1:]), "futex",
     "is still in its fork: waits for a lock or another thread at lib.py:10 (_after_fork)"),
    ((), "futex", ""),
])  # fmt: skip
def test_a_workers_own_frames_show_what_it_does(
    frames: tuple[wire.TraceFrame, ...], call: str, text: str
) -> None:
    feeder = (frame(f"{POOL}/queues.py:231", "_feed", "nwait()"),)

    def play(scene: Scene) -> None:
        scene.fetches(2, worker=2, pid=90112)
        scene.worker(2, 90112, "S", call)
        scene.actors[2].child_stacks[90112] = frames
        scene.actors[2].child_threads = (
            wire.ThreadStack(2, 90113, "QueueFeederThread", False, False, feeder),
        )

    verdict = only(absent(play).settle())
    activity = verdict.why.text.partition("(pid 90112)")[2]
    assert activity.startswith(f": {text}" if text else ", for ")
    forks = "fork" in text
    assert verdict.why.layer == ("software" if forks else "data")
    assert any("gh-112275" in line for line in verdict.evidence) == (forks and call == "futex")
    assert verdict.next == f"py-spy dump {'--native ' if forks else ''}--pid 90112"


@pytest.mark.parametrize("inner", [
    (frame("fetch.py:8", "download"),),
    (frame("/usr/lib/python3.11/socket.py:706", "readinto"),
     frame("/venv/lib/python3.11/site-packages/store.py:8", "download")),
])  # fmt: skip
def test_of_a_worker_that_polls_its_thread_that_loads_is_told(
    inner: tuple[wire.TraceFrame, ...],
) -> None:
    def play(scene: Scene) -> None:
        scene.fetches(2, worker=2, pid=90112)
        scene.worker(2, 90112, "S", "clock_nanosleep")
        polls = frame("/venv/lib/python3.11/site-packages/stream.py:9", "wait", "sleep(TICK)")
        scene.actors[2].child_stacks[90112] = (polls, *WORKER)
        other = (frame("/usr/lib/python3.11/threading.py:320", "wait"),)
        scene.actors[2].child_threads = tuple(
            wire.ThreadStack(n, 90112 + n, name, False, False, frames)
            for n, (name, frames) in enumerate((("loader", inner), ("feeder", other)), 1)
        )

    text = only(absent(play).settle()).why.text
    told = text.partition("(pid 90112): sleeps at stream.py:9 (wait)")[2]
    line = f"{inner[-1].file.rpartition('/')[2]}:8 (download)"
    assert told.startswith(f', and its thread "loader" is at {line}')


def test_a_process_that_a_worker_started_is_told() -> None:
    def play(scene: Scene) -> None:
        scene.fetches(2, worker=2, pid=90112)
        scene.worker(2, 90112, "S", "wait4")
        scene.worker(2, 90111, "S", "poll")
        child = wire.Process(90120, "S", "ffmpeg", "", "read", "", 0, 0, parent=90112)
        scene.actors[2].children.append(child)
        waits = frame("/usr/lib/python3.11/subprocess.py:2011", "_try_wait")
        scene.actors[2].child_stacks[90112] = (waits, frame("data.py:12", "decode"), *WORKER)

    text = only(absent(play).settle()).why.text
    does = (
        "waits for a process that it started: pid 90120 (ffmpeg), state S; at data.py:12 (decode)"
    )
    assert f"(pid 90112): {does}" in text


def test_what_a_worker_started_is_told_where_it_reads_a_pipe() -> None:
    def play(scene: Scene) -> None:
        scene.fetches(2, worker=2, pid=90112)
        scene.worker(2, 90112, "S", "read", "pipe:[42]")
        for pid, name, parent in ((90120, "sh", 90112), (90121, "cat", 90120)):
            child = wire.Process(pid, "S", name, "", "", "", 0, 0, parent=parent)
            scene.actors[2].children.append(child)
        reads = frame("/venv/lib/python3.11/site-packages/tars.py:9", "read", "self.out.read(8)")
        scene.actors[2].child_stacks[90112] = (reads, *WORKER)

    text = only(absent(play).settle()).why.text
    started = "pid 90120 (sh), state S; pid 90121 (cat), state S"
    reads = "waits for the other end of a pipe: read pipe:[42] at tars.py:9 (read)"
    assert f"(pid 90112): {reads}; it started {started}, for" in text


def test_what_a_worker_started_is_no_worker() -> None:
    scene = Unprepared(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=40)
    scene.at(2, *DATALOADER)
    scene.worker(2, 4711, "S", "read")
    scene.actors[2].children.append(
        wire.Process(4720, "S", "cat", "wait_for_partner", "openat", "", 0, 0, parent=4711)
    )
    text = only(scene.settle(12)).why.text
    assert "a DataLoader worker (pid 4711), which started pid 4720 (cat): openat" in text


def test_a_fetch_of_another_thread_is_not_why_a_rank_is_absent() -> None:
    scene = absent(sleeps)
    scene.fetches(2, worker=1, pid=90112)
    scene.sleeps(2)
    assert only(scene.settle()).why.cause == "sleeping"


def test_the_worker_of_a_finished_fetch_is_not_the_one_waited_for() -> None:
    """The loader asks its workers in turn, so the next batch comes from another one."""
    scene = absent(sleeps)
    scene.fetches(2, worker=1, pid=90112)
    scene.actors[2].fetch = wire.DataLoaderFetch(1, 2, 1, 90112, 4)
    scene.worker(2, 90112, "S", "futex")
    scene.worker(2, 90113, "D", "read", "/data/shard-0412")
    verdict = only(scene.settle())
    assert verdict.why.cause == "dataloader"
    assert "90113" in verdict.why.text
    assert "90112" not in verdict.why.text + verdict.next


@pytest.mark.parametrize("stuck", [1, 2])
def test_without_a_recorder_the_worker_that_does_not_poll_its_queue_is_the_one(stuck: int) -> None:
    scene = Unprepared(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=40)
    scene.at(2, *DATALOADER)
    for pid in range(4):
        scene.worker(2, 4711 + pid, "S", "futex" if pid < stuck else "poll")
        inner = frame("data.py:12", "read", "with lock:")
        scene.actors[2].child_stacks[4711 + pid] = (inner, *WORKER)
    verdict = only(scene.settle(12))
    assert (verdict.culprits, verdict.why.cause) == ((2,), "dataloader")
    told = [text for text in verdict.evidence if "its child" in text]
    text = "waits for a lock or another thread at data.py:12 (read)"
    if stuck == 1:
        assert f"a DataLoader worker (pid 4711): {text}" in verdict.why.text
        assert told == []
    else:
        found = [f"its child pid {n} (pt_data_worker) {text} `with lock:`" for n in (4711, 4712)]
        assert told == found
