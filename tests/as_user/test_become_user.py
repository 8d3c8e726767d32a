"""Giving up root: what a process is left with, and who can get at it then."""

from __future__ import annotations

import os
import pty
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from as_user.conftest import capabilities, run_as, status_of
from frtop_probe.pipe import become_user
from waiting import wait_for

PROGRAM = """
import os, sys, time
print(os.getcwd(), os.umask(0), sorted(os.environ.items()), sys.argv, sys.path[:1], flush=True)
time.sleep(60)
"""
SOURCE = Path(become_user.__file__).read_text()
GUARD = 1 << become_user.SETPCAP
PTRACE = GUARD | 1 << become_user.SYS_PTRACE


@contextmanager
def became(
    python: str, user: str, source: str = SOURCE, program: str = PROGRAM
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [python, "-I", "-S", "-c", source, user, program], stdout=subprocess.PIPE, text=True,
        env={"SECRET": "root's", "PYTHONPATH": "/tmp", "FRTOP_UNPREPARED": "0", "PATH": "/tmp"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_nothing_of_root_is_left(users: tuple[str, str], python: str) -> None:
    entry = pwd.getpwnam(users[0])
    with became(python, users[0]) as process:
        said = first_line(process)
        status = status_of(process.pid)
        assert status["Uid"] == [str(entry.pw_uid)] * 4
        assert status["Gid"] == [str(entry.pw_gid)] * 4
        assert status["Groups"] == []  # not even the user's own: membership may be as good as root
        assert status["NoNewPrivs"] == ["1"]
        stays = PTRACE if become_user.wants_ptrace() else GUARD
        assert capabilities(status) == {stays}
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert "Max core file size        0                    0 " in limits
        # Closed to its user: no memory, no descriptors.
        assert run_as(entry.pw_uid, "/bin/sh", "-c", f"exec 3< /proc/{process.pid}/mem") != 0
        assert run_as(entry.pw_uid, "/bin/ls", f"/proc/{process.pid}/fd") != 0
    environment = {
        "FRTOP_AS_USER": users[0], "FRTOP_UNPREPARED": "0", "HOME": "/", "LC_ALL": "C",
        "PATH": become_user.PATH,
    }  # fmt: skip
    assert said.startswith(f"/ {0o077} {sorted(environment.items())} ['-c'] ")


@pytest.mark.parametrize(
    ("scope", "stays"),
    [("0", GUARD), ("1", PTRACE), ("2", PTRACE), ("3", GUARD)],
)
def test_capabilities_guard_also_what_is_started(
    users: tuple[str, str], python: str, tmp_path: Path, scope: str, stays: int
) -> None:
    uid = pwd.getpwnam(users[0]).pw_uid
    (tmp_path / "ptrace_scope").write_text(f"{scope}\n")
    source = SOURCE.replace(become_user.YAMA, str(tmp_path / "ptrace_scope"))
    starts = "import os; os.execv('/bin/sleep', ['sleep', '60'])"
    with became(python, users[0], source, starts) as process:
        comm = Path(f"/proc/{process.pid}/comm")
        wait_for(lambda: comm.read_text() == "sleep\n", "the program")
        status = status_of(process.pid)
        assert capabilities(status) == {stays}  # also of what it starts: py-spy
        assert status["NoNewPrivs"] == ["1"]
        # It is dumpable again, and yet the user cannot take it: it may more than a reader of hers.
        for name in ("mem", "environ", "fd/0"):
            assert run_as(uid, "/bin/sh", "-c", f"exec 3< /proc/{process.pid}/{name}") != 0, name


def test_a_uid_without_a_name_is_one_of_a_container(python: str) -> None:
    with became(python, "654321") as process:
        assert first_line(process)
        status = status_of(process.pid)
        assert status["Uid"] == status["Gid"] == ["654321"] * 4


@pytest.mark.parametrize(("user", "says"), [
    ("nosuchuser", "there is no user nosuchuser on"),
    ("4294967295", "there is no user 4294967295 on"),  # what setresuid takes for: leave it
    ("0", "--user 0 is root itself"),
    ("root", "--user root is root itself"),
])  # fmt: skip
def test_who_cannot_be_meant_is_said(python: str, user: str, says: str) -> None:
    with became(python, user) as process:
        said = first_line(process)
        assert said.startswith("frtop-error ")
        assert says in said
        assert process.wait() == 1


def test_who_is_not_root_is_told_what_to_do(users: tuple[str, str], python: str) -> None:
    done = subprocess.run(
        [python, "-I", "-S", "-c", SOURCE, users[0], "print('run')"], user=65534, group=65534,
        extra_groups=[], cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    me = os.uname().nodename
    assert f"only root on {me} can look there as user {users[0]}" in done.stdout
    assert f"--ssh root@{me} --user {users[0]}" in done.stdout
    assert "run\n" not in done.stdout


def test_root_that_cannot_give_up_all_runs_nothing(users: tuple[str, str], python: str) -> None:
    """As in a container without CAP_SETPCAP: the bounding set would stay."""
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-setpcap", "--inh-caps", "-setpcap",
         python, "-I", "-S", "-c", SOURCE, users[0], "print('run')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "root could not be given up" in done.stdout
    assert "run\n" not in done.stdout


def test_the_keys_of_root_are_left_behind(users: tuple[str, str], python: str) -> None:
    """A process in whose session a keyring is may read its keys, whoever it has become."""
    number = become_user.KEYCTL.get(os.uname().machine, -1)
    ask = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, 0, -3, 0), flush=True)"
    join = f"import ctypes; ctypes.CDLL(None).syscall({number}, 1, None)"
    run = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [python, "-c", f"{join}\n{ask}\n{run}", "-I", "-S", "-c", SOURCE, users[0], ask],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, after = map(int, done.stdout.split())
    if before <= 0:
        pytest.skip("no keyrings here")
    assert after not in (before, -1)


@pytest.mark.parametrize("leads", [False, True])
def test_no_terminal_of_root_is_left(users: tuple[str, str], python: str, leads: bool) -> None:
    """A shell of root in that terminal would read what is typed into it (TIOCSTI)."""
    program = (
        "import os\n"
        "try:\n"
        "    os.open('/dev/tty', os.O_RDWR)\n"
        "except OSError:\n"
        "    print('none', flush=True)\n"
        "else:\n"
        "    print('a terminal', flush=True)\n"
    )
    command = [python, "-I", "-S", "-c", SOURCE, users[0], program]
    read, write = os.pipe()
    shell, terminal = pty.fork()
    if shell == 0:  # the leader of a session with a terminal: root's shell
        reader = os.fork()
        if reader == 0:
            if leads:  # as a shell with job control starts it
                os.setpgid(0, 0)
            os.dup2(write, 1)
            os.execv(python, command)
        os.waitpid(reader, 0)
        os._exit(0)
    os.close(write)
    try:
        with os.fdopen(read) as said:
            assert said.read() == "none\n"
    finally:
        os.waitpid(shell, 0)
        os.close(terminal)
