"""A rank starts the agent; neither inherits anything from the other."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from frtop_probe.recorder.process import agent_launch, spawn_lock
from frtop_probe.ring.folder import AgentFiles, agent_lives
from waiting import wait_for

# Replaces the agent's interpreter: writes down arguments, environment and descriptors.
FAKE_AGENT = """#!{python}
import fcntl, json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["FRTOP_DIR"])
held = open(os.environ["FRTOP_TEST_LOCK"], "w")
fcntl.flock(held, fcntl.LOCK_EX)
(folder / "seen.tmp").write_text(json.dumps(dict(
    argv=sys.argv[1:], environ=dict(os.environ), sid=os.getsid(0), pid=os.getpid(),
    ppid=os.getppid(), cwd=os.getcwd(), cpus=len(os.sched_getaffinity(0)),
    files=[os.readlink(f"/proc/self/fd/{{n}}") for n in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{{n}}")],
)))
(folder / "seen.tmp").rename(folder / "seen.json")
time.sleep(0.5)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The stub runs in the real interpreter; only the agent's interpreter is replaced.
    script = tmp_path / "python"
    script.write_text(FAKE_AGENT.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(
        agent_launch, "_STUB", agent_launch._STUB.replace("sys.argv[2]", repr(str(script)), 1)
    )
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", sys.executable)
    monkeypatch.delenv("FRTOP_AGENT", raising=False)
    for name in ("RANK", "OMP_NUM_THREADS", "LD_PRELOAD_NOT", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    made = tmp_path / "frtop"
    made.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(made))
    monkeypatch.setenv("FRTOP_TEST_LOCK", str(AgentFiles.here(made).lock))
    monkeypatch.setattr(agent_launch, "_attempts", {})
    monkeypatch.setattr(spawn_lock, "_logged", set())
    return made


def test_relative_paths_are_made_absolute_for_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRTOP_DIR", "rings")
    monkeypatch.setenv("FRTOP_KEY_FILE", "key")
    seen = agent_launch.agent_environment(own=False)
    assert seen["FRTOP_DIR"] == str(tmp_path / "rings")
    assert seen["FRTOP_KEY_FILE"] == str(tmp_path / "key")


def test_the_agent_is_detached_and_inherits_nothing(folder: Path, tmp_path: Path) -> None:
    children = set(psutil.Process().children())
    leaky = os.open(tmp_path / "leak", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(leaky, True)
    assert agent_launch.ensure_agent(folder) == ""
    os.close(leaky)
    wait_for((folder / "seen.json").exists, "the agent starts", seconds=60)
    seen = json.loads((folder / "seen.json").read_text())
    assert seen["argv"] == ["-m", "frtop_probe.agent"]
    assert seen["sid"] != os.getsid(0)
    assert seen["ppid"] != os.getpid()
    assert seen["cwd"] == "/"
    assert not any("leak" in file or "pipe" in file for file in seen["files"])
    assert seen["environ"]["FRTOP_DIR"] == str(folder)
    assert not {"RANK", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"} & set(
        seen["environ"]
    )
    # No agent is started while one is alive, nor right after another attempt.
    assert agent_lives(folder)
    (folder / "seen.json").unlink()
    assert agent_launch.ensure_agent(folder) == ""
    assert set(psutil.Process().children()) <= children  # no zombie
    assert not (folder / "seen.json").exists()


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When an agent would have been started; none is."""
    found: list[float] = []
    monkeypatch.setattr(agent_launch, "_spawn", lambda *_, **__: found.append(time.monotonic()))
    return found


def test_no_rank_starts_a_second_agent_before_the_retry_pause_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spawned: list[float]
) -> None:
    def check_as_another_rank() -> None:
        agent_launch._attempts.clear()
        assert agent_launch.ensure_agent(folder) == ""

    check_as_another_rank()
    check_as_another_rank()
    assert len(spawned) == 1
    monkeypatch.setattr(spawn_lock, "RETRY_S", 0.0)
    check_as_another_rank()
    assert len(spawned) == 2
    with AgentFiles.here(folder).spawn.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        check_as_another_rank()
    assert len(spawned) == 2


def test_a_rank_looks_for_just_what_the_agent_imports() -> None:
    """Where anything more is asked for, ranks start no agent although one would run."""
    program = (
        "import importlib, pkgutil, sys, frtop_probe.agent as agent\n"
        "for one in pkgutil.iter_modules(agent.__path__, 'frtop_probe.agent.'):\n"
        "    importlib.import_module(one.name)\n"
        "ours = {'ClusterShell', 'msgpack', 'msgspec', 'psutil', 'textual', 'torch', 'zmq'}\n"
        "print(*ours & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == set(agent_launch.NEEDED)


def test_one_rank_reports_missing_packages(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRTOP_AGENT_PYTHON")
    monkeypatch.setattr(agent_launch, "NEEDED", ("json", "no_such_module"))
    text = agent_launch.ensure_agent(folder)
    assert "has no no_such_module; run `frtop agent` on this host" in text
    assert capsys.readouterr().err == f"frtop: {text}\n"
    assert agent_launch.ensure_agent(folder) == ""  # another rank, right after
    monkeypatch.setattr(spawn_lock, "RETRY_S", 0.0)
    assert agent_launch.ensure_agent(folder) == text  # and much later: for the note in its own ring
    monkeypatch.setenv("FRTOP_AGENT", "0")
    assert agent_launch.ensure_agent(folder) == ""
    assert capsys.readouterr().err == ""


def test_the_next_job_reports_the_failure_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRTOP_AGENT_PYTHON")
    monkeypatch.setattr(agent_launch, "NEEDED", ("no_such_module",))
    monkeypatch.setattr(spawn_lock, "RETRY_S", 0.0)
    for launcher in (7, 7, 8):
        monkeypatch.setattr(os, "getppid", lambda launcher=launcher: launcher)
        agent_launch.ensure_agent(folder)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_last_message_of_an_agent_that_gives_up_is_reported_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = AgentFiles.here(folder)
    files.log.write_text("frtop agent: long ago\n")

    def gives_up(*_: object, **__: object) -> None:
        with files.log.open("a") as log:
            log.write("Warning: bla\nfrtop agent: no key here\n  copy\x1b it\n")

    monkeypatch.setattr(agent_launch, "_spawn", gives_up)
    assert agent_launch.ensure_agent(folder) == ""
    text = agent_launch.ensure_agent(folder)
    assert text.startswith("no agent could be started: no key here; copy it; run ")
    assert agent_launch.ensure_agent(folder) == ""
    assert capsys.readouterr().err == f"frtop: {text}\n"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("2026-12-01 10:07:38 HistoryRequest of process 547, asked by ANN (the owner)\n", ""),
        ("Traceback (most recent call last):\n  ...\nValueError: why\n", "ValueError: why"),
    ],
)
def test_what_an_agent_that_ran_has_audited_is_no_reason_why_it_did_not_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, written: str, why: str
) -> None:
    files = AgentFiles.here(folder)
    starts: list[str] = []

    def runs_and_ends(*_: object, **__: object) -> None:
        starts.append("")
        files.log.write_text(written)
        os.truncate(files.spawn, 0)

    monkeypatch.setattr(agent_launch, "_spawn", runs_and_ends)
    assert agent_launch.ensure_agent(folder) == ""
    text = agent_launch.ensure_agent(folder)
    assert why in text
    assert bool(text) == bool(why)
    assert len(starts) == (1 if why else 2)


@pytest.mark.usefixtures("spawned")
def test_an_agent_that_never_comes_up_is_reported_after_the_pause(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent_launch.ensure_agent(folder) == ""
    assert agent_launch.ensure_agent(folder) == ""
    monkeypatch.setattr(spawn_lock, "RETRY_S", 0.0)
    assert "never came up" in agent_launch.ensure_agent(folder)


@pytest.fixture
def data_worker() -> Iterator[Callable[[], None]]:
    """Forks this process, as a `DataLoader` does; the fork lives until the test ends."""
    forks: list[int] = []

    def fork() -> None:
        if not (pid := os.fork()):
            while True:
                signal.pause()
        forks.append(pid)

    yield fork
    for pid in forks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_data_worker_forked_during_an_attempt_prevents_no_further_attempt(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    spawned: list[float],
    data_worker: Callable[[], None],
) -> None:
    monkeypatch.setattr(spawn_lock, "RETRY_S", 0.0)
    with closing(spawn_lock.SpawnLock(AgentFiles.here(folder))):
        data_worker()
    agent_launch.ensure_agent(folder)
    assert len(spawned) == 1


def test_a_data_worker_forked_while_its_rank_looks_for_the_agent_prevents_no_agent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, data_worker: Callable[[], None]
) -> None:
    files, flock = AgentFiles.here(folder), fcntl.flock
    files.lock.touch()

    def locks_and_forks(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if operation & fcntl.LOCK_SH:
            data_worker()

    monkeypatch.setattr(fcntl, "flock", locks_and_forks)
    assert not files.lives
    with files.lock.open() as lock:
        flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as the next agent does


def test_pauses_between_failed_attempts_grow_until_an_agent_has_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spawned: list[float]
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(400):
        agent_launch._attempts.clear()
        agent_launch.ensure_agent(folder)
        now += 5
    pauses = [int(later - sooner) for sooner, later in itertools.pairwise(spawned)]
    assert pauses == [10, 20, 40, 80, 160, 320, 320, 320, 320, 320]
    os.truncate(AgentFiles.here(folder).spawn, 0)  # as a running agent does
    agent_launch.ensure_agent(folder)
    assert spawned[-1] == now


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("3", 0)])
def test_the_first_rank_reports_a_folder_without_locks(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    lines: int,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        assert "agent-" in (text := agent_launch.ensure_agent(folder))
        assert "Operation not supported" in text
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_a_missing_interpreter_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", "/no/such/python")
    assert "/no/such/python: No such file" in agent_launch.ensure_agent(folder)
