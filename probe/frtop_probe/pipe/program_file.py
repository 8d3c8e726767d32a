"""Programs in memory: files without a name that can be run, where the kernel lets them."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from frtop_probe.child_process import DESCRIPTORS

_EXECUTABLE: Final = 0x10
"""MFD_EXEC, which newer kernels want where programs in memory are not the rule."""
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
