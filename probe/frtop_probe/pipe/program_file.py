"""Finds programs on this host, and makes programs in memory: in files without a name."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Final

from frtop_probe.proc import tool_process
from frtop_probe.proc.child_process import DESCRIPTORS

PY_SPY: Final = (0, 4)
"""Older versions do not support Python 3.12, and print a different format."""
_VERSION: Final = re.compile(rb"py-spy (\d{1,4})\.(\d{1,4})\.")
_EXECUTABLE: Final = 0x10
"""MFD_EXEC: newer kernels need it if memfds are not executable by default."""
_TRY_S: Final = 5.0


def make(name: str, program: bytes) -> int:
    """Makes a file in memory with this content; children do not inherit the descriptor.

    Raises:
        OSError: the kernel refuses.
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
    """Whether this host has a usable py-spy: one that starts and is not too old."""
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
    """Tries to run a program in memory; returns why that fails, "" if it works."""
    try:
        descriptor = make("frtop-check", b"#!/bin/sh\nexit 0\n")
    except (OSError, AttributeError) as error:
        return f"the kernel cannot make a file in memory: {error}"
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
        return f"the kernel does not run files in memory: {error}"
    finally:
        os.close(descriptor)
    return "" if done.returncode == 0 else f"a file in memory ended with status {done.returncode}"
