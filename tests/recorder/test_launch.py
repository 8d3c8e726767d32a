"""The agent is started from a rank without leaving a trace in either."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from frtop_probe.recorder import attempts, launch
from frtop_probe.ring.folder import AgentFiles, agent_lives

# Stands in for the agent's interpreter: writes down what it was given.
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
    # The stub runs in the real interpreter; only what it becomes is another one.
    script = tmp_path / "python"
    script.write_text(FAKE_AGENT.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(launch, "_STUB", launch._STUB.replace("sys.argv[2]", repr(str(script)), 1))
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", sys.executable)
    monkeypatch.delenv("FRTOP_AGENT", raising=False)
    for name in ("RANK", "OMP_NUM_THREADS", "LD_PRELOAD_NOT", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    made = tmp_path / "frtop"
    made.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(made))
    monkeypatch.setenv("FRTOP_TEST_LOCK", str(AgentFiles.here(made).lock))
    monkeypatch.setattr(launch, "_attempts", {})
    monkeypatch.setattr(attempts, "_spoken", set())
    return made


def test_paths_mean_the_same_to_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRTOP_DIR", "rings")
    monkeypatch.setenv("FRTOP_KEY_FILE", "key")
    seen = launch.clean_environment(own=False)
    assert seen["FRTOP_DIR"] == str(tmp_path / "rings")
    assert seen["FRTOP_KEY_FILE"] == str(tmp_path / "key")


def test_it_is_detached_and_inherits_nothing(folder: Path, tmp_path: Path) -> None:
    children = set(psutil.Process().children())
    leaky = os.open(tmp_path / "leak", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(leaky, True)
    assert launch.ensure_agent(folder) == ""
    os.close(leaky)
    until = time.monotonic() + 10
    while not (folder / "seen.json").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
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
    # While one lives none is started, and right after another neither.
    assert agent_lives(folder)
    (folder / "seen.json").unlink()
    assert launch.ensure_agent(folder) == ""
    assert set(psutil.Process().children()) <= children  # no zombie is left either
    assert not (folder / "seen.json").exists()


def test_nobody_starts_one_twice_within_its_patience(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[str] = []
    monkeypatch.setattr(launch, "_spawn", lambda python, *_, **__: spawned.append(python))

    def another_rank_looks() -> None:
        launch._attempts.clear()
        assert launch.ensure_agent(folder) == ""

    another_rank_looks()
    another_rank_looks()
    assert len(spawned) == 1
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.0)
    another_rank_looks()
    assert len(spawned) == 2
    with AgentFiles.here(folder).spawn.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        another_rank_looks()
    assert len(spawned) == 2


def test_what_is_missing_is_said_by_one_rank(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRTOP_AGENT_PYTHON")
    monkeypatch.setattr(launch, "NEEDED", ("json", "no_such_module"))
    text = launch.ensure_agent(folder)
    assert "has no no_such_module; run `frtop agent` on this host" in text
    assert capsys.readouterr().err == f"frtop: {text}\n"
    assert launch.ensure_agent(folder) == ""  # another rank, a moment later
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.0)
    assert launch.ensure_agent(folder) == text  # and much later: for its own ring
    monkeypatch.setenv("FRTOP_AGENT", "0")
    assert launch.ensure_agent(folder) == ""
    assert capsys.readouterr().err == ""


def test_the_ranks_of_the_next_job_are_told_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRTOP_AGENT_PYTHON")
    monkeypatch.setattr(launch, "NEEDED", ("no_such_module",))
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.0)
    for launcher in (7, 7, 8):
        monkeypatch.setattr(os, "getppid", lambda launcher=launcher: launcher)
        launch.ensure_agent(folder)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_what_an_agent_says_before_it_gives_up_is_passed_on_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = AgentFiles.here(folder)
    files.log.write_text("frtop agent: long ago\n")

    def gives_up(*_: object, **__: object) -> None:
        with files.log.open("a") as log:
            log.write("Warning: bla\nfrtop agent: no key here\n  copy\x1b it\n")

    monkeypatch.setattr(launch, "_spawn", gives_up)
    assert launch.ensure_agent(folder) == ""
    text = launch.ensure_agent(folder)
    assert text.startswith("no agent could be started: no key here; copy it; run ")
    assert launch.ensure_agent(folder) == ""
    assert capsys.readouterr().err == f"frtop: {text}\n"


def test_an_agent_that_never_comes_up_is_said_after_some_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_spawn", lambda *_, **__: None)
    assert launch.ensure_agent(folder) == ""
    assert launch.ensure_agent(folder) == ""
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.0)
    assert "never came up" in launch.ensure_agent(folder)


def test_one_that_was_up_and_is_gone_is_followed_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(launch, "_spawn", lambda python, *_, **__: tried.append(python))
    assert launch.ensure_agent(folder) == launch.ensure_agent(folder) == ""
    assert len(tried) == 1
    os.truncate(AgentFiles.here(folder).spawn, 0)  # as an agent does that is up
    assert launch.ensure_agent(folder) == ""
    assert len(tried) == 2


def test_in_vain_it_is_tried_ever_more_seldom(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(launch, "_spawn", lambda *_, **__: tried.append(now))
    for _ in range(400):
        launch._attempts.clear()
        launch.ensure_agent(folder)
        now += 5
    pauses = [int(later - sooner) for sooner, later in itertools.pairwise(tried)]
    assert pauses == [10, 20, 40, 80, 160, 320, 320, 320, 320, 320]
    os.truncate(AgentFiles.here(folder).spawn, 0)  # as an agent does that is up
    launch.ensure_agent(folder)
    assert tried[-1] == now


@pytest.mark.parametrize(("rank", "aloud"), [("0", 1), ("3", 0)])
def test_a_folder_without_locks_is_said_by_the_first_rank(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    aloud: int,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        assert "agent-" in (text := launch.ensure_agent(folder))
        assert "Operation not supported" in text
    assert len(capsys.readouterr().err.splitlines()) == aloud


def test_an_interpreter_that_is_not_there_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_AGENT_PYTHON", "/no/such/python")
    assert "/no/such/python: No such file" in launch.ensure_agent(folder)
