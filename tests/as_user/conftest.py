"""A host with two other users, each with a prepared rank, and root who looks at one of them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

import frtop_probe
from frtop_probe import wire
from frtop_probe.pipe.start_script import start_script
from frtop_probe.ring.folder import SHARED_MEMORY
from pipe.far_agent import SHELL, FarAgent
from waiting import wait_for

PATIENCE_S = 60.0
"""Several Pythons start one after the other; on a busy host that takes long."""
TESTS = Path(__file__).parents[1]
RANK_PROGRAM = TESTS / "agent" / "rank_program.py"
PATH = os.pathsep.join(
    [str(Path(frtop_probe.__file__).parents[1]), str(Path(msgspec.__file__).parents[1])]
)


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.split() for name, _, text in (line.partition(":") for line in lines)}


def capabilities(status: dict[str, list[str]]) -> set[int]:
    return {int(status[f"Cap{name}"][0], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}


def run_as(uid: int, *command: str) -> int:
    """Exit status of a program of the user."""
    return subprocess.run(
        command, user=uid, group=uid, extra_groups=[], cwd="/", stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, check=False,
    ).returncode  # fmt: skip


def python_for_all() -> str:
    """A Python that other users can run, with this one's packages; "" if there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        with suppress(PermissionError):
            if python and not subprocess.run(
                [python, "-c", "import zmq, msgspec, psutil, frtop_probe.agent.service"],
                user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True,
                env={"PYTHONPATH": PATH}, check=False,
            ).returncode:  # fmt: skip
                return python
    return ""


@pytest.fixture(scope="session")
def python() -> str:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes users")
    if shutil.which("useradd") is None:
        pytest.skip("needs useradd")
    found = python_for_all()
    if not found:
        pytest.skip("no Python of this version that other users can run")
    return found


@pytest.fixture(scope="session")
def users(python: str) -> Iterator[tuple[str, str]]:
    """Two users of this host with homes, for as long as the tests run."""
    del python
    names = f"frtopa{os.getpid()}", f"frtopb{os.getpid()}"
    for name in names:
        subprocess.run(
            ["useradd", "--create-home", "--groups", "daemon", "--shell", "/bin/false", name],
            check=True, capture_output=True,
        )  # fmt: skip
    try:
        yield names
    finally:
        for name in names:
            folder = SHARED_MEMORY / f"frtop-{pwd.getpwnam(name).pw_uid}"
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(
                ["userdel", "--force", "--remove", name], check=True, capture_output=True
            )


@dataclass
class UsersHost:
    """Ranks of both users, and what root starts."""

    users: tuple[str, str]
    python: str
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def ann(self) -> str:
        """The one at whom root looks."""
        return self.users[0]

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.ann).pw_uid

    def rings(self, uid: int) -> Path:
        """The user's folder."""
        folder = SHARED_MEMORY / f"frtop-{uid}"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.chown(folder, uid, uid)
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def start_rank(self, user: str, *action: str) -> int:
        uid = pwd.getpwnam(user).pw_uid
        process = subprocess.Popen(
            [self.python, str(RANK_PROGRAM), *(action or ("busy", "1"))], user=uid, group=uid,
            extra_groups=[], env={"FRTOP_DIR": str(self.rings(uid)), "PYTHONPATH": PATH},
            stdout=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        assert process.stdout is not None
        for undo in (process.stdout.close, process.wait, process.kill):  # the last one first
            self.stack.callback(undo)
        assert process.stdout.readline() == "ready\n"
        return process.pid

    def shell(self, user: str, *, outside: bool = False, named: str = "", **more: str) -> FarAgent:
        """What root starts to look at the jobs of a user."""
        far = FarAgent(
            SHELL, script=start_script(named, last=self.python, user=user),
            FRTOP_UNPREPARED=str(int(outside)), **more,
        )  # fmt: skip
        self.stack.callback(far.close)
        return far

    @staticmethod
    def state_with(far: FarAgent, count: int) -> wire.Update:
        """The state, once so many ranks are shown."""

        def found() -> wire.Update | None:
            update: wire.Update = far.request(wire.StateRequest).update
            return update if len(update.ranks) >= count else None

        return wait_for(found, f"{count} ranks", seconds=PATIENCE_S, pause_s=0.1)


@pytest.fixture
def host(users: tuple[str, str], python: str) -> Iterator[UsersHost]:
    one = UsersHost(users, python)
    with one.stack:
        yield one
