"""Runs a command as a child process that behaves as if it had replaced this process.

The child shares our process group and terminal, so ctrl+c, ctrl+z, `fg` and stdin work as usual. It
gets signals sent to this process alone, and its exit status, or the signal that ended it, becomes
ours. Standard library only.
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

from frtop_probe.proc import pid_stat

RESTORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command that inherits that would survive a broken pipe."""
_NOT_FORWARDED: Final = frozenset({
    signal.SIGKILL, signal.SIGSTOP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD,
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
    *RESTORED,
})  # fmt: skip
"""Signals that stop this process, report a fault in it, or report on its children.

SIGTSTP is not among them: we stop after the command. Otherwise the shell would take the terminal
while the command may still read from it.
"""
FORWARDED: Final = frozenset(signal.valid_signals() - _NOT_FORWARDED)
"""All others: the command may handle a signal that would end us, and then end with us."""
_FROM_KERNEL: Final = 0x80
"""`si_code` of a signal from a terminal, which the whole process group receives."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_GROUP_SIGNAL_S: Final = 0.05
"""Seconds until a signal sent to each process of a group has reached all of them."""
_STILL_STOPPED_S: Final = 0.05
"""Seconds. `fg` wakes a group one by one: a child about to be woken does not count as stopped."""


def execute(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Replaces this process with the command.

    Raises:
        OSError: it cannot be run.
    """
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(command[0], command, environment)  # noqa: S606 - that is the command


class SignalMirror:
    """A process in our group that blocks all signals.

    A signal pending in it was sent to the whole group, so the child has received it, too.
    """

    def __init__(self) -> None:
        """Raises OSError when the process cannot be started."""
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

    def pending(self) -> frozenset[int]:
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
                line = next(line for line in file if line.startswith("ShdPnd:"))
        except (OSError, StopIteration):
            return frozenset()
        bits = int(line.split()[1], 16)
        return frozenset(number for number in range(1, 65) if bits >> (number - 1) & 1)

    def end(self) -> None:
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Child:
    """A running command."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Starts the command, and blocks signals in this process from now on.

        Raises:
            OSError: it cannot be run.
        """
        self._blocked = FORWARDED | {signal.SIGCHLD}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._blocked)
        libc = ctypes.CDLL(None)
        parent = os.getpid()
        # If SIGCHLD were ignored, the kernel would reap the child and drop its status.
        inherited = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        failure, error_pipe = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if not self.pid:
            try:
                # The child dies with us: alone it would run unrecorded.
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(1)
                signal.signal(signal.SIGCHLD, inherited)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                execute(command, environment)
            except OSError as error:
                os.write(error_pipe, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(error_pipe)
        with open(failure, "rb") as pipe:  # noqa: PTH123 - a descriptor
            number = pipe.read()
        if number:
            os.waitpid(self.pid, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise OSError(int(number), os.strerror(int(number)), command[0])
        self._mirror = _start_mirror()
        self._received: frozenset[int] = frozenset()
        """Signals of the group that the child has received, and we have not handled yet."""

    def wait(self) -> int:
        """Forwards signals until the child has ended; returns its status as of waitpid(2)."""
        while True:
            status = self._reap()
            if status is not None:
                if self._mirror is not None:
                    self._mirror.end()
                return status
            info = signal.sigwaitinfo(self._blocked)
            if info.si_signo != signal.SIGCHLD and not self._child_received(info):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, info.si_signo)

    def _reap(self) -> int | None:
        """Reaps ended children, and orphans if we are a container's first process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return 127 << 8  # another thread has reaped it
            if not pid:
                return None
            stopped = os.WIFSTOPPED(status)
            if pid == self.pid and not stopped:
                return status
            if pid == self.pid:
                self._stop_with_child()
            elif self._mirror is not None and pid == self._mirror.pid and not stopped:
                self._mirror = None  # it was killed; its pid may soon belong to another process

    def _child_received(self, info: signal.struct_siginfo) -> bool:
        """Whether the child received the signal, too, from the terminal or with the group."""
        number, mirror = info.si_signo, self._mirror
        if number in self._received:
            self._received -= {number}
            return True
        pending: frozenset[int] = frozenset()
        if mirror is not None:
            time.sleep(_GROUP_SIGNAL_S)
            pending = mirror.pending()
            if pending:  # its signals stay pending: replace it
                mirror.end()
                self._mirror = _start_mirror()
                self._received = pending - {number}
        return number in pending or info.si_code >= _FROM_KERNEL or info.si_pid == self.pid

    def _stop_with_child(self) -> None:
        """Stops this process after the child, so that the shell gets the terminal back.

        Without job control, the kernel ignores this, since nobody could wake us.
        """
        time.sleep(_STILL_STOPPED_S)
        child = pid_stat.read(f"/proc/{self.pid}")
        if child is not None and child.state == "T":
            stop = {signal.SIGTSTP}
            while signal.sigtimedwait(stop, 0):  # from the terminal; the child got it, too
                pass
            signal.pthread_sigmask(signal.SIG_UNBLOCK, stop)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.pthread_sigmask(signal.SIG_BLOCK, stop)


def _start_mirror() -> SignalMirror | None:
    try:
        return SignalMirror()
    except OSError:
        return None  # the child then gets signals of the group twice


def exit_like(status: int, before: Callable[[], None]) -> int:
    """Calls `before`, then dies of the signal that ended the child, or returns its exit status.

    No core is dumped: the child has dumped its own.
    """
    before()
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)  # the limit does not apply to piped cores
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)  # fails for SIGKILL, which cannot be caught
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number  # a container's first process does not die of its own signals
