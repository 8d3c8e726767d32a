"""The script finds a Python with whatever shell there is, or says what it found instead."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frtop_probe.pipe import start_script
from pipe.far_agent import FarAgent
from waiting import wait_for

SHELLS = [
    [found, *command[1:]]
    for command in (["dash"], ["bash"], ["busybox", "sh"])
    if (found := shutil.which(command[0]))
]


@pytest.fixture(params=SHELLS, ids=lambda shell: Path(shell[0]).name)
def shell(request: pytest.FixtureRequest) -> list[str]:
    found: list[str] = request.param
    return found


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder as the only one on PATH, with what any host has but Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("ls", "timeout", "true", "sh", "readlink"):
        folder.joinpath(name).symlink_to(str(shutil.which(name)))
    return folder


@pytest.fixture
def far() -> Iterator[list[FarAgent]]:
    started: list[FarAgent] = []
    yield started
    for one in started:
        one.close()


def old_python(path: Path, version: str) -> None:
    """What the script can tell of a Python: its exit, and what it prints."""
    path.write_text(f"#!/bin/sh\necho frtop-old {version}\n")
    path.chmod(0o755)


def real_python(folder: Path, name: str) -> None:
    """A link would be another Python: it looks for its library beside itself."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" "$@"\n')
    path.chmod(0o755)


def test_the_first_that_is_new_enough_is_taken(
    shell: list[str], programs: Path, far: list[FarAgent]
) -> None:
    old_python(programs / "python3", "3.6.15")
    programs.joinpath("python3.13").write_text("#!/bin/sh\nexit 127\n")
    programs.joinpath("python3.13").chmod(0o755)
    real_python(programs, "python3.12")
    far.append(FarAgent(shell, PATH=str(programs)))
    boot = far[0].await_word("boot")
    assert boot["python"] == ".".join(map(str, sys.version_info[:3]))
    assert boot["machine"] == os.uname().machine
    assert boot["task"] == ""


def test_a_named_one_is_the_only_one(shell: list[str], far: list[FarAgent], tmp_path: Path) -> None:
    old = tmp_path / 'it\'s an "old" \\one'
    old_python(old, "3.6.15")
    far.append(FarAgent(shell, python=str(old)))
    said = far[0].await_word("error")
    assert "is Python 3.6.15" in said["text"]
    assert "it's an  old" in said["text"]  # what JSON cannot take as it is was left out
    assert "--python PATH" in said["next"]
    assert far[0].await_end() == 1
    far.append(FarAgent(shell, python="/no/such/python"))
    assert "no program /no/such/python" in far[1].await_word("error")["text"]
    far.append(FarAgent(shell, python=sys.executable))
    assert far[2].await_word("boot")


def test_what_was_found_is_said(shell: list[str], programs: Path, far: list[FarAgent]) -> None:
    old_python(programs / "python3", "3.6.15")
    broken = programs / "python"
    broken.write_text("#!/bin/sh\necho Python 2.7.18\nexit 2\n")
    broken.chmod(0o755)
    # As a user who runs no Python; without that, one of this host would be taken.
    script = start_script.start_script().replace(b"/proc/[0-9]*/exe", b"/proc/none/exe")
    done = subprocess.run(
        shell, input=script, capture_output=True, env={"PATH": str(programs)}, check=False
    )
    assert done.returncode == 1
    assert b"python3 is Python 3.6.15" in done.stdout
    assert b"python is Python 2.7.18" in done.stdout
    assert b"name one with --python PATH" in done.stdout
    assert done.stderr == b""


def test_a_running_python_is_found(shell: list[str], programs: Path, far: list[FarAgent]) -> None:
    """Where none is on PATH: this test is one."""
    far.append(FarAgent(shell, PATH=str(programs)))
    assert far[0].await_word("boot")["python"].startswith("3.")


def test_stage_zero_fits_between_quotes() -> None:
    script = start_script.start_script().decode()
    assert script.count("stage='") == 1
    assert "frtop_probe." in script
    assert not any(line.lstrip().startswith("#") for line in script.splitlines())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_the_python_of_a_container_is_pointed_at(shell: list[str]) -> None:
    """It runs as the same user, who has no other; its path is nowhere on this host."""
    as_nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
    inside = subprocess.Popen(
        ["unshare", "-m", "sh", "-c",
         ("mount -t tmpfs none /mnt && cp $(command -v sleep) /mnt/python3.11 && "
         f"exec {' '.join(as_nobody)} /mnt/python3.11 60")],
    )  # fmt: skip
    try:
        exe = Path(f"/proc/{inside.pid}/exe")
        wait_for(lambda: str(exe.readlink()) == "/mnt/python3.11", "the program runs")
        script = re.sub(
            rb"for name in python3 [^;]*;", b"for name in none;", start_script.start_script()
        )
        done = subprocess.run(
            [*as_nobody, *shell], input=script, capture_output=True, cwd="/", check=False
        )
    finally:
        inside.kill()
        inside.wait()
    said = (
        f"process {inside.pid} runs /mnt/python3.11 in a container or with a different root folder"
    )
    assert said.encode() in done.stdout, done
    assert b"go in there (docker exec, kubectl exec) and use its own" in done.stdout
