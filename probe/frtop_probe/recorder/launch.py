"""Sees to it that this host has an agent for our folder, without forking the rank.

A fork would copy page tables of a rank with a terabyte mapped, and run other libraries'
fork handlers. `posix_spawn` starts a stub that closes what it inherited, leaves the
session, and lets go of its parent; then it becomes the agent.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from frtop_probe.recorder.attempts import Attempt, Turn, tell_without_record
from frtop_probe.ring.folder import AgentFiles

NEEDED: Final = ("zmq", "msgspec", "psutil")
KEPT: Final = frozenset(
    ("HOME", "USER", "LOGNAME", "PATH", "LANG", "TMPDIR", "TZ", "TERM", "LD_LIBRARY_PATH")
)
KEPT_PREFIXES: Final = ("FRTOP_", "XDG_", "LC_")
STUB_S: Final = 0.2
"""The stub leaves in milliseconds; one that does not is buried at a later look."""
_unreaped: Final[list[int]] = []
_attempts: Final[dict[AgentFiles, Attempt]] = {}
"""Agents that this process started, and of which it does not know yet what became."""
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
if os.fstat(log).st_size > 65536:
    os.ftruncate(log, 0)
os.dup2(log, 1)
os.dup2(log, 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def ensure_agent(folder: Path) -> str:
    """Starts an agent for `folder` unless one lives or was just started.

    One rank per host says on stderr why that is not possible; it is the one that tried.

    Returns:
        "" if all is well, else a sentence for the user: why none could be started.
    """
    reap()
    if os.environ.get("FRTOP_AGENT") == "0":
        return ""
    try:
        files = AgentFiles.here(folder)
        if files.lives:
            if files.card.exists():  # else it waits for the key, perhaps in vain
                _attempts.pop(files, None)
            return ""
        with closing(Turn(files)) as turn:
            if not turn.held:
                return ""
            if files in _attempts:
                return _outcome(turn)
            return _start(turn) if turn.ours else ""
    except OSError as error:
        return tell_without_record(f"{error.filename or folder}: {error.strerror}")


def _outcome(turn: Turn) -> str:
    attempt = _attempts[turn.files]
    why = attempt.said() or ("" if turn.fresh else attempt.overdue())
    if why:
        del _attempts[turn.files]
        return turn.tell(why)
    # One that was up, and has gone since we looked last, is followed at once.
    return _start(turn) if turn.fresh else ""


def _start(turn: Turn) -> str:
    turn.begin()
    python = os.environ.get("FRTOP_AGENT_PYTHON")
    if not python:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            return turn.tell(f"{sys.executable} has no {', '.join(missing)}")
    attempt = Attempt(turn.files)
    try:
        _spawn(python or sys.executable, turn.files, own=not python)
    except OSError as error:
        return turn.tell(f"{python or sys.executable}: {error.strerror}")
    _attempts[turn.files] = attempt
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


def _spawn(python: str, files: AgentFiles, *, own: bool) -> None:
    environment = clean_environment(own)
    null = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    command = [python, "-m", "frtop_probe.agent"]
    pid = os.posix_spawnp(
        python,
        [python, "-I", "-S", "-c", _STUB, str(files.log.absolute()), *command],
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
