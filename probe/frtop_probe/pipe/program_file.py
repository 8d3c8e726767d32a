"""Programs: those that this host has, and those in memory, in files without a name."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Final

from frtop_probe.proc import tool_process
from frtop_probe.proc.child_process import DESCRIPTORS

PY_SPY: Final = (0, 4)
"""Older ones know no Python 3.12, and differ in what they print."""
_VERSION: Final = re.compile(rb"py-spy (\d{1,4})\.(\d{1,4})\.")
_EXECUTABLE: Final = 0x10
"""MFD_EXEC, which newer kernels need where memfds are not executable by default."""
_TRY_S: Final = 5.0


def make(name: str, program: bytes) -> int:
    """A descriptor of a file in memory with this content; other processes do not inherit it.

    Raises:
        OSError: the kernel makes none.
    """
    try:
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | _EXECUTABLE)
    except OSError:  # a kernel before 6.3
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    left = memoryview(program)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def has_py_spy() -> bool:
    """Whether this host has a py-spy that serves: one that starts, and is not too old."""
    path = tool_process.find("py-spy")
    if path is None:
        return False
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = _VERSION.search(done.stdout[:200])
    return found is not None and (int(found[1]), int(found[2])) >= PY_SPY


def why_none_runs() -> str:
    """Why no program in memory can be run here; "" when one can, which is tried."""
    try:
        descriptor = make("frtop-check", b"#!/bin/sh\nexit 0\n")
    except (OSError, AttributeError) as error:
        return f"the kernel makes no file in memory: {error}"
    try:
        done = subprocess.run(
            [f"{DESCRIPTORS}{descriptor}"],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the kernel runs no file in memory: {error}"
    finally:
        os.close(descriptor)
    return "" if done.returncode == 0 else f"a file in memory ended with {done.returncode}"
