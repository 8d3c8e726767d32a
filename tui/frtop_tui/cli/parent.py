"""Runs a command as if it had taken our place, and yet is there when it has ended.

The child shares our process group and terminal, so that ctrl+c, ctrl+z, `fg`, stdin and
job control are between it and the terminal. What is sent to this process alone is passed
on; its exit status, or the signal that ended it, becomes ours. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NoReturn

RESTORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these; a command that inherited that would not end with its pipe."""
_OWN: Final = frozenset({
    signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD,
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
    *RESTORED,
})  # fmt: skip
"""What stops us, or tells of us and our children."""
PASSED_ON: Final = frozenset(signal.valid_signals() - _OWN)
"""All others: one that we died of would be the end of a command that bears it."""
_BY_KERNEL: Final = 0x80
"""`si_code` of what a terminal sends; it sends it to the whole group."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_ALL_SENT: Final = 0.05
"""Seconds until a signal that is sent to many, one by one, has come to all of them."""
_STILL_STOPPED: Final = 0.05
"""Seconds. `fg` wakes a group one by one: a child that is about to be woken is not stopped."""


def execute(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Becomes the command.

    Raises:
        OSError: it cannot be run.
    """
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(command[0], command, environment)  # noqa: S606 - that is the command


class Witness:
    """A process of our group that keeps what it is sent: what it has, the command has, too."""

    def __init__(self) -> None:
        """Raises OSError when there is no room for another process."""
        libc = ctypes.CDLL(None)
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                os.closerange(0, 1 << 20)
                while os.getppid() == parent:
                    signal.pause()
            finally:
                os._exit(0)

    def has(self) -> frozenset[int]:
        """Signals that came to it."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                kept = next(line for line in file if line.startswith("ShdPnd:"))
        except (OSError, StopIteration):
            return frozenset()
        bits = int(kept.split()[1], 16)
        return frozenset(number for number in range(1, 65) if bits >> (number - 1) & 1)

    def end(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Child:
    """A running command."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Starts it, and keeps signals from now on.

        Raises:
            OSError: it cannot be run.
        """
        self._kept = PASSED_ON | {signal.SIGCHLD}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._kept)
        libc = ctypes.CDLL(None)
        parent = os.getpid()
        burying = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would bury for us
        failure, told = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if not self.pid:
            try:
                # With us it would have died of SIGKILL; alone it would go on unwatched.
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(1)
                signal.signal(signal.SIGCHLD, burying)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                execute(command, environment)
            except OSError as error:
                os.write(told, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(told)
        with open(failure, "rb") as pipe:  # noqa: PTH123 - a descriptor
            number = pipe.read()
        if number:
            os.waitpid(self.pid, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise OSError(int(number), os.strerror(int(number)), command[0])
        self._witness = _witness()
        self._common: frozenset[int] = frozenset()

    def wait(self) -> int:
        """Passes signals on until the child has ended; gives its status as of waitpid(2)."""
        while True:
            status = self._reap()
            if status is not None:
                if self._witness is not None:
                    self._witness.end()
                return status
            came = signal.sigwaitinfo(self._kept)
            if came.si_signo != signal.SIGCHLD and not self._got_it(came):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, came.si_signo)

    def _reap(self) -> int | None:
        """Buries whoever has ended: as the first process of a container, orphans, too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return 127 << 8  # somebody else has buried it
            if not pid:
                return None
            stopped = os.WIFSTOPPED(status)
            if pid == self.pid and not stopped:
                return status
            if pid == self.pid:
                self._stop_too()
            elif self._witness is not None and pid == self._witness.pid and not stopped:
                self._witness = None  # somebody killed it: its number may be another's soon

    def _got_it(self, came: signal.struct_siginfo) -> bool:
        """Whether the child has the signal as well: the terminal's, or sent to all of us."""
        number, witness = came.si_signo, self._witness
        if number in self._common:
            self._common -= {number}
            return True
        common: frozenset[int] = frozenset()
        if witness is not None:
            time.sleep(_ALL_SENT)
            common = witness.has()
            if common:  # what it has, it keeps: another one takes its place
                witness.end()
                self._witness = _witness()
                self._common = common - {number}
        return number in common or came.si_code >= _BY_KERNEL or came.si_pid == self.pid

    def _stop_too(self) -> None:
        """Gives the terminal back to the shell, as the child has when it was stopped.

        In a group without job control the kernel ignores this: nobody could wake us.
        """
        time.sleep(_STILL_STOPPED)
        with suppress(OSError), open(f"/proc/{self.pid}/stat", "rb") as file:  # noqa: PTH123
            if file.read().rpartition(b") ")[2][:1] == b"T":
                os.kill(os.getpid(), signal.SIGTSTP)


def _witness() -> Witness | None:
    try:
        return Witness()
    except OSError:
        return None  # what a whole group is sent comes twice then


def end_like(status: int, before: Callable[[], None]) -> int:
    """After `before`, dies of the signal that ended the child; else gives its exit status.

    Without a core: the child has left one, if anybody wants one.
    """
    before()
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)  # that limit is not for cores sent to pipes
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)  # not SIGKILL, which needs no such thing
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # the first process of a container does not die of its own signals
