"""The introduction of a program at the end of a pipe, in `frtop-hello`."""

from __future__ import annotations

import os
import platform
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Any

from frtop_probe.pipe import program_file


def introduction(host: str) -> dict[str, Any]:
    """Says who answers, on which host and namespace, and with which Python."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "host": host,
        "pid": os.getpid(),
        "uid": os.getuid(),
        "place": _place(),
        "user": _user(),
        "task": os.environ.get("SLURM_PROCID", ""),
        "has_py_spy": program_file.has_py_spy(),
    }


def _place() -> str:
    """This host and its pid namespace; "" if unknown."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    return ""


def _user() -> str:
    """The user's name; in a container the uid may have none."""
    with suppress(KeyError, OSError, ImportError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())
