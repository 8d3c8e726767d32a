"""Scans read little, never block and never raise, whatever /proc shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from frtop_probe.unprepared.discovery import proc_reader
from frtop_probe.unprepared.discovery.facts import advice
from frtop_probe.unprepared.discovery.proc_reader import Blocking
from frtop_probe.unprepared.discovery.scanner import SETTLED_AGAIN, Scanner
from unprepared.discovery.hosts import PYTHON, elastic


class FakeProc:
    """A /proc of files, and a reader of cmdline, environ and maps that counts its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.answers: dict[int, Blocking | OSError] = {}
        self.scanner = Scanner(blocking=self.read, proc=str(folder))

    def add(
        self, pid: int, *, comm: str = "python", state: str = "S", parent: int = 1,
        start: int = 100, wchan: str = "0", exe: str = PYTHON, threads: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "task").mkdir(exist_ok=True)
        rest = f"{parent} 1 7 0 -1 0 0 0 0 0 1 1 0 0 20 0 {1 + len(threads)} 0 {start} 0 0"
        self.stat(folder, f"{pid} ({comm}) {state} {rest}", wchan)
        uids = "\t".join([str(os.getuid())] * 4)
        (folder / "status").write_text(f"Uid:\t{uids}\nNSpid:\t{pid}\n")
        for tid, name in enumerate(threads, pid + 1):
            thread = folder / "task" / str(tid)
            thread.mkdir(exist_ok=True)
            self.stat(thread, f"{tid} ({name}) S {rest}")
        if exe:
            (folder / "exe").unlink(missing_ok=True)
            (folder / "exe").symlink_to(exe)

    def stat(self, folder: Path, line: str, wchan: str = "0") -> None:
        (folder / "stat").write_text(line)
        (folder / "wchan").write_text(wchan)

    def rank(self, pid: int, number: int = 0, **more: object) -> None:
        self.answers[pid] = Blocking((PYTHON, "train.py"), elastic(number), True)
        self.add(pid, threads=("gloo_tcp_loop",), **more)  # type: ignore[arg-type]

    def read(self, pid: int, names: tuple[str, ...]) -> Blocking:
        self.asked.append((pid, names))
        answer = self.answers.get(pid, Blocking((), {}, False))
        if isinstance(answer, OSError):
            raise answer
        return answer

    def scan(self, now: float = 0.0) -> list[tuple[int, int | None]]:
        jobs = self.scanner.scan(now=now).jobs
        return [(rank.pid, rank.rank) for job in jobs for rank in job.ranks]

    def reasons(self) -> tuple[str, ...]:
        return self.scanner.scan(now=0).reasons


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_a_rank_is_read_once(proc: FakeProc) -> None:
    proc.rank(10)
    assert proc.scan() == [(10, 0)]
    assert proc.asked == [(10, ("cmdline", "environ"))]  # its threads decide: no maps
    for now in (10, 100, 1000):
        assert proc.scan(now) == [(10, 0)]
    assert len(proc.asked) == 1


def test_memory_is_read_only_of_ranks_whose_environment_does_not_say_their_number(
    proc: FakeProc,
) -> None:
    asked: list[int] = []

    def environ(pid: int) -> dict[str, str]:
        asked.append(pid)
        if pid == 12:
            raise OSError("it has ended")
        return elastic(1)

    for pid in (10, 11, 12):
        proc.rank(pid)
    for pid in (11, 12):
        proc.answers[pid] = Blocking((PYTHON, "train.py"), {}, True)
    scanner = Scanner(blocking=proc.read, run_time_environ=environ, proc=str(proc.folder))
    ranks = [rank for job in scanner.scan(now=0).jobs for rank in job.ranks]
    assert sorted((rank.pid, rank.rank) for rank in ranks[:2]) == [(10, 0), (11, 1)]
    assert asked == [11, 12]


def test_a_new_process_of_the_same_pid_is_read_again(proc: FakeProc) -> None:
    proc.rank(10)
    proc.scan()
    proc.rank(10, number=1, start=200)
    assert proc.scan() == [(10, 1)]


def test_other_programs_are_not_read_beyond_stat(proc: FakeProc) -> None:
    proc.add(10, comm="bash", exe="/bin/bash")
    proc.add(11, comm="pt_data_worker")
    assert proc.scan() == []
    assert proc.asked == []


def test_a_shell_that_becomes_a_rank_is_found(proc: FakeProc) -> None:
    """By exec: pid and start time stay the same."""
    proc.add(10, comm="bash", exe="/bin/bash")
    assert proc.scan() == []
    proc.rank(10)
    assert proc.scan() == [(10, 0)]


def test_many_settled_processes_are_looked_at_in_turns(proc: FakeProc) -> None:
    for pid in range(100, 100 + 2 * SETTLED_AGAIN + 50):
        proc.add(pid, comm="bash", exe="/bin/bash")
    proc.scan()
    proc.rank(100 + 2 * SETTLED_AGAIN)
    assert any(proc.scan(now) == [(100 + 2 * SETTLED_AGAIN, 0)] for now in range(3))


def test_python_that_may_become_a_rank_is_read_ever_more_rarely(proc: FakeProc) -> None:
    proc.add(10)
    for now in range(200):
        proc.scan(now)
    assert len(proc.asked) == 2 * 9  # at 0, 1, 3, 7, 15, 31, 63, 123 and 183 s, with maps
    proc.rank(10)  # its threads change
    assert proc.scan(200) == [(10, 0)]


def test_nothing_is_read_of_a_process_in_a_driver(proc: FakeProc) -> None:
    proc.rank(10, state="D", wchan="nvidia_ioctl")
    assert proc.scan() == [(10, None)]
    assert proc.asked == []
    (reason,) = proc.scanner.scan(now=0).jobs[0].ranks[0].reasons
    assert reason == (
        "cmdline, environ, maps: a thread is in state D (wchan nvidia_ioctl), so a read might block"
    )
    proc.rank(10)
    assert proc.scan(60) == [(10, 0)]


def test_a_thread_in_a_driver_counts_and_a_wait_for_a_disk_does_not(proc: FakeProc) -> None:
    proc.rank(10, state="D", wchan="folio_wait_bit_common")
    assert proc.scan() == [(10, 0)]
    proc.rank(20, number=1)
    thread = proc.folder / "20/task/21"
    line = (thread / "stat").read_text().replace(") S", ") D")
    proc.stat(thread, line, "uvm_ioctl")
    assert (20, 1) not in proc.scan()


def test_an_unknown_wait_in_state_d_is_not_risked(proc: FakeProc) -> None:
    proc.rank(10, state="D", wchan="0")
    assert proc.scan() == [(10, None)]
    assert "wchan hidden" in proc.reasons()[0]


def test_a_reader_that_gives_up_is_named(proc: FakeProc) -> None:
    proc.rank(10)
    proc.answers[10] = TimeoutError()
    assert proc.scan() == [(10, None)]
    (candidate,) = proc.scanner.scan(now=0).jobs[0].ranks
    assert candidate.reasons == (
        "cmdline, environ: no answer in time; the process may be stuck in a driver",
    )
    assert len(proc.asked) == 1
    proc.scan(1)
    assert len(proc.asked) == 2


def test_missing_rights_are_named(proc: FakeProc) -> None:
    proc.add(10)
    proc.answers[10] = PermissionError(13, "Permission denied")
    proc.scan()
    assert "frtop could not read cmdline, environ of 1 process: no rights" in proc.reasons()


def test_a_process_that_ends_during_the_scan_is_not_there(proc: FakeProc) -> None:
    def end(pid: int, names: tuple[str, ...]) -> Blocking:
        (proc.folder / str(pid) / "stat").unlink(missing_ok=True)
        raise FileNotFoundError(2, "No such file or directory")

    scanner = Scanner(blocking=end, proc=str(proc.folder))
    proc.rank(10)
    assert scanner.scan(now=0).jobs == ()


def test_folders_without_anything_in_them_are_no_processes(proc: FakeProc) -> None:
    (proc.folder / "10").mkdir()
    (proc.folder / "11").mkdir()
    (proc.folder / "11/stat").write_text("garbage")
    assert proc.scan() == []


def test_no_proc_is_a_reason(tmp_path: Path) -> None:
    found = Scanner(proc=str(tmp_path / "none")).scan()
    assert (found.jobs, found.reasons) == ((), (f"{tmp_path}/none: No such file or directory",))


def test_an_overwritten_environment_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "10"
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"VLLM::Worker_TP0" + bytes(100))
    (folder / "environ").write_bytes(bytes(3000))
    (folder / "maps").write_bytes(bytes(70_000) + b" /lib/libtorch_cpu.so")
    found = proc_reader.read_blocking(10, ("cmdline", "environ", "maps"), str(tmp_path))
    assert found == Blocking(
        ("VLLM::Worker_TP0",), {}, True, ("environ: overwritten by the process title",)
    )
    gone = proc_reader.read_blocking(11, ("cmdline", "maps"), str(tmp_path))
    assert gone.unread == ("cmdline: No such file or directory", "maps: No such file or directory")


def test_a_task_that_was_first_seen_as_root_is_found(proc: FakeProc) -> None:
    """A launcher forks as root, becomes the user, and then becomes the program."""
    proc.add(10, comm="slurmstepd")
    (proc.folder / "10/status").write_text(f"Uid:\t{os.getuid() + 1}\t0\t0\t0\n")
    scanner = Scanner(os.getuid(), proc.read, proc=str(proc.folder))
    scanner.scan(now=0)
    if os.getuid() == 0:  # others own the files that a test makes
        assert proc.asked == []
    proc.rank(10)
    assert len(scanner.scan(now=1).jobs) == 1


@pytest.mark.parametrize(("as_root", "through_shell", "says"), [
    (False, False, "ann can admit you with `frtop key admit`"),
    (False, True, "root can look: `frtop --user ann`"),
    (True, False, "frtop --user ann"),
    (True, True, "the same command with --user ann shows them"),
])  # fmt: skip
def test_the_next_step_depends_on_who_asks_and_from_where(
    as_root: bool, through_shell: bool, says: str
) -> None:
    assert says in advice("ann", as_root=as_root, through_shell=through_shell)
