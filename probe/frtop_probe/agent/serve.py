"""An agent's life: alone in its folder, modest on its host, tidy when it leaves."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Lock
from frtop_probe.agent.door import PortProblem, open_door
from frtop_probe.agent.options import Options
from frtop_probe.agent.ownkey import own_key
from frtop_probe.agent.roster import Roster
from frtop_probe.agent.seat import Seat
from frtop_probe.agent.service import Leaving, Service
from frtop_probe.agent.strays import Strays
from frtop_probe.keys import KeyPair, KeyProblem
from frtop_probe.ring.folder import AgentFiles, FolderError, candidates
from frtop_probe.ring.pid_namespace import PidNamespace

__all__ = ["Options", "serve"]

MEMORY: Final = 2 * 1024**3
"""Bytes of data at most, twenty times what a large host takes. An operator that leaves
answers unread on many connections ends the agent then, and never a rank that shares a
container's memory with it."""

_NICER: Final = 5
_DESCRIPTORS: Final = 4096
"""Two for each rank, some for sockets and looks. Without any left, /proc cannot be read,
and a rank that is alive would be taken for dead."""


def serve(options: Options) -> int:
    """Runs the agent of this user's folder until it should leave; gives the exit status.

    For a process of its own: closes inherited descriptors, changes folder and priority.
    """
    try:
        folders = [folder.absolute() for folder in candidates()]
        pair = own_key(folders, by_hand=options.by_hand)
        _settle()
        files = AgentFiles.here(folders[0])
        while (lock := Lock.take(files)) is not None:
            try:
                lock.clear()  # of what one left that was killed
                leaving = asyncio.run(_live(options, folders, lock, pair))
            finally:
                lock.clear()
                lock.release()
            # A rank may have started, and found the lock taken, while we were leaving.
            if leaving is not Leaving.IDLE or not _needed(folders):
                return 0
    except (KeyProblem, PortProblem, FolderError) as problem:
        sys.stderr.write(f"frtop agent: {problem}\n")
        return 1
    except OSError as error:
        where = error.filename or candidates()[0]
        sys.stderr.write(
            f"frtop agent: {where}: {error.strerror}\n"
            "make room there, or name another folder with FRTOP_DIR\n"
        )
        return 1
    if options.by_hand:
        sys.stderr.write(_occupied(files))
    return 0


async def _live(
    options: Options,
    folders: list[Path],
    lock: Lock,
    pair: KeyPair,
) -> Leaving:
    roster, here = Roster(folders), PidNamespace.here()
    door = open_door(options, pair)
    try:
        service = Service(options, roster, door, pair.public)
        card = replace(
            service.card,
            pid_namespace=here.inode,
            net_namespace=announcement.network(),
        )
        announcement.write(lock.files, card)
        seat = Seat(lock, card, roster, Strays(folders, here, options.linger))
        if options.by_hand:
            sys.stdout.write(
                f"frtop agent on {card.host}, ports {card.pub} and {card.ask}, "
                f"rings in {folders[0]}; ctrl+c ends it\n"
            )
            sys.stdout.flush()
        keeping = asyncio.create_task(seat.keep())
        try:
            return await service.run()
        finally:
            keeping.cancel()
            seat.sweep()
    finally:
        roster.clear()
        door.close()


async def _find_living(folders: list[Path]) -> bool:
    roster = Roster(folders)
    try:
        return roster.look_for_living()
    finally:
        roster.clear()


def _needed(folders: list[Path]) -> bool:
    return asyncio.run(_find_living(folders))


def _occupied(files: AgentFiles) -> str:
    card = announcement.of(files)
    if card is None:
        return f"another agent is starting in {files.folder}: nothing to do\n"
    return (
        f"an agent (pid {card.pid}) serves {files.folder} already, on ports {card.pub} and "
        f"{card.ask}: nothing to do\n"
    )


def _settle() -> None:
    """Becomes a modest guest: what the spawning rank was bound to is not for us."""
    for link in tuple(Path("/proc/self/fd").iterdir()):
        if int(link.name) > 2:
            with suppress(OSError):
                os.close(int(link.name))
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with suppress(OSError):
        os.nice(_NICER)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min([MEMORY, *known]), hard))
    os.umask(0o077)
    # A child that is given up is now and then reaped before asyncio looks: that is no news.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    os.chdir("/")
