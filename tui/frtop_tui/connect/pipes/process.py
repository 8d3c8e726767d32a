"""A running command with three pipes that never block us.

Nothing of it may remain when frtop ends, however frtop ends. It gets SIGTERM when we die if
`setpriv` is available to arrange that (PR_SET_PDEATHSIG). Otherwise, and for what runs on the other
host, the end of its input ends it: ssh, kubectl and srun pass that on, and the agent exits.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Final

from frtop_tui.connect.pipes.framing import NOISE_LINES, LineStream, readable

READ_BYTES: Final = 256 * 1024
MAX_UNSENT: Final = 8 * 1024 * 1024
"""Bytes that may wait to be written; requests beyond that are refused."""
WRITE_BYTES: Final = 256 * 1024

NO_QUESTIONS: Final = {"SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": "false"}
"""For the ssh of a jump host, which does not inherit `BatchMode`: it must not open a window."""


@functools.cache
def guard() -> tuple[str, ...]:
    """Prefix that makes a command end with us; empty if this is impossible."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    prefix = (setpriv, "--pdeathsig", "TERM", "--")
    try:  # busybox's setpriv lacks the option
        done = subprocess.run((*prefix, "true"), capture_output=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return prefix if done.returncode == 0 else ()


class PipeProcess:
    """Belongs to one thread: the command ends when that thread ends."""

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        """Starts it in a session of its own, without a terminal on which it could ask.

        Raises:
            OSError: it cannot be started.
        """
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(command[0])
        self.command = command
        self._child = subprocess.Popen(
            (*guard(), *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **NO_QUESTIONS, **environment},
            start_new_session=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._input: IO[bytes] = self._child.stdin
        self.output = self._child.stdout.fileno()
        self.errors = self._child.stderr.fileno()
        self.input = self._input.fileno()
        for fd in (self.output, self.errors, self.input):
            os.set_blocking(fd, False)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._lines = LineStream()
        self._error_lines = LineStream()
        self.said: deque[str] = deque(maxlen=NOISE_LINES)
        """Its last lines on stderr."""
        self.moved_at = time.monotonic()
        """When we last read from it or wrote to it."""
        self.ended = False
        """Its output has ended."""

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def unsent(self) -> int:
        """Bytes that wait to be written."""
        return self._unsent_bytes

    def write(self, data: bytes, *, bounded: bool = True) -> bool:
        """Writes, now or as soon as the other side reads; False if too much is already waiting."""
        if self._input.closed or (bounded and self._unsent_bytes + len(data) > MAX_UNSENT):
            return False
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        self.flush()
        return True

    def flush(self) -> None:
        """Writes what can be written without waiting."""
        while self._unsent:
            first = self._unsent[0]
            try:
                written = os.write(self.input, first[:WRITE_BYTES])
            except BlockingIOError:
                return
            except OSError:  # it has ended; its output says so, too
                self._unsent.clear()
                self._unsent_bytes = 0
                return
            self.moved_at = time.monotonic()
            self._unsent_bytes -= written
            if written == len(first):
                self._unsent.popleft()
            else:
                self._unsent[0] = first[written:]

    def read(self) -> list[bytes]:
        """The lines that have arrived; sets `ended` at the end of the output."""
        data = self.receive()
        if self.ended:
            rest = self._lines.rest()
            return [rest] if rest else []
        return list(self._lines.feed(data))

    def receive(self) -> bytes:
        """The bytes that have arrived; sets `ended` at the end of the output."""
        data = _read(self.output)
        if data:
            self.moved_at = time.monotonic()
        self.ended = data == b""
        return data or b""

    def read_errors(self) -> bool:
        """Takes in what it wrote to stderr; False at its end."""
        data = _read(self.errors)
        if data:
            self.said += filter(None, map(readable, self._error_lines.feed(data)))
        return data != b""

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.poll()

    def close_input(self) -> None:
        """Writes what can be written now, and ends its input: a program that reads it ends."""
        self._unsent.clear()  # the descriptor may soon belong to another file
        self._unsent_bytes = 0
        with suppress(OSError):
            self._input.close()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and to what it has started."""
        if self._child.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def release(self) -> None:
        """Closes the pipes; the process has ended, or will end by itself."""
        while self.read_errors_left():
            pass
        self.close_input()
        for end in (self._child.stdout, self._child.stderr):
            if end is not None:
                end.close()

    def read_errors_left(self) -> bool:
        """Takes in what has already arrived on stderr."""
        data = _read(self.errors)
        if not data:
            if rest := readable(self._error_lines.rest()):
                self.said.append(rest)
            return False
        self.said += filter(None, map(readable, self._error_lines.feed(data)))
        return True


def _read(fd: int) -> bytes | None:
    """The available bytes, b"" at the end, None if nothing has arrived."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


LEAVE_S: Final = 0.7
"""From the end of its input to SIGTERM, and from there to SIGKILL."""
STEP_S: Final = 0.01


@dataclass(slots=True)
class _Leaving:
    process: PipeProcess
    since: float
    signals: list[signal.Signals] = field(default_factory=lambda: [signal.SIGKILL, signal.SIGTERM])


class LeavingProcesses:
    """Processes whose input has ended. One that does not exit gets SIGTERM, then SIGKILL."""

    def __init__(self) -> None:
        self._leaving: list[_Leaving] = []

    def add(self, process: PipeProcess, now: float) -> None:
        """Takes over a process."""
        self._leaving.append(_Leaving(process, now))

    def work(self, now: float) -> None:
        """Sends the next signal to processes that take too long; forgets those that have ended."""
        for one in list(self._leaving):
            if one.process.status() is not None:
                one.process.release()
                self._leaving.remove(one)
            elif one.signals and now - one.since > LEAVE_S:
                one.process.signal(one.signals.pop())
                one.since = now

    def await_end(self) -> None:
        """Waits until all have ended: at most three times `LEAVE_S`."""
        until = time.monotonic() + 3 * LEAVE_S
        while self._leaving and (now := time.monotonic()) < until:
            self.work(now)
            time.sleep(STEP_S)
