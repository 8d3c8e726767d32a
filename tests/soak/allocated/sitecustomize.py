"""Writes how much a rank or a process of frtop has allocated, every second, for `soak.samples`.

Its memory also has what the allocators keep, Python's in pieces of 1 MiB. So a process may grow by
some of them without anything that stays.

What comes once and at any time is brought about at the beginning, since it is no growth: agents and
operators load all of frtop's code, of which the first verdict of a kind loads a MiB hours later.
And the interpreter's table of names takes the size that it needs where names come and go, as parts
of paths do: 0.9 MiB.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pkgutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

OBJECT = 64
"""Bytes: blocks of Python's allocator are counted, and have up to 512."""
NAMES = 100_000
"""More than such a table has room for."""
BEGIN_S = 20
"""Until then the program has loaded what it begins with, and is not in the way."""
OURS = {"frtop_tui", "frtop_probe.agent"}
PROGRAMS = ("__main__", "demo.train", "mcp.server")
"""They run in processes of their own, and load torch or much else."""
FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
          "fordblks", "keepcost")  # fmt: skip


class Info(ctypes.Structure):
    """What glibc says of malloc."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in FIELDS)


def load(package: str) -> None:
    """Imports all of its modules but `PROGRAMS`, and those that need what is not installed."""
    found = importlib.import_module(package)
    for one in pkgutil.walk_packages(found.__path__, f"{package}."):
        if not one.name.endswith(PROGRAMS):
            with suppress(ImportError):
                importlib.import_module(one.name)


def write(file: Path) -> None:
    """Writes it until the process ends."""
    time.sleep(BEGIN_S)
    if OURS & set(sys.orig_argv):
        load("frtop_probe")
    if "frtop_tui" in sys.orig_argv:
        load("frtop_tui")
    for number in range(NAMES):
        sys.intern(f"soak-{number}")
    info = ctypes.CDLL(None).mallinfo2
    info.restype = Info
    while True:
        found = info()
        allocated = found.uordblks + found.hblkhd + OBJECT * sys.getallocatedblocks()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)  # an agent closes what is open
        os.write(descriptor, b"%20d" % allocated)  # who reads sees the old or the new one
        os.close(descriptor)
        time.sleep(1)


folder = os.environ.get("SOAK_ALLOCATED")
if folder and (OURS & set(sys.orig_argv) or sys.orig_argv[-1].endswith("soak/job.py")):
    threading.Thread(target=write, args=(Path(folder) / str(os.getpid()),), daemon=True).start()
