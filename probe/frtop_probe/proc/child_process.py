"""Starts a module of this package as a separate process.

An agent at the end of a pipe has its code in an archive that is in no file system. Its children
inherit the descriptor and import from there. Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import zipimport
from contextlib import suppress
from functools import cache
from typing import Final

AS_USER: Final = "FRTOP_AS_USER"
"""Environment variable with the user whose jobs this process reads for root (`pipe.become_user`).
Other processes of that user must not reach it or its children."""
_PR_SET_PDEATHSIG: Final = 1
_MORTAL: Final = """
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
except Exception:
    pass
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
try:
    os.execv(sys.argv[2], sys.argv[3:])
except OSError as error:
    sys.exit(f"{sys.argv[2]} cannot be run: {error.strerror}")
"""
"""Sets PR_SET_PDEATHSIG, then runs the program. A `preexec_fn`, between fork and exec, could hang:
other threads may have held locks when this process forked."""
DESCRIPTORS: Final = "/proc/self/fd/"
"""The folder where the kernel shows a process its open files, even those without a name."""
_RUN: Final = f"""
import os, sys, runpy
if {AS_USER!r} in os.environ:
    import ctypes
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name='__main__')
"""
"""The child sets both itself: exec resets PR_SET_DUMPABLE, fork clears PR_SET_PDEATHSIG."""


def python_command(module: str) -> tuple[str, ...]:
    """The command that runs a module of this package; it needs `inherited()`."""
    path = archive()
    if path is None:
        return (sys.executable, "-m", module)
    # -I -S: nothing but the standard library comes from this host.
    return (sys.executable, "-I", "-S", "-c", _RUN, path, module)


def inherited() -> tuple[int, ...]:
    """Descriptors that a child of `python_command` needs."""
    path = archive()
    return descriptors_in((path,)) if path is not None else ()


def descriptors_in(command: tuple[str, ...]) -> tuple[int, ...]:
    """Descriptors that a command names as its program or its arguments."""
    names = (word.removeprefix(DESCRIPTORS) for word in command if word.startswith(DESCRIPTORS))
    return tuple(int(name) for name in names if name.isdecimal())


def die_with(parent: int) -> None:
    """Has the kernel kill this process when the thread that started it ends.

    `parent` started it, and may already have ended.
    """
    with suppress(Exception):  # without ctypes only the parent ends us
        import ctypes  # noqa: PLC0415 - slow, and seldom needed

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def mortal_command(program: str) -> tuple[str, ...]:
    """Returns a command prefix that makes the kernel kill the program when we end.

    The signal comes when the *thread* that started it ends, so start it from the main thread.
    """
    return (sys.executable, "-I", "-S", "-c", _MORTAL, str(os.getpid()), program)


@cache
def archive() -> str | None:
    """The path of the archive that this package was imported from, if it was."""
    loader = __spec__.loader if __spec__ is not None else None
    return loader.archive if isinstance(loader, zipimport.zipimporter) else None
