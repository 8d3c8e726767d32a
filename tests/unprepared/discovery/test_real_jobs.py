"""Running programs are found as what they are."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from free_port import free_port
from frtop_probe.unprepared.discovery.facts import FoundJob
from frtop_probe.unprepared.discovery.scanner import Scanner
from frtop_probe.unprepared.reader import UnpreparedReader
from unprepared.discovery.programs import LIKE_A_RANK, TORCHRUN, TRAIN, Programs
from unprepared.ranks import PROGRAM, default_group, pending_kinds, wait_for_c10d
from waiting import wait_for


def roles(found: FoundJob) -> Counter[str]:
    return Counter(candidate.role for candidate in found.helpers)


@pytest.mark.job
def test_torchrun_with_data_workers_that_frtop_has_started(programs: Programs) -> None:
    environ = {"FRTOP_DIR": str(programs.folder), "FRTOP_AGENT": "0"}
    programs.folder.chmod(0o700)
    process = programs.start(
        sys.executable, "-m", "frtop_tui", "run", "--", *TORCHRUN, programs.script(TRAIN), "2",
        environ=environ,
    )  # fmt: skip
    found = programs.wait_for_job(ranks=2, helpers=5)
    assert [(c.rank, c.world_size, c.local_rank) for c in found.ranks] == [(0, 2, 0), (1, 2, 1)]
    assert (found.name, found.launcher, found.launcher_pid) == ("train.py", "torchrun", process.pid)
    assert roles(found) == {"launcher": 1, "data_worker": 4}
    assert found.prepared
    assert all(candidate.prepared for candidate in found.ranks)
    assert found.uid == os.getuid()


@pytest.mark.long
@pytest.mark.job
def test_mp_spawn(programs: Programs) -> None:
    process = programs.start(
        sys.executable, str(PROGRAM), "spawned", str(programs.folder / "store"),
        environ={"WORLD_SIZE": "2"},
    )  # fmt: skip
    found = programs.wait_for_job(ranks=2, helpers=2)
    assert (found.name, found.launcher, found.launcher_pid) == (
        PROGRAM.name, "mp.spawn", process.pid,
    )  # fmt: skip
    assert [candidate.rank for candidate in found.ranks] == [None, None]
    assert roles(found) == {"launcher": 1, "resource_tracker": 1}
    assert not found.prepared
    for rank, candidate in enumerate(found.ranks):
        wait_for((programs.folder / f"store.{rank}").exists, "they are past their first ops")
        with UnpreparedReader(candidate.pid) as reader:
            c10d = wait_for_c10d(reader, lambda c10d: bool(pending_kinds(c10d)), "an op")
        assert default_group(c10d).rank == rank
        assert pending_kinds(c10d) == (["barrier"] if rank == 1 else ["allreduce"])


def test_rank_set_at_run_time(programs: Programs) -> None:
    asked = []

    def environ(pid: int) -> dict[str, str]:
        asked.append(pid)
        if pid != process.pid:
            raise OSError("not ours")
        return {"RANK": "0", "WORLD_SIZE": "1", "HF_TOKEN": "secret"}

    process = programs.start(sys.executable, programs.script(LIKE_A_RANK))
    found = programs.wait_for_job(ranks=1)
    assert found.ranks[0].rank is None
    programs.scanner = Scanner(run_time_environ=environ)
    found = programs.wait_for_job(ranks=1)
    assert [(c.pid, c.rank, c.world_size) for c in found.ranks] == [(process.pid, 0, 1)]
    count = asked.count(process.pid)
    programs.scan()
    assert asked.count(process.pid) == count


def test_variables_set_by_hand(programs: Programs) -> None:
    script, port = programs.script(LIKE_A_RANK), str(free_port())
    for number in (1, 0):
        environ = {
            "RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": port,
        }  # fmt: skip
        programs.start(sys.executable, script, environ=environ)
    found = programs.wait_for_job(ranks=2)
    assert [(c.rank, c.pid) for c in found.ranks] == [
        (0, programs.started[1].pid), (1, programs.started[0].pid),
    ]  # fmt: skip
    assert (found.identity, found.name) == (f"10.0.0.1:{port}", "train.py")


def test_a_title_in_the_command_line(programs: Programs) -> None:
    programs.start(
        "VLLM::Worker_TP3", "-c", LIKE_A_RANK, executable=str(Path(sys.executable).resolve())
    )
    found = programs.wait_for_job(ranks=1)
    assert (found.name, found.ranks[0].rank) == ("vLLM", 3)


def test_a_title_that_only_the_kernel_knows(programs: Programs) -> None:
    """As when the command line is not readable; here it has other words."""
    programs.start(sys.executable, programs.script(LIKE_A_RANK), "VLLM::Worker")
    found = wait_for(
        lambda: [job for job in programs.jobs() if job.name == "vLLM"], "a job named vLLM"
    )
    assert [candidate.rank for candidate in found[0].ranks] == [None]


def test_a_process_that_ends_is_no_longer_found(programs: Programs) -> None:
    process = programs.start(sys.executable, programs.script(LIKE_A_RANK))
    programs.wait_for_job(ranks=1)
    process.kill()
    process.wait(60)
    assert programs.jobs() == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to start a process of another user")
def test_processes_of_another_user_are_counted_and_not_looked_at(programs: Programs) -> None:
    uid = 100_000 + os.getpid()  # nobody else has it, another run of these tests neither
    before = programs.scan().left_alone
    assert uid not in [alone.uid for alone in before]
    script = programs.script(
        f"import ctypes, os, signal, threading\nos.setuid({uid})\n{LIKE_A_RANK}"
    )
    process = programs.start(sys.executable, script)

    def counted() -> bool:
        return [(a.uid, a.ranks) for a in programs.scan().left_alone if a.uid == uid] == [(uid, 1)]

    wait_for(counted, lambda: str(programs.scan().left_alone))
    (alone,) = [alone for alone in programs.scan().left_alone if alone.uid == uid]
    assert alone.text == f"1 rank of user {uid}: not looked at"
    assert process.pid not in [rank.pid for job in programs.scan().jobs for rank in job.ranks]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to start a process of another user")
def test_a_rank_of_another_user_is_counted_though_it_was_seen_before_its_threads_had_names(
    programs: Programs,
) -> None:
    uid = 200_000 + os.getpid()
    script = programs.script(
        "import ctypes, os, signal, threading\n"
        "go = threading.Event()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: go.set())\n"
        f"os.setuid({uid})\n"
        "def named():\n"
        "    go.wait()\n"
        "    ctypes.CDLL(None).prctl(15, b'gloo_tcp_loop', 0, 0, 0)\n"
        "    threading.Event().wait()\n"
        "threading.Thread(target=named, daemon=True).start()\n"
        "while True:\n"
        "    signal.pause()\n"
    )
    process = programs.start(sys.executable, script)
    tasks = Path(f"/proc/{process.pid}/task")
    wait_for(lambda: len(list(tasks.iterdir())) == 2, "its second thread")
    assert uid not in [alone.uid for alone in programs.scan().left_alone]
    process.send_signal(signal.SIGUSR1)
    wait_for(
        lambda: uid in [alone.uid for alone in programs.scan().left_alone],
        lambda: str(programs.scan().left_alone),
    )


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a pid namespace")
def test_a_rank_in_another_pid_namespace(programs: Programs) -> None:
    programs.start(
        "unshare", "--fork", "--pid", sys.executable, programs.script(LIKE_A_RANK),
        environ={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "h",
                 "MASTER_PORT": str(free_port())},
    )  # fmt: skip
    (candidate,) = programs.wait_for_job(ranks=1).ranks
    assert candidate.inner_pid == 1 != candidate.pid
    assert candidate.pid_namespace not in (0, Path("/proc/self/ns/pid").stat().st_ino)
