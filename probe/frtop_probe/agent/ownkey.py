"""Which agent may make the user's key: one per job, so that private homes get no second.

Where homes are shared the key appears for all others too. Where they are not, an agent
cannot know whether another host has made one already; so only that of rank 0 makes one,
and all others say what has to be copied.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from frtop_probe import keys
from frtop_probe.agent.announcement import Lock
from frtop_probe.eyes import endings
from frtop_probe.keys import KeyPair, KeyProblem, NoKey
from frtop_probe.ring.folder import AgentFiles
from frtop_probe.ring.layout import SUFFIX, StatusCell
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import Ring, RingError

PATIENCE_S: Final = 60.0
"""So long may a key take to be seen here that rank 0's host has made: file systems that
are shared remember for up to a minute that a file was not there."""
POLL_S: Final = 0.5
LATELY_S: Final = 60.0
"""A rank 0 that has died since then has one made, too: a job that fails in its first second
ends before its agent is up, and is the one that somebody will ask about."""


def own_key(
    folders: Iterable[Path],
    *,
    by_hand: bool,
    patience_s: float = PATIENCE_S,
) -> KeyPair:
    """The user's pair; made by hand, or by the agent of a job's rank 0, else waited for.

    Meanwhile this agent holds the lock of its space, so that no rank starts another. It
    waits for as long as a rank lives here.

    Raises:
        KeyProblem: it cannot be used or made, or did not come; or another agent waits.
        OSError: the folder cannot be used.
    """
    try:
        return keys.load(create=False)
    except NoKey:
        if by_hand and sys.stderr.isatty():  # a script might do so on a hundred hosts
            return _made_by_hand()
    looked_in = tuple(folders)
    lock = Lock.take(AgentFiles.here(looked_in[0]))
    if lock is None:
        raise KeyProblem("another agent on this host waits for the key", "nothing to do")
    try:
        return _awaited(looked_in, time.monotonic() + patience_s)
    finally:
        lock.release()


def _made_by_hand() -> KeyPair:
    pair = keys.load(create=True)
    sys.stderr.write(
        f"frtop: made a key at {pair.path}\n"
        "frtop: agents on hosts with another home need this very file: copy it there\n"
    )
    return pair


def _awaited(folders: tuple[Path, ...], deadline: float) -> KeyPair:
    while True:
        ranks = living_ranks(folders)
        try:
            # Every job has exactly one.
            return keys.load(create=0 in ranks or 0 in living_ranks(folders, LATELY_S))
        except NoKey:
            if not ranks:
                raise
            if time.monotonic() >= deadline:
                raise _not_here() from None
        time.sleep(POLL_S)


def living_ranks(folders: Iterable[Path], lately_s: float = 0.0) -> frozenset[int]:
    """The ranks that live here, in our own pid namespace; -1 for those that do not know yet.

    With `lately_s` also those that were alive so many seconds ago.
    """
    here, since_ns = PidNamespace.here(), time.monotonic_ns() - int(lately_s * 1e9)
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
        return None  # not finished yet, or none
    try:
        birth = ring.header
        if PidNamespace(birth.boot, birth.pid_namespace) != here:
            return None
        if not endings.lives(birth.pid, birth.start_ticks):
            lately = ring.cell(StatusCell.BEAT_NS) >= since_ns
            return ring.cell(StatusCell.RANK) if ring.rank_identity and lately else None
        return (
            ring.cell(StatusCell.RANK) if ring.rank_identity else -1
        )  # not introduced yet: all zeros
    finally:
        ring.close()


def _not_here() -> KeyProblem:
    file, host = keys.path(), socket.gethostname()
    return KeyProblem(
        f"this user's key is not on {host}, and the job's rank 0, beside which it is made, "
        "runs elsewhere",
        f"homes are not shared, it seems: copy {file} from rank 0's host to {host} (chmod 600)",
    )
