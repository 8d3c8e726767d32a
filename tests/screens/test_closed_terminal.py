"""The app ends when its terminal is closed, and its caller cleans up. It lives through a stop."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
PROGRAM = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
from frtop_tui.app import run_app
from connect.scripted_source import ScriptedSource
from frtop_tui.terminal import end
from screens import scenes
source = ScriptedSource([scenes.hung()])
status = run_app(source)
print("cleaning up", file=sys.stderr, flush=True)
os.write(int(sys.argv[1]), f"left {{status}} closed {{source.closed}}".encode())
sys.exit(end(status))
"""
LIMIT_S = 60.0


class OnTerminal:
    """The program on its own terminal, whose other end is ours."""

    def __init__(self, *, controlled: bool) -> None:
        self.side, inner = pty.openpty()
        self.modes = termios.tcgetattr(inner)
        self.output, pipe = os.pipe()
        command = [sys.executable, "-c", PROGRAM, str(pipe)]
        if controlled:
            # With a controlling terminal, the kernel sends SIGHUP when it is closed.
            command = ["setsid", "--ctty", "--wait", *command]
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            pass_fds=(pipe,),
            start_new_session=not controlled,
        )
        os.close(inner)
        os.close(pipe)
        self.wait_for(b"HUNG")

    def wait_for(self, text: bytes) -> None:
        """Reads until the text has been drawn."""
        drawn = b""
        while text not in drawn:
            drawn += os.read(self.side, 65536)

    def close_window(self) -> None:
        os.close(self.side)

    def ended(self) -> tuple[int, str, float]:
        """Exit status, output of the app's caller, and seconds until the end."""
        begin = time.monotonic()
        status = self.process.wait(LIMIT_S)
        took = time.monotonic() - begin
        with os.fdopen(self.output) as output:
            return status, output.read(), took


@pytest.fixture
def start() -> Iterator[Callable[[bool], OnTerminal]]:
    programs: list[OnTerminal] = []

    def begin(controlled: bool) -> OnTerminal:
        programs.append(OnTerminal(controlled=controlled))
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


@pytest.mark.parametrize("controlled", [True, False], ids=["with SIGHUP", "without SIGHUP"])
def test_a_closed_window_ends_the_app_and_its_caller_cleans_up(
    start: Callable[[bool], OnTerminal], controlled: bool
) -> None:
    on_terminal = start(controlled)
    on_terminal.close_window()
    status, output, took = on_terminal.ended()
    assert (status, output) == (129, "left 129 closed True")
    assert took < LIMIT_S / 2, "takes a second on an idle machine"


def test_sigterm_restores_the_terminal(start: Callable[[bool], OnTerminal]) -> None:
    on_terminal = start(False)  # else the signal would go to setsid
    on_terminal.process.send_signal(signal.SIGTERM)
    on_terminal.wait_for(b"\x1b[?1049l")
    status, output, _ = on_terminal.ended()
    assert (status, output) == (143, "left 143 closed True")


def test_after_a_stop_it_is_drawn_anew_and_its_end_restores_the_terminal(
    start: Callable[[bool], OnTerminal],
) -> None:
    on_terminal = start(False)
    for _ in range(2):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            on_terminal.process.send_signal(number)
        on_terminal.wait_for(b"HUNG")
    os.write(on_terminal.side, b"Q")
    on_terminal.wait_for(b"\x1b[?1049l")
    assert on_terminal.ended()[:2] == (0, "left 0 closed True")
    assert termios.tcgetattr(on_terminal.side) == on_terminal.modes
