"""Sees to it that this host has an agent for our folder, without forking the rank.

A fork would copy page tables of a rank with a terabyte mapped, and run other libraries'
fork handlers. `posix_spawn` starts a stub that closes what it inherited, leaves the
session, and lets go of its parent; then it becomes the agent.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from frtop_probe.ring.folder import agent_lives

NEEDED: Final = ("zmq", "msgspec", "psutil")
SPAWN_LOCK: Final = "agent.spawn"
PATIENCE_S: Final = 10.0
"""How long a spawned agent gets to take its lock before another rank tries again."""
KEPT: Final = frozenset(
    ("HOME", "USER", "LOGNAME", "PATH", "LANG", "TMPDIR", "TZ", "TERM", "LD_LIBRARY_PATH")
)
KEPT_PREFIXES: Final = ("FRTOP_", "XDG_", "LC_")
STUB_S: Final = 0.2
"""The stub leaves in milliseconds; one that does not is buried at a later look."""
_unreaped: Final[list[int]] = []
_STUB: Final = """
import os, sys
os.closerange(3, 1 << 20)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
if hasattr(os, "sched_setaffinity"):
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    except OSError:
        pass
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
os.dup2(log, 1)
os.dup2(log, 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def ensure_agent(folder: Path) -> str:
    """Starts an agent for `folder` unless one lives or was just started.

    Returns:
        "" if all is well, else a sentence for the user: why none could be started.

    Raises:
        OSError: the folder or the interpreter cannot be used.
    """
    reap()
    if os.environ.get("FRTOP_AGENT") == "0" or agent_lives(folder):
        return ""
    python = os.environ.get("FRTOP_AGENT_PYTHON")
    if not python:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return (
                f"no agent could be started: {sys.executable} has no {', '.join(missing)}; "
                "run `frtop agent` on this host"
            )
    descriptor = os.open(
        folder / SPAWN_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        last = os.pread(descriptor, 64, 0)
        now = time.monotonic()
        if last and abs(now - float(last)) < PATIENCE_S:
            return ""
        os.pwrite(descriptor, f"{now:<32.3f}".encode(), 0)
        _spawn(python or sys.executable, folder, own=not python)
    except (BlockingIOError, ValueError):
        return ""  # another rank is at it
    finally:
        os.close(descriptor)
    return ""


def clean_environment(own: bool) -> dict[str, str]:
    """What the agent may know of the rank's environment.

    With `own` it is the rank's interpreter that runs it, which may have found this
    package by a path that a fresh one does not have.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES)
    }
    for name in ("FRTOP_DIR", "FRTOP_KEY_FILE"):
        if kept.get(name):  # the agent lives in another folder
            kept[name] = str(Path(kept[name]).expanduser().absolute())
    if own:
        kept["PYTHONPATH"] = str(Path(__file__).parents[2])
    return kept


def _spawn(python: str, folder: Path, *, own: bool) -> None:
    environment = clean_environment(own)
    null = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    command = [python, "-m", "frtop_probe.agent"]
    pid = os.posix_spawnp(
        python,
        [python, "-I", "-S", "-c", _STUB, str(folder / "agent.log"), *command],
        environment,
        file_actions=null,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )
    _unreaped.append(pid)
    deadline = time.monotonic() + STUB_S
    while not reap() and time.monotonic() < deadline:
        time.sleep(0.005)


def reap() -> bool:
    """Buries stubs that have left; whether all have.

    Never waits in the kernel: on a file system that hangs a stub may take for ever, and
    a beat that stops looks like a rank that holds the GIL.
    """
    for pid in list(_unreaped):
        try:
            gone, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            gone = pid  # the program reaps children itself
        if gone:
            _unreaped.remove(pid)
    return not _unreaped
