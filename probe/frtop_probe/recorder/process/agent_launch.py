"""Starts this host's agent for our folder, without forking the rank.

A fork would copy the page tables of a rank with a terabyte mapped, and run other libraries' fork
handlers. Instead, `posix_spawn` starts a stub that closes inherited descriptors, leaves the
session, detaches from its parent, and then becomes the agent.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from frtop_probe.recorder.process.spawn_lock import SpawnAttempt, SpawnLock, report_without_lock
from frtop_probe.ring.folder import AgentFiles

NEEDED: Final = ("zmq", "msgspec")
"""What the agent imports besides the standard library."""
PASSED: Final = frozenset(
    ("HOME", "USER", "LOGNAME", "PATH", "LANG", "TMPDIR", "TZ", "TERM", "LD_LIBRARY_PATH")
)
PASSED_PREFIXES: Final = ("FRTOP_", "XDG_", "LC_")
STUB_S: Final = 0.2
"""The stub exits within milliseconds; otherwise it is reaped later."""
_unreaped: Final[list[int]] = []
_attempts: Final[dict[AgentFiles, SpawnAttempt]] = {}
"""Attempts of this process whose outcome is still unknown."""
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
if os.fstat(log).st_size > 524288:
    os.ftruncate(log, 0)
os.dup2(log, 1)
os.dup2(log, 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def ensure_agent(folder: Path, *arguments: str, at_once: bool = False) -> str:
    """Starts an agent for `folder` unless one is alive or was just started.

    On failure, the one rank of the host that tried reports it on stderr.

    Args:
        folder: the agent's folder.
        arguments: appended to the agent's command line.
        at_once: whether to ignore the pause after failed attempts, because a person waits.

    Returns:
        "" on success, otherwise a message for the user: why no agent could be started.
    """
    reap()
    if os.environ.get("FRTOP_AGENT") == "0":
        return ""
    try:
        files = AgentFiles.here(folder)
        if files.lives:
            if files.card.exists():  # without a card it waits for the key and may give up
                _attempts.pop(files, None)
            return ""
        with closing(SpawnLock(files)) as lock:
            if not lock.acquired:
                return ""
            if files in _attempts and not at_once:
                return _outcome(lock)
            return _start(lock, arguments) if lock.due or at_once else ""
    except OSError as error:
        return report_without_lock(f"{error.filename or folder}: {error.strerror}")


def _outcome(lock: SpawnLock) -> str:
    attempt = _attempts[lock.files]
    why = attempt.last_message() or ("" if lock.untried else attempt.overdue())
    if why:
        del _attempts[lock.files]
        return lock.report(why)
    # An agent that ran and has ended since the last check is replaced at once.
    return _start(lock) if lock.untried else ""


def _start(lock: SpawnLock, arguments: Sequence[str] = ()) -> str:
    lock.count_attempt()
    python = os.environ.get("FRTOP_AGENT_PYTHON")
    if not python:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return lock.report(f"{sys.executable} has no {', '.join(missing)}")
    attempt = SpawnAttempt(lock.files)
    try:
        _spawn(python or sys.executable, lock.files, arguments, own=not python)
    except OSError as error:
        return lock.report(f"{python or sys.executable}: {error.strerror}")
    _attempts[lock.files] = attempt
    return ""


def agent_environment(own: bool) -> dict[str, str]:
    """Returns the part of the rank's environment that is passed to the agent.

    Args:
        own: whether the agent runs in the rank's interpreter, which may have found this package
            on a path that a fresh interpreter lacks.
    """
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED or name.startswith(PASSED_PREFIXES)
    }
    for name in ("FRTOP_DIR", "FRTOP_KEY_FILE"):
        if passed.get(name):  # the agent runs in another working folder
            passed[name] = str(Path(passed[name]).expanduser().absolute())
    if own:
        passed["PYTHONPATH"] = str(Path(__file__).parents[3])
    return passed


def _spawn(python: str, files: AgentFiles, arguments: Sequence[str] = (), *, own: bool) -> None:
    null = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    command = [python, "-m", "frtop_probe.agent", *arguments]
    pid = os.posix_spawnp(
        python,
        [python, "-I", "-S", "-c", _STUB, str(files.log.absolute()), *command],
        agent_environment(own),
        file_actions=null,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    )
    _unreaped.append(pid)
    deadline = time.monotonic() + STUB_S
    while not reap() and time.monotonic() < deadline:
        time.sleep(0.005)


def reap() -> bool:
    """Reaps stubs that have exited; returns whether none is left.

    Never waits in the kernel: on a hung file system a stub may never exit, and a missed
    heartbeat looks like a rank whose GIL is held.
    """
    for pid in list(_unreaped):
        try:
            exited, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            exited = pid  # the program reaps children itself
        if exited:
            _unreaped.remove(pid)
    return not _unreaped
