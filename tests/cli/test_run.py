"""`frtop run` behaves like the command itself."""

from __future__ import annotations

import os
import pty
import resource
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from frtop_probe.recorder.marks.phases import SETTING as PHASES
from frtop_probe.recorder.own_ring import LONGER_RING
from frtop_probe.recorder.tensors.device_tensors import SETTING
from frtop_tui.cli import run
from waiting import DEADLINE_S, wait_for

FRTOP = [sys.executable, "-m", "frtop_tui", "run"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "frtop"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("FRTOP_DIR", str(folder))
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "key"))
    for setting in ("FRTOP_RECORD", SETTING):
        monkeypatch.delenv(setting, raising=False)
    return folder


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "record"


def frtop(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FRTOP, *map(str, words)],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, **more,
    )  # fmt: skip


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a recorded command in its own session; the program prints "up" when it runs.

    The signal mirror starts after it: without the mirror, group signals would arrive twice.
    """
    started: list[subprocess.Popen[str]] = []

    def starting(record: Path, program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*FRTOP, "--record", str(record), "--", sys.executable, "-u", "-c", program],
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        wait_for(lambda: len(psutil.Process(process.pid).children()) == 2, "its signal mirror runs")
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


def test_without_record_run_becomes_the_command_and_makes_no_key(home: Path) -> None:
    ours = subprocess.Popen(
        [*FRTOP, "--", "sh", "-c", "echo $$; kill -9 $$"], stdout=subprocess.PIPE
    )
    assert ours.communicate()[0] == b"%d\n" % ours.pid
    assert ours.returncode == -signal.SIGKILL
    assert not (home.parent / "key").exists()


def test_run_imports_nothing_that_delays_the_start_of_a_job() -> None:
    heavy = {"msgspec", "zmq", "textual", "psutil", "asyncio", "torch"}
    program = (
        "import sys; from frtop_tui.cli import parser, run; parser.parse(['run', '--', 'true']); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize("words", [[], ["--record", "rec"]])
def test_a_broken_pipe_ends_the_command(words: list[str], tmp_path: Path) -> None:
    """Python ignores SIGPIPE; the command must not."""
    said = subprocess.run(
        ["sh", "-c", f'{" ".join(FRTOP)} {" ".join(words)} -- yes | head -n 1'],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert (said.stdout, said.stderr) == ("y\n", "")


def test_the_record_folder_is_created_and_passed_to_the_ranks(record: Path) -> None:
    said = frtop("--record", os.path.relpath(record), "--", "sh", "-c", 'echo "$FRTOP_RECORD"')
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{record}\n", "")
    assert stat.S_IMODE(record.stat().st_mode) == 0o700
    assert not list(record.iterdir())


def test_an_inherited_record_folder_is_used(record: Path) -> None:
    environment = {**os.environ, "FRTOP_RECORD": os.path.relpath(record)}
    said = frtop("--", "sh", "-c", 'echo "$FRTOP_RECORD"', env=environment)
    assert (said.returncode, said.stdout) == (0, f"{record}\n")


def test_what_costs_a_rank_something_is_recorded_only_where_that_was_asked_for() -> None:
    show = [
        "--",
        "sh",
        "-c",
        f'echo "${SETTING}.${PHASES}.$FRTOP_MODULES.${LONGER_RING}.$FRTOP_REPORT"',
    ]
    assert frtop(*show).stdout == "....\n"
    every = ("--device-tensors", "--phases", "--modules", "--longer-ring", "--report")
    assert frtop(*every, *show).stdout == "1.1.1.1.1\n"


def test_an_unwritable_record_folder_is_an_error_with_a_next_step(record: Path) -> None:
    record.parent.mkdir()
    record.touch()
    said = frtop("--record", record, "--", "echo", "ran")
    assert said.returncode == 1
    assert said.stdout == ""
    assert f"black boxes cannot be written to {record}: not a folder" in said.stderr
    assert "--record" in said.stderr.split("next: ")[1]


def test_an_impossible_folder_is_an_error_only_when_typed(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    typed = frtop("--record", "~nobody-of-that-name/x", "--", "echo", "ran", cwd=tmp_path)
    assert (typed.returncode, typed.stdout) == (1, "")
    assert "next: give a writable folder" in typed.stderr
    inherited = {**os.environ, "FRTOP_RECORD": "circle/x"}
    said = frtop("--", "echo", "ran", cwd=tmp_path, env=inherited)
    assert (said.returncode, said.stdout) == (0, "ran\n")
    assert "the job runs without black boxes" in said.stderr


def test_an_inherited_folder_that_hangs_does_not_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = threading.Event()
    monkeypatch.setattr(run, "_PROBE_S", 0.1)
    monkeypatch.setattr(run, "_probe_folder", lambda wanted: dead.wait(60) and wanted)
    monkeypatch.setenv("FRTOP_RECORD", str(tmp_path))
    assert run._record(None) is None
    dead.set()
    assert "no answer within" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--record", "rec"]])
def test_a_command_that_cannot_run_has_a_shells_status(words: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x7fELF nonsense")
    script.chmod(0o700)
    said = frtop(*words, "--", script, cwd=tmp_path)
    assert said.returncode == 126
    assert "Exec format error" in said.stderr


@pytest.mark.parametrize("end", ["exit 7", "kill -SEGV $$"])
def test_the_exit_status_is_the_commands_own(record: Path, end: str) -> None:
    expected = subprocess.run(["sh", "-c", end], check=False).returncode
    said = frtop("--record", record, "--", "sh", "-c", end)
    assert said.returncode == expected
    assert said.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_not_change_the_status(record: Path, closed: str) -> None:
    command = f"{' '.join(FRTOP)} --record {record} -- sh -c 'exit 3' {closed}"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 3


def test_stdin_goes_to_the_command(record: Path) -> None:
    assert frtop("--record", record, "--", "cat", input="text").stdout == "text"


COUNTING = """
import signal, sys, time
got = []
for n in (15, 1, 2, 3, 10, 12):
    signal.signal(n, lambda n, f: got.append(n))
print("up")
while len(got) < 6:  # no pause(): the last signal may come just before it
    time.sleep(0.01)
print(sorted(got))
sys.exit(5)
"""


def test_signals_to_the_parent_alone_are_forwarded(
    record: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(record, COUNTING)
    for number in (15, 1, 2, 3, 10, 12):
        process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert output == "[1, 2, 3, 10, 12, 15]\n"
    assert process.returncode == 5


@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGRTMIN + 2])
def test_a_handled_group_signal_does_not_end_the_command(
    record: Path, start: Callable[..., subprocess.Popen[str]], number: int
) -> None:
    """It must not end the parent either: the command would be killed with it."""
    process = start(
        record,
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.01)",
    )
    os.killpg(process.pid, number)
    assert process.wait(DEADLINE_S) == 5


def test_killing_the_parent_kills_the_command(
    record: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(record, "import time; print('up'); time.sleep(600)")
    children = psutil.Process(process.pid).children()
    assert command_of(process) in children
    process.kill()
    process.wait()
    wait_for(lambda: all(map(is_over, children)), "command and signal mirror are killed")


def test_the_command_shares_our_group_and_leaves_no_zombie(
    record: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(record, "import time; print('up'); time.sleep(600)")
    child = command_of(process)
    assert os.getpgid(child.pid) == os.getpgid(process.pid)
    children = psutil.Process(process.pid).children()
    child.terminate()
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    assert not any(psutil.pid_exists(one.pid) for one in children)


def command_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The command's process; the other child is the signal mirror."""
    children = psutil.Process(process.pid).children()
    assert len(children) == 2
    (child,) = (child for child in children if child.cmdline()[1:3] == ["-u", "-c"])
    return child


def is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == "zombie"
    except psutil.NoSuchProcess:
        return True


def test_group_signals_arrive_once(
    record: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """As sent by `timeout`, `srun` and systemd; a second one may hit a program that exits."""
    process = start(record, COUNTING)
    for number in (15, 1, 2):
        os.killpg(process.pid, number)
    time.sleep(0.5)
    for number in (3, 10, 12):
        process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert output == "[1, 2, 3, 10, 12, 15]\n"
    assert process.returncode == 5


INTERRUPTED = """
import signal, time
got = []
signal.signal(signal.SIGINT, lambda n, f: got.append(n))
print("up", flush=True)
while not got:
    time.sleep(0.01)
time.sleep(0.5)
print("got", len(got), flush=True)
"""


class Terminal:
    """A shell with job control on its own terminal."""

    def __init__(self) -> None:
        self.pid, self.descriptor = pty.fork()
        if not self.pid:
            os.environ["PS1"] = "$ "
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.received = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def expect(self, text: str) -> None:
        """Reads the output up to and including `text`."""

        def is_printed() -> bool:
            if text not in self.received and select.select([self.descriptor], [], [], 0.1)[0]:
                self.received += os.read(self.descriptor, 65536).decode("utf-8", "replace")
            return text in self.received

        wait_for(is_printed, lambda: f"{text!r} in {self.received!r}", pause_s=0)
        self.received = self.received.partition(text)[2]

    def prompt(self) -> None:
        """Waits until the shell reads again: what is typed while it takes the terminal is lost.

        The last word typed has to be answered: a line left over is read by the next command.
        """
        shell = psutil.Process(self.pid)
        wait_for(
            lambda: os.tcgetpgrp(self.descriptor) == self.pid and shell.status() == "sleeping",
            "the shell reads",
        )
        words = count()

        def answers() -> bool:
            word = next(words)
            self.type(f"echo w''ord{word}\n")
            end = time.monotonic() + 1
            while (left := end - time.monotonic()) > 0 and f"word{word}\r\n" not in self.received:
                if select.select([self.descriptor], [], [], left)[0]:
                    self.received += os.read(self.descriptor, 65536).decode("utf-8", "replace")
            return f"word{word}\r\n" in self.received

        wait_for(answers, lambda: f"an answer in {self.received!r}", pause_s=0)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.descriptor)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    found.close()


def test_ctrl_c_arrives_once(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(INTERRUPTED)
    run = f"{' '.join(FRTOP)} --record {tmp_path}/record -- {sys.executable} {tmp_path}/program.py"
    terminal.type(f"{run}; echo status=$?\n")
    terminal.expect("up\r\n")
    terminal.type("\x03")
    terminal.expect("got 1\r\n")
    terminal.expect("status=0\r\n")


def test_ctrl_z_and_fg_work(terminal: Terminal, tmp_path: Path) -> None:
    run = f"{' '.join(FRTOP)} --record {tmp_path}/record"
    terminal.type(f"{run} -- sh -c 'echo u''p; read word; echo got-$word; exit 4'\n")
    terminal.expect("up\r\n")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.prompt()
    terminal.type("fg\n")
    terminal.expect("read word")  # the shell says what it resumes
    terminal.type("back\n")
    terminal.expect("got-back\r\n")
    terminal.type("echo status=$?\n")
    terminal.expect("status=4\r\n")


STOPS_LATE = """
import os, signal, sys, time
def stop(*_):
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGTSTP, stop)
open(sys.argv[1], "w").write(str(os.getpid()))
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


def test_the_shell_has_the_terminal_only_after_the_command_has_stopped(
    terminal: Terminal, tmp_path: Path
) -> None:
    """A command that still reads would take a part of what is typed into the shell."""
    (tmp_path / "program.py").write_text(STOPS_LATE)
    run = f"{' '.join(FRTOP)} --record {tmp_path}/record -- {sys.executable} {tmp_path}/program.py"
    terminal.type(f"{run} {tmp_path}/pid\n")
    terminal.expect("up\r\n")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    program = psutil.Process(int((tmp_path / "pid").read_text()))
    assert program.status() == "stopped"
    terminal.prompt()
    terminal.type("kill -KILL %1\n")
    wait_for(lambda: not program.is_running(), "it ends with frtop")


def test_a_command_that_stops_itself_gives_the_terminal_back(
    terminal: Terminal, tmp_path: Path
) -> None:
    run = f"{' '.join(FRTOP)} --record {tmp_path}/record"
    terminal.type(f"{run} -- sh -c 'kill -STOP $$; echo wo''ken'\n")
    terminal.expect("Stopped")
    terminal.prompt()
    terminal.type("fg\n")
    terminal.expect("woken\r\n")


def test_a_stopped_command_continues_without_job_control(
    record: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(record, "import os; print('up'); os.kill(os.getpid(), 19); print('on')")
    child = command_of(process)
    wait_for(lambda: child.status() == "stopped", "it stops")
    child.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=DEADLINE_S)[0] == "on\n"
    assert process.returncode == 0


def test_only_the_command_dumps_a_core(record: Path, tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    said = subprocess.run(
        [*FRTOP, "--record", record, "--", "sh", "-c", "ulimit -c 0; kill -ABRT $$"],
        cwd=tmp_path, check=False, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )  # fmt: skip
    assert said.returncode == -signal.SIGABRT
    assert not list(tmp_path.glob("core*"))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root for a pid namespace")
def test_a_containers_first_process_reaps_orphans(record: Path) -> None:
    program = """
import os, time
if not os.fork():
    if not os.fork():
        time.sleep(0.2)
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(0.6)
states = [open(f"/proc/{p}/stat").read().split()[2] for p in os.listdir("/proc") if p.isdigit()]
print("Z" in states, os.getppid())
os.kill(os.getpid(), 15)
"""
    said = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *FRTOP, "--record", str(record), "--",
         sys.executable, "-c", program],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert said.stdout == "False 1\n", said.stderr
    assert said.returncode == 128 + signal.SIGTERM


KILLED_MIRROR = """
import os, signal, sys
from frtop_tui.cli.parent import Child
child = Child(["sleep", "1"], os.environ)
mirror = child._mirror.pid
os.kill(mirror, int(sys.argv[1]))
killed, kill = [], os.kill
os.kill = lambda pid, number: killed.append(pid) or kill(pid, number)
assert child.wait() == 0
print(killed == [mirror])
"""


@pytest.mark.parametrize(("number", "killed"), [(signal.SIGKILL, False), (signal.SIGSTOP, True)])
def test_a_killed_signal_mirror_is_not_killed_again(number: int, killed: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_MIRROR, str(number)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == f"{killed}\n", done.stderr
