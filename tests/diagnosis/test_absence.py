"""Who has not entered, and why: each cause, seen as a live screen would see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs
from msgspec.structs import replace

from diagnosis.scenes import BACKWARD, LOADER, LOCK, Scene, frame, only
from frtop_probe import wire
from frtop_probe.ring.fold import fold
from frtop_tui.diagnosis.evidence.absence_cause import stacks_step
from frtop_tui.diagnosis.model import Verdict, unjudged
from frtop_tui.job.model import RankState
from frtop_tui.report.text import exit_status

DATASET = (
    frame("data.py:12", "__getitem__", "return torch.load(self.files[i])"),
    frame(f"{LOADER}:788", "_next_data"),
    frame("train.py:14"),
)


def stuck_worker(scene: Scene) -> None:
    scene.fetches(2, worker=2, pid=90112)
    scene.worker(2, 90111, "S", "futex")
    scene.worker(2, 90112, "D", "read", "/data/shard-0412")


def stuck_worker_by_stack(scene: Scene) -> None:
    scene.fetches(2, worker=2, pid=90112)
    scene.worker(2, 90112, "S", "futex")
    scene.actors[2].child_stacks[90112] = (frame("data.py:31", "decode", "lock.acquire()"),)


POOL = "/usr/lib/python3.11/multiprocessing"
DATA = LOADER.rpartition("/")[0]
FORKED = (  # what every worker has below its own frames: those of the fork, and its parent's
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
     "sleeping at data.py:31 (decode)"),
    ((frame("data.py:31", "decode", "lock.acquire()"), *WORKER), "futex",
     "lock at data.py:31 (decode)"),
    ((frame(f"{DATA}/dataset.py:9", "__getitem__"), *WORKER), "futex",
     "at torch/utils/data/dataset.py:9 (__getitem__)"),
    ((frame("data.py:8", "__setstate__", "time.sleep(3)"), frame(f"{POOL}/queues.py:113", "get"),
      *WORKER[1:]), "clock_nanosleep", "sleeping at data.py:8 (__setstate__)"),
    ((frame(f"{POOL}/popen_fork.py:73", "_launch", "os._exit(code)"), *FORKED[1:]), "futex", ""),
    ((frame(f"{POOL}/connection.py:257", "poll"), frame(f"{POOL}/queues.py:113", "get"),
      *WORKER[1:]), "poll", "waits for the next index itself"),
    ((frame(f"{POOL}/queues.py:94", "put"), *WORKER[1:]), "futex",
     "lock at multiprocessing/queues.py:94 (put)"),
    ((frame("data.py:40", "connect", "sock.connect(a)"), frame("data.py:9", "init"), *WORKER[1:]),
     "connect", "socket at data.py:40 (connect)"),
    (FORKED, "futex", "has not got past its fork, asleep on a lock"),
    (FORKED, "", "has not got past its fork, for"),
    ((frame("lib.py:10", "_after_fork", "_lock.acquire()"), *FORKED), "futex",
     "has not got past its fork: lock at lib.py:10 (_after_fork)"),
    ((frame("lib.py:10", "_after_fork", "_lock.acquire()"),
      frame(f"{POOL}/popen_fork.py:66", "Popen._launch"), *FORKED[1:]), "futex",
     "has not got past its fork: lock at lib.py:10 (_after_fork)"),
    ((), "futex", ""),
])  # fmt: skip
def test_what_a_worker_does_is_told_by_its_own_frames(
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
    said = verdict.why.text.partition("(pid 90112)")[2]
    assert said.startswith(f": {text}" if text else ", for ")
    forks = "fork" in text
    assert verdict.why.layer == ("software" if forks else "data")
    assert any("gh-112275" in line for line in verdict.evidence) == (forks and call == "futex")
    assert verdict.next == f"py-spy dump {'--native ' if forks else ''}--pid 90112"


def unknown_worker(scene: Scene) -> None:
    scene.fetches(2, worker=-1, workers=0)
    scene.worker(2, 90111, "S", "futex")
    scene.worker(2, 90112, "S", "read", "/data/shard-0412")


def loads_itself(scene: Scene) -> None:
    scene.fetches(2, worker=-2, workers=0)
    scene.at(2, *DATASET)
    scene.kernel(2, "D", "read", "folio_wait_bit", "/nfs/shard-7")


def loader_by_stack_alone(scene: Scene) -> None:
    scene.at(2, *DATASET)


def stopped(scene: Scene) -> None:
    scene.kernel(2, "T")
    scene.silent(2, 10)


def traced(scene: Scene) -> None:
    scene.kernel(2, "t")
    scene.silent(2, 10)


def holds_gil(scene: Scene) -> None:
    scene.silent(2, 10)
    scene.actors[2].owns_gil = True
    scene.at(2, frame("ext.py:60", "run", "lib.solve(x)"))


def holds_gil_in_a_library(scene: Scene) -> None:
    scene.silent(2, 9)
    scene.actors[2].owns_gil = True
    scene.at(
        2,
        frame("/usr/lib/python3.11/re/__init__.py:185", "sub"),
        frame("data.py:7", "clean", "return re.sub(WORDS, '', text)"),
        active=True,
    )


def holds_gil_unseen(scene: Scene) -> None:
    scene.silent(2, 10)
    scene.actors[2].dump_error = "refused"


def reads_file(scene: Scene) -> None:
    scene.at(2, frame("train.py:44", source="state = handle.read()"))
    scene.kernel(2, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")


def opens_pipe(scene: Scene) -> None:
    scene.at(2, frame("/usr/lib/python3.11/pathlib.py:1044", "open", "return io.open(self)"))
    scene.kernel(2, "S", "openat", "wait_for_partner")


def reads_unseen(scene: Scene) -> None:
    scene.actors[2].dump_error = "refused"
    scene.kernel(2, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")


def saves_checkpoint(scene: Scene) -> None:
    scene.at(2, frame("train.py:70", source="torch.save(state, path)"))
    scene.kernel(2, "S", "write", "", "/ckpt/step-100.pt")


def sleeps(scene: Scene) -> None:
    scene.sleeps(2)


def sleeps_unseen(scene: Scene) -> None:
    scene.actors[2].dump_error = "refused"
    scene.kernel(2, "S", "clock_nanosleep", "hrtimer_nanosleep")


def waits_for_lock(scene: Scene) -> None:
    scene.at(2, *LOCK)


def joins_thread(scene: Scene) -> None:
    scene.at(2, frame("train.py:71", source="writer.join()"))


def waits_for_socket(scene: Scene) -> None:
    scene.at(2, frame("/usr/lib/python3.11/socket.py:718", "readinto"), frame("wandb.py:9"))
    scene.kernel(2, "S", "recvfrom", "tcp_recvmsg", "socket:[123]")


def compiles(scene: Scene) -> None:
    scene.at(
        2,
        frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:88", "compile"),
        frame("train.py:18"),
    )


def computes(scene: Scene) -> None:
    scene.at(2, frame("train.py:35", source="matrix = matrix @ matrix"), active=True)
    scene.kernel(2, "R")


def runs_unseen(scene: Scene) -> None:
    scene.actors[2].dump_error = "refused"
    scene.kernel(2, "R")


def locks_file(scene: Scene) -> None:
    scene.at(2, frame("train.py:70", source="fcntl.flock(handle, fcntl.LOCK_EX)"))
    scene.kernel(2, "S", "flock", "locks_lock_inode_wait", "/ckpt/.lock")


def locks_file_by_library(scene: Scene) -> None:
    scene.at(2, frame("lock.py:5", "__enter__", "with self.lock:"))
    scene.kernel(2, "S", "#999", "locks_lock_inode_wait")


def locks_file_with_fcntl(scene: Scene) -> None:
    scene.at(2, frame("train.py:70", source="fcntl.lockf(handle, fcntl.LOCK_EX)"))
    scene.kernel(2, "S", "fcntl", "fcntl_setlk", "/ckpt/.lock")


def locks_file_unseen(scene: Scene) -> None:
    scene.actors[2].dump_error = "refused"
    scene.kernel(2, "S", "flock", "", "/ckpt/.lock")


def worker_locks_file(scene: Scene) -> None:
    scene.fetches(2, worker=2, pid=90112)
    scene.worker(2, 90112, "S", "flock", "/data/.lock")


def asyncio_server(scene: Scene) -> None:
    scene.at(
        2,
        frame("/usr/lib/python3.11/selectors.py:468", "select"),
        frame("/usr/lib/python3.11/asyncio/base_events.py:1884", "_run_once"),
        frame("/usr/lib/python3.11/asyncio/base_events.py:608", "run_forever"),
        frame("serve.py:40", "main", "asyncio.run(serve())"),
    )
    scene.kernel(2, "S", "epoll_wait", "ep_poll")


def other_loop(scene: Scene) -> None:
    scene.at(2, frame("/usr/lib/python3.11/asyncio/runners.py:118", "run"), frame("serve.py:40"))
    scene.kernel(2, "S", "epoll_pwait", "ep_poll")


def thread_server(scene: Scene) -> None:
    scene.at(
        2,
        frame("/usr/lib/python3.11/selectors.py:415", "select"),
        frame("/usr/lib/python3.11/socketserver.py:233", "serve_forever"),
        frame("serve.py:40"),
    )
    scene.kernel(2, "S", "poll", "poll_schedule_timeout")


def listening_socket(scene: Scene) -> None:
    scene.at(2, frame("/usr/lib/python3.11/socket.py:292", "accept"), frame("serve.py:40"))
    scene.kernel(2, "S", "accept4", "inet_csk_accept")


def server_unseen(scene: Scene) -> None:
    scene.actors[2].dump_error = "refused"
    scene.kernel(2, "S", "epoll_wait", "ep_poll")


@pytest.mark.parametrize("play", [
    asyncio_server, other_loop, thread_server, listening_socket, server_unseen,
], ids=lambda p: p.__name__)  # fmt: skip
def test_a_server_without_work_holds_the_others_up_and_does_not_hang(
    play: Callable[[Scene], None],
) -> None:
    found = absent(play, for_s=300).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "idle")
    assert (verdict.confidence, verdict.progress) == ("confirmed", "unknown")
    assert "waits for work from outside the job" in verdict.why.text
    assert verdict.next.startswith("send rank 2 work")
    assert found.health == "held up"
    assert exit_status(found) == 5


def test_a_rank_that_gets_nowhere_is_blamed_before_a_server_without_work() -> None:
    scene = absent(asyncio_server)
    scene.actors[3].pending.clear()
    scene.actors[3].group_progress.clear()
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert verdict.culprits == (3,)


def runs_tool(scene: Scene) -> None:
    scene.at(2, frame("/usr/lib/python3.11/subprocess.py:2047", "_wait"), frame("train.py:33"))
    scene.kernel(2, "S", "wait4", "do_wait")
    scene.actors[2].children.append(wire.Process(90113, "S", "ffmpeg", parent=1002))


def prints_into_full_pipe(scene: Scene) -> None:
    scene.at(2, frame("train.py:33", source="print(metrics)"))
    scene.kernel(2, "S", "write", "anon_pipe_write", "pipe:[17]")


def debugged_by_hand(scene: Scene) -> None:
    scene.at(2, frame("/usr/lib/python3.11/pdb.py:360", "interaction"), frame("train.py:33"))
    scene.kernel(2, "S", "read", "wait_woken", "/dev/pts/3")


def reads_requests(scene: Scene) -> None:
    scene.at(2, frame("serve.py:33", source="for request in sys.stdin:"))
    scene.kernel(2, "S", "read", "anon_pipe_read", "pipe:[17]")


def waits_for_key(scene: Scene) -> None:
    scene.at(2, frame("train.py:33", source='store.get("shard")'))
    scene.kernel(2, "S", "poll", "poll_schedule_timeout")


@pytest.mark.parametrize("play", [debugged_by_hand, reads_requests], ids=lambda p: p.__name__)
def test_whether_anybody_will_type_cannot_be_seen(play: Callable[[Scene], None]) -> None:
    found = absent(play, for_s=300).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "input")
    assert (verdict.confidence, verdict.progress) == ("confirmed", "unknown")
    assert "waits for its input, or for somebody to type: read" in verdict.why.text
    assert "take out what asks at" in verdict.next
    assert found.health == "held up"


CAUSES: list[tuple[Callable[[Scene], None], str, str, str]] = [
    (stuck_worker, "dataloader", "worker 2 of 4 (pid 90112): read /data/shard-0412, state D",
     "/data/shard-0412"),
    (stuck_worker_by_stack, "dataloader", "lock at data.py:31", "--pid 90112"),
    (unknown_worker, "dataloader", "(pid 90112): read /data/shard-0412", "/data/shard-0412"),
    (loads_itself, "dataloader", "loads the next batch itself read /nfs/shard-7, state D",
     "/nfs/shard-7"),
    (loader_by_stack_alone, "dataloader", "data.py:12", "py-spy dump --pid 1002"),
    (stopped, "stopped", "SIGSTOP", "kill -CONT 1002"),
    (traced, "stopped", "debugger", "TracerPid"),
    (holds_gil, "gil", "ext.py:60 (run) `lib.solve(x)`", "ext.py:60"),
    (holds_gil_in_a_library, "gil", "data.py:7 (clean) `return re.sub", "look at data.py:7"),
    (holds_gil_unseen, "gil", "holds the GIL in C", "to see its stacks: ptrace is refused"),
    (reads_file, "file_io", "read /nfs/vocabulary, state D", "/nfs/vocabulary"),
    (opens_pipe, "file_io", "openat", "/proc/1002"),
    (reads_unseen, "file_io", "read /nfs/vocabulary, state D", "/nfs/vocabulary"),
    (saves_checkpoint, "file_io", "write /ckpt/step-100.pt", "/ckpt/step-100.pt"),
    (sleeps, "sleeping", "train.py:33 (train) `time.sleep(3600)`", "train.py:33"),
    (sleeps_unseen, "sleeping", "sleeps", "to see its stacks: ptrace is refused"),
    (waits_for_lock, "lock", "train.py:40", "py-spy dump --pid 1002"),
    (joins_thread, "lock", "train.py:71 (train) `writer.join()`", "py-spy dump --pid 1002"),
    (waits_for_socket, "socket", "wandb.py:9", "ss -tnp"),
    (compiles, "compiling", "train.py:18", "py-spy"),
    (runs_tool, "subprocess", "started: pid 90113 (ffmpeg), state S; at train.py:33",
     "--ppid 1002"),
    (prints_into_full_pipe, "pipe", "write pipe:[17] at train.py:33 (train) `print(metrics)`",
     "grep -F 'pipe:[17]'"),
    (waits_for_key, "store", "another rank has to set, at train.py:33", "look at train.py:33"),
    (computes, "computing", "train.py:35", "py-spy top --pid 1002"),
    (runs_unseen, "computing", "runs", "top -H -p 1002"),
    (locks_file, "lock", "another process has locked: flock /ckpt/.lock",
     "lslocks | grep /ckpt/.lock; fuser /ckpt/.lock"),
    (locks_file_by_library, "lock", "lock.py:5", "cat /proc/locks"),
    (locks_file_with_fcntl, "lock", "fcntl /ckpt/.lock", "lslocks | grep /ckpt/.lock"),
    (locks_file_unseen, "lock", "flock /ckpt/.lock", "fuser /ckpt/.lock"),
    (worker_locks_file, "dataloader", "(pid 90112): flock /data/.lock", "lslocks"),
]  # fmt: skip


def absent(play: Callable[[Scene], None], for_s: float = 10) -> Scene:
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=for_s)
    play(scene)
    return scene


@pytest.mark.parametrize(("play", "cause", "text", "step"), CAUSES, ids=lambda v: getattr(
    v, "__name__", ""))  # fmt: skip
def test_each_cause_is_told(
    play: Callable[[Scene], None], cause: str, text: str, step: str
) -> None:
    verdict = only(absent(play).settle())
    assert verdict.kind == "not_entered"
    assert verdict.culprits == (2,)
    assert fold(verdict.victims) == "0-1,3"
    assert verdict.why.cause == cause
    assert text in verdict.why.text
    assert step in verdict.next


RUNNING = (computes, runs_unseen)


@pytest.mark.parametrize(
    "play", [play for play, *_ in CAUSES if play not in RUNNING], ids=lambda p: p.__name__
)
def test_without_progress_each_is_confirmed_and_hung(play: Callable[[Scene], None]) -> None:
    found = absent(play).settle()
    verdict = only(found)
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
    assert found.health == "hung"
    assert exit_status(found) == 3


@pytest.mark.parametrize("play", RUNNING, ids=lambda p: p.__name__)
def test_who_could_run_and_gets_no_processor_is_not_called_hung(
    play: Callable[[Scene], None],
) -> None:
    found = absent(play).settle()
    verdict = only(found)
    assert (verdict.culprits, verdict.confidence, verdict.progress) == (
        (2,),
        "confirmed",
        "unknown",
    )
    assert (found.health, exit_status(found)) == ("held up", 5)
    assert any("got no processor" in line for line in verdict.evidence)


def test_who_could_run_and_gets_little_is_held_up() -> None:
    scene = absent(runs_unseen)
    found = scene.judge().frame
    for step in range(10):
        scene.pass_time(0.5)
        scene.kernel(2, "R", cpu_ns=step * 10_000_000)
        found = scene.judge().frame
    verdict = only(found)
    assert (verdict.confidence, verdict.progress) == ("confirmed", "active")
    assert found.health == "held up"
    assert "it could run in both looks, and got 1.5 % of a core" in verdict.evidence


def test_a_thread_of_it_that_gets_little_counts_as_well() -> None:
    scene = absent(waits_for_lock)
    found = unjudged(scene.frame())
    for step in range(10):
        scene.pass_time(0.5)
        scene.actors[2].threads = (wire.Process(1102, "R", "omp", cpu_ns=step * 10_000_000),)
        found = scene.judge().frame
    assert only(found).progress == "active"


@pytest.mark.parametrize(("per_s", "cpu_ns", "progress"), [
    (300_000_000, 0, "none"),  # a transport's thread, on a full host: asleep in between
    (300_000_000, 5_000_000, "none"),
    (0, 0, "unknown"),  # has not had a single turn
    (1_000_000_000, 5_000_000, "active"),
    (700_000_000, 5_000_000, "active"),  # waits for the GIL in between
])  # fmt: skip
def test_a_thread_that_only_happens_to_be_about_to_run_gets_nowhere(
    per_s: int, cpu_ns: int, progress: str
) -> None:
    scene = absent(reads_file)
    found = unjudged(scene.frame())
    for step in range(12):
        scene.pass_time(0.5)
        scene.actors[2].threads = (
            wire.Process(
                1102, "R", "gloo_tcp_loop", cpu_ns=step * cpu_ns, ready_ns=1 + step * per_s // 2
            ),
        )
        found = scene.judge().frame
    assert only(found).progress == progress
    assert found.health == ("hung" if progress == "none" else "held up")


def test_a_helper_that_could_run_is_no_progress_of_the_rank() -> None:
    scene = absent(sleeps)
    found = unjudged(scene.frame())
    for step in range(12):
        scene.pass_time(0.5)
        scene.actors[2].children = [wire.Process(90113, "R", "nice", cpu_ns=step * 10_000_000)]
        found = scene.judge().frame
    assert (only(found).progress, found.health) == ("none", "hung")


@pytest.mark.parametrize(("mib", "progress"), [(40, "active"), (2, "none")])
def test_who_maps_a_file_into_memory_makes_progress(mib: int, progress: str) -> None:
    scene = absent(lambda scene: scene.kernel(2, "D"))
    found = unjudged(scene.frame())
    for step in range(12):
        scene.pass_time(0.5)
        scene.actors[2].process = wire.Process(1002, "D", "python", rss=step * mib << 20)
        found = scene.judge().frame
    assert only(found).progress == progress


def test_a_look_that_is_newer_than_what_was_told_blames_nobody() -> None:
    scene = absent(reads_file)
    assert only(scene.settle()).why.cause == "file_io"
    before = dict(scene.actors[2].group_progress)
    scene.pass_time(6)  # till it is looked at again
    scene.does([2], "all_reduce", ago=0.1)  # it has come, and sleeps behind that op
    told, scene.actors[2].group_progress = scene.actors[2].group_progress, before
    scene.sleeps(2)
    scene.judge()  # takes the look
    scene.pass_time(0.2)
    assert scene.judge().frame.verdicts == ()
    scene.actors[2].group_progress = told
    for rank in (0, 1, 3):
        scene.actors[rank].pending.clear()
    assert scene.settle(1).verdicts == ()


def test_who_happens_to_run_in_one_look_only_gets_nowhere() -> None:
    scene = absent(sleeps)
    for step in range(20):
        scene.kernel(2, "R" if step % 7 == 0 else "S", cpu_ns=step * 10_000_000)
        found = scene.judge().frame
        scene.pass_time(0.5)
    assert only(found).progress == "none"
    assert found.health == "hung"


@pytest.mark.parametrize(("play", "posture"), [
    (stopped, "stopped"), (holds_gil, "silent"), (sleeps, "late"), (stuck_worker, "late"),
    (computes, "late"), (reads_file, "late"),
])  # fmt: skip
def test_the_posture_of_the_absent_rank(play: Callable[[Scene], None], posture: RankState) -> None:
    found = absent(play).settle()
    assert {rank: view.state for rank, view in found.ranks.items()} == {
        0: "blocked", 1: "blocked", 2: posture, 3: "blocked",
    }  # fmt: skip


def test_the_headline_says_who_what_and_who_waits() -> None:
    verdict = only(absent(sleeps).settle())
    assert verdict.headline == (
        "rank 2 (node0 pid 1002) has not entered all_reduce #8 of default_pg; ranks 0-1,3 wait"
    )
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_reduce", 8)


def test_the_wait_its_usual_length_and_its_line_are_evidence() -> None:
    verdict = only(absent(sleeps).settle(0))
    assert (
        "rank 0 waits in all_reduce #8 of default_pg for 10s (there usually 20ms)"
        in (verdict.evidence[0])
    )
    assert "train.py:20" in verdict.evidence[0]


def test_the_time_left_is_that_of_the_first_waiter() -> None:
    scene = Scene(4, timeout_s=600)
    scene.waits([0, 1], "all_reduce", for_s=10)
    scene.waits([3], "all_reduce", for_s=100)
    scene.sleeps(2)
    verdict = only(scene.settle(0))
    assert verdict.left_s == pytest.approx(500)


def test_an_ops_own_timeout_counts_before_the_groups() -> None:
    scene = absent(sleeps)
    assert only(scene.settle(0)).left_s == pytest.approx(1790)


def test_a_path_that_is_a_command_is_quoted_where_it_is_to_be_typed() -> None:
    scene = absent(lambda scene: scene.kernel(2, "D", "read", "nfs_wait", "/x;rm -rf ~"))
    assert "stat -f '/x;rm -rf ~';" in only(scene.settle()).next


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), 1e300, -1.0])
def test_a_timeout_that_makes_no_sense_is_none(timeout_s: float) -> None:
    scene = Scene(4, timeout_s=timeout_s)
    scene.waits([0, 1, 3], "all_reduce", for_s=60)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert verdict.culprits == (2,)
    assert verdict.left_s is None


def test_refused_stacks_are_said_to_be_missing() -> None:
    verdict = only(absent(sleeps_unseen).settle())
    assert verdict.missing == ("stacks of rank 2: ptrace is refused",)


@pytest.mark.parametrize("play", [play for play, *_ in CAUSES], ids=lambda p: p.__name__)
def test_nobody_is_sent_to_a_tool_that_was_just_refused(play: Callable[[Scene], None]) -> None:
    scene = absent(play)
    scene.actors[2].dump_error = "refused"
    assert "py-spy" not in only(scene.settle()).next


def test_a_refusal_without_a_word_leads_to_what_anybody_may_read() -> None:
    scene = absent(holds_gil_unseen)
    scene.settle(0)
    view = scene.frame().ranks[2]
    assert view.snapshot is not None
    dump = wire.StackDump(1002, (), "refused")
    view = replace(view, snapshot=structs.replace(view.snapshot, dumps=(dump,)))
    assert stacks_step(view) == "grep -H . /proc/1002/status /proc/1002/wchan"


def test_evidence_names_nothing_that_is_not_there() -> None:
    scene = absent(lambda scene: scene.kernel(2, "S", "poll", " "))
    assert "pid 1002 state S, syscall poll" in only(scene.settle()).evidence


def test_a_rank_that_burns_cpu_is_held_up_not_hung() -> None:
    scene = absent(computes)
    found = scene.judge().frame
    for step in range(10):
        scene.pass_time(0.5)
        actor = scene.actors[2]
        scene.kernel(2, "R")
        assert actor.process is not None
        actor.process = type(actor.process)(actor.pid, "R", "python", cpu_ns=step * 500_000_000)
        found = scene.judge().frame
    verdict = only(found)
    assert (verdict.confidence, verdict.progress) == ("confirmed", "active")
    assert found.health == "held up"
    assert exit_status(found) == 5


def test_a_rank_whose_worker_still_reads_makes_progress() -> None:
    scene = absent(stuck_worker)
    found = scene.judge().frame
    for step in range(10):
        scene.pass_time(0.5)
        worker = scene.actors[2].children[1]
        scene.actors[2].children[1] = type(worker)(
            worker.pid, "D", "pt_data_worker", "", "read", "/data/shard-0412",
            io_bytes=step * 1_000_000,
        )  # fmt: skip
        found = scene.judge().frame
    assert only(found).progress == "active"
    assert found.health == "held up"


def test_a_stack_that_could_not_be_taken_before_is_no_change() -> None:
    scene = absent(sleeps)
    scene.actors[2].dump_error = "deadline"
    for tick in range(16):
        found = scene.judge().frame
        if tick == 4:  # its next looks are well
            scene.actors[2].dump_error = ""
        scene.pass_time(0.5)
        assert [
            verdict.progress for verdict in found.verdicts if verdict.progress == "active"
        ] == []
    assert (only(found).progress, found.health) == ("none", "hung")


def test_a_changing_stack_is_progress() -> None:
    scene = absent(saves_checkpoint)
    found = scene.judge().frame
    for step in range(10):
        scene.pass_time(0.5)
        scene.at(2, frame(f"train.py:{70 + step}", source="torch.save(state, path)"))
        found = scene.judge().frame
    assert only(found).progress == "active"


def test_before_two_looks_nothing_is_confirmed_and_progress_is_unknown() -> None:
    found = absent(sleeps).judge().frame
    verdict = only(found)
    assert (verdict.confidence, verdict.progress) == ("suspect", "unknown")
    assert found.health == "held up"


def test_without_any_look_it_stays_a_suspicion() -> None:
    scene = absent(sleeps)
    scene.look = lambda judgement: None  # type: ignore[method-assign]
    assert only(scene.settle(10)).confidence == "suspect"


def test_a_stopped_rank_needs_no_look() -> None:
    scene = absent(stopped)
    scene.look = lambda judgement: None  # type: ignore[method-assign]
    verdict = only(scene.settle(3))
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")


def test_two_absent_ranks_of_the_same_cause_share_a_verdict() -> None:
    scene = Scene(8)
    scene.waits([0, 1, 2, 3, 4, 5], "all_reduce", for_s=10)
    scene.sleeps(6)
    scene.sleeps(7)
    verdict = only(scene.settle())
    assert verdict.culprits == (6, 7)
    assert verdict.headline.startswith("ranks 6-7 have not entered")


def test_independent_causes_stand_side_by_side() -> None:
    scene = Scene(8)
    scene.waits([0, 1, 2, 3, 4, 5], "all_reduce", for_s=10)
    scene.sleeps(6)
    scene.kernel(7, "T")
    scene.silent(7, 10)
    found = scene.settle()
    assert {(v.culprits, v.why.cause) for v in found.verdicts} == {
        ((6,), "sleeping"),
        ((7,), "stopped"),
    }


def test_a_busy_rank_is_not_blamed_beside_one_that_gets_nowhere() -> None:
    scene = Scene(8)
    scene.waits([0, 1, 2, 3, 4, 5], "all_reduce", for_s=10)
    scene.sleeps(6)
    found = scene.judge().frame
    for step in range(10):
        scene.pass_time(0.5)
        scene.actors[7].step = step
        found = scene.judge().frame
    verdict = only(found)
    assert verdict.culprits == (6,)
    assert "rank 7 not there either, but moving" in verdict.evidence


def test_a_rank_late_in_the_backward_pass_computes() -> None:
    scene = absent(lambda scene: scene.at(2, *BACKWARD, active=True))
    assert only(scene.settle()).why.cause == "computing"


def test_when_the_rank_comes_the_verdict_goes() -> None:
    scene = absent(sleeps)
    assert scene.settle().verdicts
    for actor in scene.actors.values():
        actor.pending.clear()
    scene.does([2], "all_reduce", ago=0.1)
    found = scene.settle(1)
    assert not found.verdicts
    assert found.health == "healthy"
    assert {view.state for view in found.ranks.values()} == {"moving"}


def test_a_later_absence_is_confirmed_anew() -> None:
    scene = absent(sleeps)
    scene.settle()
    for actor in scene.actors.values():
        actor.pending.clear()
    scene.does([2], "all_reduce", ago=0.1)
    scene.settle(6)
    scene.waits([0, 1, 3], "all_reduce", for_s=4)
    assert only(scene.judge().frame).confidence == "suspect"


def test_the_culprits_last_op_is_evidence() -> None:
    verdict: Verdict = only(absent(sleeps).settle())
    assert "rank 2 last issued all_reduce #7 of default_pg at train.py:20" in verdict.evidence


def test_a_worker_that_prefetches_in_a_side_thread_is_no_cause() -> None:
    scene = absent(sleeps)
    scene.fetches(2, worker=1, pid=90112)
    scene.sleeps(2)
    assert only(scene.settle()).why.cause == "sleeping"


def test_number_and_group_are_left_out_where_counting_is_relative() -> None:
    scene = Scene(4, exact=False)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert verdict.culprits == (2,)
    assert verdict.op is not None
    assert verdict.op.number is None
    assert "#" not in " ".join([verdict.headline, *verdict.evidence])


def test_who_waits_for_a_key_of_the_store_is_kept_by_who_may_have_to_set_it() -> None:
    scene = Scene(4)
    scene.waits([0], "all_reduce", for_s=10)
    for rank in (1, 2):
        scene.at(rank, frame("train.py:33", source="store.wait(keys)"))
        scene.kernel(rank, "S", "poll", "poll_schedule_timeout")
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert (verdict.culprits, verdict.why.cause) == ((3,), "sleeping")
    assert "ranks 1-2 not there either: kept by a lock or a store" in verdict.evidence


def test_very_many_at_the_store_do_not_hide_who_is_elsewhere() -> None:
    scene = Scene(80)
    scene.waits([79], "all_reduce", for_s=10)
    for rank in range(78):
        scene.at(rank, frame("train.py:44", source="store.get('shard')"))
        scene.kernel(rank, "S", "poll", "poll_schedule_timeout")
    scene.sleeps(78)
    judged = scene.settle(8)
    assert judged.health == "hung"
    assert (only(judged).culprits, only(judged).why.cause) == ((78,), "sleeping")
