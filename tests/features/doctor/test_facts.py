"""Facts are read with the standard library alone, cross a pipe as JSON, and survive bad calls."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import frtop_probe
from features.doctor.surroundings import environment
from frtop_probe.features.doctor.examination import examine
from frtop_probe.features.doctor.facts import document
from frtop_probe.features.doctor.host_reader import find_tool, read_host
from frtop_probe.features.doctor.search import find_ranks
from frtop_probe.features.doctor.trials import read_memory, run_tool, target
from frtop_probe.pipe.packing import archive
from frtop_probe.proc import risky_calls
from frtop_tui.features.doctor.examinations import DOCTOR, read_facts
from waiting import wait_for

__all__ = ["environment"]
PROBE = Path(frtop_probe.__file__).parents[1]
BARE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from frtop_probe.features.doctor.__main__ import main
main(sys.argv[1:])
bad = {"msgspec", "zmq", "psutil", "torch"} & set(sys.modules)
assert not bad, bad
"""


def test_the_room_runs_in_a_python_that_has_nothing_else(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BARE, str(PROBE), str(os.getpid())],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    facts = read_facts(done.stdout.encode())
    host, search = facts.host, facts.search
    assert json.loads(json.dumps(document(host, search))) == data
    (rank,) = search.ranks
    assert rank.pid == os.getpid()
    assert rank.rights is not None
    assert rank.rights.uid == os.getuid()
    assert examine(host, search).service is None


def test_a_folder_on_path_that_may_not_be_entered_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`su` and `sudo -E` leave another user's folders on PATH."""

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))  # root may enter any folder

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(Path, "is_file", refuse)
    assert find_tool("py-spy") == ""


def test_what_was_tried_leaves_no_process(environment: dict[str, str]) -> None:
    with target() as pid:
        assert read_memory(pid).result in ("ok", "refused")
        assert Path(f"/proc/{pid}/stat").exists()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent != os.getpid()
    wait_for(lambda: not is_alive(pid), "the process of ours has ended")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_call_that_hangs_ends_or_raises_is_a_result() -> None:
    found = risky_calls.call_all(
        {
            "fine": lambda: [1, "two"],
            "killed": lambda: os.kill(os.getpid(), 31),
            "raises": lambda: 1 // 0,
        },
        30.0,
    )
    assert found["fine"].value == [1, "two"]
    assert found["killed"].signal == 31
    assert found["raises"] == risky_calls.RiskyCall()
    assert risky_calls.call_all({"hangs": lambda: time.sleep(60)}, 0.5)["hangs"].timed_out


def test_a_tool_that_cannot_be_run_is_a_result(tmp_path: Path) -> None:
    path = tmp_path / "py-spy"
    path.write_text("#!/bin/sh\necho Error: nothing works >&2; exit 1\n")
    assert run_tool(str(path)).result == "refused"
    path.chmod(0o755)
    assert (run_tool(str(path)).result, run_tool(str(path)).detail) == ("failed", "nothing works")
    assert run_tool(str(tmp_path / "none")).result == "failed"


def test_a_pid_that_is_not_there_is_said() -> None:
    assert find_ranks(2**22 - 1).problem == f"there is no process {2**22 - 1} here"


def test_the_python_of_the_next_job_may_have_no_torch(environment: dict[str, str]) -> None:
    assert read_host("/bin/false").job_torch is None
    assert read_host("/nowhere/python").job_torch is None


@pytest.mark.torch
def test_the_torch_of_the_next_job_is_found_without_importing_it() -> None:
    torch = read_host(sys.executable).job_torch
    assert torch is not None
    assert torch.version
    assert torch.exports is True


def test_the_doctor_travels_without_the_agent() -> None:
    with zipfile.ZipFile(io.BytesIO(archive(DOCTOR))) as content:
        names = set(content.namelist())
    assert "frtop_probe/features/doctor/through_pipe.py" in names
    assert "frtop_probe/agent/service.py" not in names
