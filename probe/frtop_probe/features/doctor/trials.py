"""Tries calls and tools on a process that we start but, as with a rank, is not our child.

Yama lets every process read its own children, so a child would prove nothing. The process ends
when we do: it waits for the end of a pipe.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from frtop_probe.features.doctor.facts import Trial
from frtop_probe.proc.child_process import descriptors_in
from frtop_probe.proc.risky_calls import call

CALL_S: Final = 2.0
TOOL_S: Final = 6.0
"""py-spy takes 0.05 s; on a loaded host, ten times as long."""
_START_S: Final = 5.0
_SEIZE: Final = 0x4206
_KCMP: Final = {"x86_64": 312, "aarch64": 272}
_KCMP_VM: Final = 1
_BYTES: Final = 64
_DETAIL: Final = 120
_REFUSALS: Final = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_TARGET: Final = "import os, sys; os.write(int(sys.argv[1]), b'%d ' % os.getpid()); os.read(0, 1)"
"""An unrelated process of this user: prints its pid, and exits when its standard input ends."""


class _Buffer(ctypes.Structure):
    """iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@contextmanager
def target() -> Iterator[int]:
    """Yields the pid of a Python process of ours whose parent is init; 0 for none."""
    hold, end = os.pipe()
    said, say = os.pipe()
    starter = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _ORPHAN, str(say), _TARGET],
        stdin=hold, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(say,),
        start_new_session=True,
    )  # fmt: skip
    os.close(hold)
    os.close(say)
    try:
        starter.wait(_START_S)
        text = _first_words(said)
        yield int(text) if text.isdecimal() else 0
    except subprocess.TimeoutExpired:
        starter.kill()
        yield 0
    finally:
        os.close(end)
        os.close(said)


_ORPHAN: Final = """
import os, sys
if os.fork():
    os._exit(0)
os.set_inheritable(int(sys.argv[1]), True)
os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", sys.argv[2], sys.argv[1]])
"""


def _first_words(descriptor: int) -> str:
    ready, _, _ = select.select([descriptor], [], [], _START_S)
    return os.read(descriptor, 32).decode("ascii", "replace").strip() if ready else ""


def read_memory(pid: int) -> Trial:
    """Opens /proc/PID/mem and reads a few bytes, as for a rank."""

    def read() -> int:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
            return 0 if os.pread(file.fileno(), _BYTES, _stack_of(pid)) else errno.EIO

    return _trial(read)


def vm_readv(pid: int) -> Trial:
    """Calls process_vm_readv, as py-spy does."""

    def read() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        space = ctypes.create_string_buffer(_BYTES)
        mine = _Buffer(ctypes.addressof(space), _BYTES)
        theirs = _Buffer(_stack_of(pid), _BYTES)
        count = libc.process_vm_readv(
            pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, ctypes.c_ulong(0)
        )
        return 0 if count > 0 else ctypes.get_errno()

    return _trial(read)


def ptrace(pid: int) -> Trial:
    """Seizes the process without a signal; the kernel releases it when the caller ends."""

    def seize() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.restype = ctypes.c_long
        result = libc.ptrace(ctypes.c_long(_SEIZE), ctypes.c_long(pid), None, None)
        return 0 if result == 0 else ctypes.get_errno()

    return _trial(seize)


def kcmp(pid: int) -> Trial:
    """Calls kcmp, which container profiles allow or deny together with the two above."""
    number = _KCMP.get(platform.machine())
    if number is None:
        return Trial("not tried", f"frtop does not know its number on {platform.machine()}")

    def compare() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        result = libc.syscall(ctypes.c_long(number), os.getpid(), pid, _KCMP_VM, 0, 0)
        return 0 if result >= 0 else ctypes.get_errno()

    return _trial(compare)


def memory_file() -> Trial:
    """Runs a copy of `true` from memory, as frtop's archive runs py-spy."""
    program = shutil.which("true")
    if program is None or not hasattr(os, "memfd_create"):
        return Trial("not tried", "no program to try with")

    def execute() -> int:
        descriptor = os.memfd_create("frtop", 0)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(Path(program).read_bytes())
        pid = os.fork()
        if pid == 0:
            try:
                os.execve(f"/proc/self/fd/{descriptor}", ["true"], {})  # noqa: S606
            except OSError as error:
                os._exit(min(error.errno or errno.EIO, 255))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return _trial(execute)


def run_tool(*command: str) -> Trial:
    """Runs a tool and discards its output; the detail is its first line of errors."""
    try:
        done = subprocess.run(  # noqa: PLW1510
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            timeout=TOOL_S, pass_fds=descriptors_in(command),
        )  # fmt: skip
    except OSError as error:
        return _of_errno(error.errno or errno.EIO)
    except subprocess.TimeoutExpired:
        return Trial("failed", f"no answer in {TOOL_S:.0f} s")
    if done.returncode == 0:
        return Trial("ok")
    if done.returncode < 0:
        return Trial("killed", _signal_name(-done.returncode))
    text = done.stderr.decode("utf-8", "replace").strip()
    refused = "os error 1)" in text or "ermission denied" in text
    line = next(iter(text.splitlines()), "no reason").removeprefix("Error: ")
    return Trial("refused" if refused else "failed", line[:_DETAIL])


def _trial(function: Callable[[], int]) -> Trial:
    """Calls a function that returns an errno, in a child, because a filter may kill the caller."""

    def errno_of() -> int:
        try:
            return function()
        except OSError as error:
            return error.errno or errno.EIO

    done = call(errno_of, CALL_S)
    if done.timed_out:
        return Trial("failed", "no return")
    if done.signal:
        return Trial("killed", _signal_name(done.signal))
    return _of_errno(done.value) if isinstance(done.value, int) else Trial("failed", "no answer")


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _of_errno(number: int) -> Trial:
    if number == 0:
        return Trial("ok")
    return Trial(
        "refused" if number in _REFUSALS else "failed", errno.errorcode.get(number, str(number))
    )


def _stack_of(pid: int) -> int:
    """An address that is certainly mapped: the end of the stack, from /proc/PID/maps."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        for line in file:
            if line.rstrip().endswith("[stack]"):
                return int(line.split(None, 1)[0].partition("-")[2], 16) - 2 * _BYTES
    raise OSError(errno.EIO, "no stack")
