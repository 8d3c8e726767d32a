"""Scenes in which rank 2 of four is absent: one function for each reason."""

from __future__ import annotations

from collections.abc import Callable

from diagnosis.scenes import LOADER, LOCK, Scene, frame, three_wait
from frtop_probe import wire

DATASET = (
    frame("data.py:12", "__getitem__", "return torch.load(self.files[i])"),
    frame(f"{LOADER}:788", "_next_data"),
    frame("train.py:14"),
)


def stuck_worker(scene: Scene, rank: int = 2) -> None:
    scene.fetches(rank, worker=2, pid=90112)
    scene.worker(rank, 90111, "S", "futex")
    scene.worker(rank, 90112, "D", "read", "/data/shard-0412")


def stuck_worker_by_stack(scene: Scene, rank: int = 2) -> None:
    scene.fetches(rank, worker=2, pid=90112)
    scene.worker(rank, 90112, "S", "futex")
    scene.actors[rank].child_stacks[90112] = (frame("data.py:31", "decode", "lock.acquire()"),)


def unknown_worker(scene: Scene, rank: int = 2) -> None:
    scene.fetches(rank, worker=-1, workers=0)
    scene.worker(rank, 90111, "S", "futex")
    scene.worker(rank, 90112, "S", "read", "/data/shard-0412")


def loads_itself(scene: Scene, rank: int = 2) -> None:
    scene.fetches(rank, worker=-2, workers=0)
    scene.at(rank, *DATASET)
    scene.kernel(rank, "D", "read", "folio_wait_bit", "/nfs/shard-7")


def loader_by_stack_alone(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, *DATASET)


def stopped(scene: Scene, rank: int = 2) -> None:
    scene.kernel(rank, "T")
    scene.silent(rank, 10)


def traced(scene: Scene, rank: int = 2) -> None:
    scene.kernel(rank, "t")
    scene.silent(rank, 10)


def holds_gil(scene: Scene, rank: int = 2) -> None:
    scene.silent(rank, 10)
    scene.actors[rank].owns_gil = True
    scene.at(rank, frame("ext.py:60", "run", "lib.solve(x)"))


def holds_gil_in_a_library(scene: Scene, rank: int = 2) -> None:
    scene.silent(rank, 9)
    scene.actors[rank].owns_gil = True
    scene.at(
        rank,
        frame("/usr/lib/python3.11/re/__init__.py:185", "sub"),
        frame("data.py:7", "clean", "return re.sub(WORDS, '', text)"),
        active=True,
    )


def holds_gil_unseen(scene: Scene, rank: int = 2) -> None:
    scene.silent(rank, 10)
    scene.actors[rank].dump_error = "refused"


def reads_file(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:44", source="state = handle.read()"))
    scene.kernel(rank, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")


def opens_pipe(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/pathlib.py:1044", "open", "return io.open(self)"))
    scene.kernel(rank, "S", "openat", "wait_for_partner")


def reads_unseen(scene: Scene, rank: int = 2) -> None:
    scene.actors[rank].dump_error = "refused"
    scene.kernel(rank, "D", "read", "nfs_wait_bit", "/nfs/vocabulary")


def saves_checkpoint(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:70", source="torch.save(state, path)"))
    scene.kernel(rank, "S", "write", "", "/ckpt/step-100.pt")


def sleeps(scene: Scene, rank: int = 2) -> None:
    scene.sleeps(rank)


def sleeps_unseen(scene: Scene, rank: int = 2) -> None:
    scene.actors[rank].dump_error = "refused"
    scene.kernel(rank, "S", "clock_nanosleep", "hrtimer_nanosleep")


def waits_for_lock(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, *LOCK)


def joins_thread(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:71", source="writer.join()"))


def waits_for_socket(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/socket.py:718", "readinto"), frame("wandb.py:9"))
    scene.kernel(rank, "S", "recvfrom", "tcp_recvmsg", "socket:[123]")


def compiles(scene: Scene, rank: int = 2) -> None:
    scene.at(
        rank,
        frame("/venv/lib/python3.11/site-packages/torch/_inductor/codecache.py:88", "compile"),
        frame("train.py:18"),
    )


def computes(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:35", source="matrix = matrix @ matrix"), active=True)
    scene.kernel(rank, "R")


def runs_unseen(scene: Scene, rank: int = 2) -> None:
    scene.actors[rank].dump_error = "refused"
    scene.kernel(rank, "R")


def locks_file(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:70", source="fcntl.flock(handle, fcntl.LOCK_EX)"))
    scene.kernel(rank, "S", "flock", "locks_lock_inode_wait", "/ckpt/.lock")


def locks_file_by_library(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("lock.py:5", "__enter__", "with self.lock:"))
    scene.kernel(rank, "S", "#999", "locks_lock_inode_wait")


def locks_file_with_fcntl(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:70", source="fcntl.lockf(handle, fcntl.LOCK_EX)"))
    scene.kernel(rank, "S", "fcntl", "fcntl_setlk", "/ckpt/.lock")


def locks_file_unseen(scene: Scene, rank: int = 2) -> None:
    scene.actors[rank].dump_error = "refused"
    scene.kernel(rank, "S", "flock", "", "/ckpt/.lock")


def polls_lock_file(scene: Scene, rank: int = 2) -> None:
    at = "/venv/lib/python3.11/site-packages/filelock/_api.py:1177"
    scene.at(rank, frame(at, "_poll_until_acquired", "time.sleep(poll_interval)"))
    scene.kernel(rank, syscall="clock_nanosleep", wchan="hrtimer_nanosleep")


def worker_locks_file(scene: Scene, rank: int = 2) -> None:
    scene.fetches(rank, worker=2, pid=90112)
    scene.worker(rank, 90112, "S", "flock", "/data/.lock")


def asyncio_server(scene: Scene, rank: int = 2) -> None:
    scene.at(
        rank,
        frame("/usr/lib/python3.11/selectors.py:468", "select"),
        frame("/usr/lib/python3.11/asyncio/base_events.py:1884", "_run_once"),
        frame("/usr/lib/python3.11/asyncio/base_events.py:608", "run_forever"),
        frame("serve.py:40", "main", "asyncio.run(serve())"),
    )
    scene.kernel(rank, "S", "epoll_wait", "ep_poll")


def other_loop(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/asyncio/runners.py:118", "run"), frame("serve.py:40"))
    scene.kernel(rank, "S", "epoll_pwait", "ep_poll")


def thread_server(scene: Scene, rank: int = 2) -> None:
    scene.at(
        rank,
        frame("/usr/lib/python3.11/selectors.py:415", "select"),
        frame("/usr/lib/python3.11/socketserver.py:233", "serve_forever"),
        frame("serve.py:40"),
    )
    scene.kernel(rank, "S", "poll", "poll_schedule_timeout")


def listening_socket(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/socket.py:292", "accept"), frame("serve.py:40"))
    scene.kernel(rank, "S", "accept4", "inet_csk_accept")


def server_unseen(scene: Scene, rank: int = 2) -> None:
    scene.actors[rank].dump_error = "refused"
    scene.kernel(rank, "S", "epoll_wait", "ep_poll")


def runs_tool(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/subprocess.py:2047", "_wait"), frame("train.py:33"))
    scene.kernel(rank, "S", "wait4", "do_wait")
    scene.actors[rank].children.append(wire.Process(90113, "S", "ffmpeg", parent=1000 + rank))


def prints_into_full_pipe(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:33", source="print(metrics)"))
    scene.kernel(rank, "S", "write", "anon_pipe_write", "pipe:[17]")


def debugged_by_hand(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("/usr/lib/python3.11/pdb.py:360", "interaction"), frame("train.py:33"))
    scene.kernel(rank, "S", "read", "wait_woken", "/dev/pts/3")


def reads_requests(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("serve.py:33", source="for request in sys.stdin:"))
    scene.kernel(rank, "S", "read", "anon_pipe_read", "pipe:[17]")


def waits_for_key(scene: Scene, rank: int = 2) -> None:
    scene.at(rank, frame("train.py:33", source='store.get("shard")'))
    scene.kernel(rank, "S", "poll", "poll_schedule_timeout")


CAUSES: list[tuple[Callable[[Scene], None], str, str, str]] = [
    (stuck_worker, "dataloader", "worker 2 of 4 (pid 90112): read /data/shard-0412, state D",
     "/data/shard-0412"),
    (stuck_worker_by_stack, "dataloader", "another thread at data.py:31", "--pid 90112"),
    (unknown_worker, "dataloader", "(pid 90112): read /data/shard-0412", "/data/shard-0412"),
    (loads_itself, "dataloader", "loads the next batch itself: read /nfs/shard-7, state D",
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
     "lslocks | grep -F /ckpt/.lock; fuser /ckpt/.lock"),
    (locks_file_by_library, "lock", "lock.py:5", "cat /proc/locks"),
    (locks_file_with_fcntl, "lock", "fcntl /ckpt/.lock", "lslocks | grep -F /ckpt/.lock"),
    (locks_file_unseen, "lock", "flock /ckpt/.lock", "fuser /ckpt/.lock"),
    (polls_lock_file, "lock", "a file that another process has locked", "that made it still run?"),
    (worker_locks_file, "dataloader", "(pid 90112): flock /data/.lock", "lslocks"),
]  # fmt: skip


def absent(play: Callable[[Scene], None], for_s: float = 10) -> Scene:
    scene = three_wait(for_s)
    play(scene)
    return scene


RUNNING = (computes, runs_unseen)
