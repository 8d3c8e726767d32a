"""Output that cannot be written, of real processes: one line, and an exit status."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from contextlib import ExitStack
from pathlib import Path

import pytest

from frtop_probe import keys
from frtop_probe.agent import announcement
from frtop_tui.cli import main
from frtop_tui.cli.output import show_progress
from frtop_tui.files import capture
from screens.scenes import hung
from waiting import wait_for

FULL = Path("/dev/full")
SAID = "frtop: not all of the output was written: No space left on device"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRTOP_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("FRTOP_DIR", str(tmp_path))
    monkeypatch.setenv("FRTOP_AGENT", "0")
    keys.load(create=True)
    path = tmp_path / "hang.cap"
    capture.write(path, hung(), {}, ())
    return path


def frtop(*words: str, out: str = os.devnull, err: str | None = None) -> tuple[int, str]:
    """Exit status and what was said on stderr."""
    with ExitStack() as opened:
        errors = subprocess.PIPE if err is None else opened.enter_context(Path(err).open("w"))
        done = subprocess.run(
            [sys.executable, "-m", "frtop_tui", *words],
            stdout=opened.enter_context(Path(out).open("w")), stderr=errors, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    return done.returncode, done.stderr or ""


def test_a_full_disk_is_one_line_and_no_traceback(recorded: Path) -> None:
    status, said = frtop("diagnose", str(recorded), out=str(FULL))
    assert status == 1
    assert said.startswith(SAID)
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [
    ["diagnose", "FILE"], ["diagnose", "FILE", "--json"], ["key"], ["key", "make"], ["--version"],
    ["--help"], ["capture", "--help"],
])  # fmt: skip
def test_so_it_is_for_every_command(
    words: list[str], recorded: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with FULL.open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([str(recorded) if word == "FILE" else word for word in words]) == 1
    said = capsys.readouterr().err
    assert said.startswith(SAID)
    assert said.count("\n") == 1


def test_errors_that_cannot_be_written_leave_an_exit_status(recorded: Path) -> None:
    assert frtop("diagnose", str(recorded), out=str(FULL), err=str(FULL)) == (1, "")


def test_a_reader_that_has_left_is_no_error(recorded: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "frtop_tui", "diagnose", str(recorded)], stdout=theirs,
        stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_line_of_progress_is_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wraps is not replaced by the next: the screen filled with them."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 40, 0, 0))
    with open(theirs, "w") as terminal:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", terminal)
        show_progress("a name that is too long " * 9)
        said = os.read(ours, 1000)
    os.close(ours)
    assert len(said.removeprefix(b"\r\x1b[K")) == 39


def test_closed_streams_are_no_error(recorded: Path) -> None:
    command = f"{sys.executable} -m frtop_tui"
    script = (
        f"{command} diagnose {recorded} >&-; echo $?;"
        f" {command} jobs --connect 127.0.0.1:1 --wait 0.1 2>&-; echo $?"
    )
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    nothing, jobs, *_, status = done.stdout.splitlines()
    assert (nothing, jobs, status) == ("3", "no job found on any host", "1")
    assert "Traceback" not in done.stderr


def test_other_errors_are_not_taken_for_it(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/some/file")

    monkeypatch.setattr("frtop_tui.cli.diagnose.open_files", fail)
    with pytest.raises(OSError, match="/some/file"):
        main(["diagnose", str(recorded)])


def test_a_job_runs_although_nothing_can_be_said(recorded: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "frtop_tui", "run", "--", "true"], stderr=full, timeout=60,
            env={**os.environ, "FRTOP_RECORD": "/dev/null/no-folder"}, check=False,
        )  # fmt: skip
    assert done.returncode == 0


def test_an_agent_serves_although_nothing_can_be_said(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRTOP_BIND", "127.0.0.1")
    with FULL.open("w") as full:
        agent = subprocess.Popen(
            [sys.executable, "-m", "frtop_tui", "agent"], stdout=full, stderr=subprocess.PIPE
        )
    try:
        wait_for(lambda: announcement.find_agent(recorded.parent), "the agent announces itself")
    finally:
        agent.terminate()
        said = agent.communicate(timeout=60)[1].decode()
    assert "Traceback" not in said


INTERRUPTED_AT_IMPORT = """
import runpy, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "frtop_tui.cli.parser":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
runpy.run_module("frtop_tui", run_name="__main__")
"""


def test_an_interrupt_while_frtop_is_loaded_ends_it_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_IMPORT], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")
