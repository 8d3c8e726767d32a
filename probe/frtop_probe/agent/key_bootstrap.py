"""Finds or creates the user's key, at most one per job.

Where homes are shared, a key created on one host appears on all. Otherwise an agent cannot know
whether another host has created one. So only the agent beside rank 0 creates a key. All others
wait for it, and if it does not appear, they say which file to copy.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from frtop_probe import keys
from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.keys import KeyPair, KeyProblem, NoKey
from frtop_probe.proc import exit_status
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import SUFFIX, StatusCell
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import Ring

TIMEOUT_S: Final = 60.0
"""How long to wait for a key created on rank 0's host: shared file systems may cache a file's
absence for up to a minute."""
POLL_S: Final = 0.5
RECENT_S: Final = 60.0
"""A rank 0 that died this recently also counts: a job that fails in its first second ends before
its agent runs, and somebody will want to inspect it."""


def bootstrap_key(
    folders: Iterable[Path],
    *,
    by_hand: bool,
    timeout_s: float = TIMEOUT_S,
) -> KeyPair:
    """Loads the user's pair; creates it by hand or beside rank 0, else waits for it.

    While it waits, the agent holds its lock, so that no rank starts another agent. It waits as
    long as a rank lives here.

    Raises:
        KeyProblem: the key cannot be used or created, it did not appear, or another agent waits.
        OSError: the folder cannot be used.
    """
    try:
        return keys.load(create=False)
    except NoKey:
        if by_hand and sys.stderr.isatty():  # a script might run on a hundred hosts
            return _make_by_hand()
    searched = tuple(folders)
    lock = AgentLock.take(AgentFiles.here(searched[0]))
    if lock is None:
        raise KeyProblem("another agent on this host waits for the key", "nothing to do")
    try:
        return _wait_for_key(searched, time.monotonic() + timeout_s)
    finally:
        lock.release()


def _make_by_hand() -> KeyPair:
    pair = keys.load(create=True)
    sys.stderr.write(
        f"frtop: created a key at {pair.path}\n"
        "frtop: agents on hosts with another home need this very file: copy it there\n"
    )
    return pair


def _wait_for_key(folders: tuple[Path, ...], deadline: float) -> KeyPair:
    while True:
        ranks = living_ranks(folders)
        try:
            return keys.load(create=0 in ranks or 0 in living_ranks(folders, RECENT_S))
        except NoKey:
            if not ranks:
                raise
            if time.monotonic() >= deadline:
                raise _missing() from None
        time.sleep(POLL_S)


def living_ranks(folders: Iterable[Path], recent_s: float = 0.0) -> frozenset[int]:
    """The ranks alive in our own pid namespace; -1 for ranks whose number is still unknown.

    With `recent_s`, also ranks that were alive that many seconds ago.
    """
    here, since_ns = PidNamespace.here(), time.monotonic_ns() - int(recent_s * 1e9)
    found = (_living_rank(path, here, since_ns) for folder in folders for path in _rings(folder))
    return frozenset(rank for rank in found if rank is not None)


def _rings(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError:
        return []


def _living_rank(path: Path, here: PidNamespace, since_ns: int) -> int | None:
    try:
        ring = Ring(path)
    except (RingError, OSError):
        return None  # unfinished, or not a ring
    try:
        birth = ring.header
        if PidNamespace(birth.boot, birth.pid_namespace) != here:
            return None
        if not exit_status.is_alive(birth.pid, birth.start_ticks):
            recent = ring.cell(StatusCell.HEARTBEAT_NS) >= since_ns
            return ring.cell(StatusCell.RANK) if ring.rank_identity and recent else None
        return (
            ring.cell(StatusCell.RANK) if ring.rank_identity else -1
        )  # no identity yet: all zeros
    finally:
        ring.close()


def _missing() -> KeyProblem:
    file, host = keys.path(), socket.gethostname()
    return KeyProblem(
        f"this user's key is not on {host}, and only the host of the job's rank 0 creates it",
        f"homes do not seem to be shared: copy {file} from rank 0's host to {host} (chmod 600)",
    )
