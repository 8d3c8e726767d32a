"""Starts and ends an agent: one per folder, with limited resources, leaving no files."""

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
from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.agent.folder_lease import FolderLease
from frtop_probe.agent.key_bootstrap import bootstrap_key
from frtop_probe.agent.options import Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.service import AgentService, LeaveReason
from frtop_probe.agent.sockets import PortProblem, open_sockets
from frtop_probe.agent.stale_files import StaleFiles
from frtop_probe.keys import KeyPair, KeyProblem
from frtop_probe.ring.folder import AgentFiles, FolderError, candidates
from frtop_probe.ring.pid_namespace import PidNamespace

__all__ = ["Options", "serve"]

MEMORY: Final = 2 * 1024**3
"""Limit on bytes of data: twenty times what a large host needs. An operator that leaves many
responses unread then ends the agent, not a rank that shares a container's memory with it."""

_NICE: Final = 5
_DESCRIPTORS: Final = 4096
"""Two per rank, some for sockets and snapshots. Without a free one, /proc cannot be read, and
a living rank might be taken for dead."""


def serve(options: Options) -> int:
    """Runs the agent of this user's folder until it should leave; returns the exit status.

    For a process of its own: closes inherited descriptors, changes folder and priority.
    """
    try:
        folders = [folder.absolute() for folder in candidates()]
        pair = bootstrap_key(folders, by_hand=options.by_hand)
        _detach()
        files = AgentFiles.here(folders[0])
        while (lock := AgentLock.take(files)) is not None:
            try:
                lock.remove_files()  # of an agent that was killed
                reason = asyncio.run(_run(options, folders, lock, pair))
            finally:
                lock.remove_files()
                lock.release()
            # A rank may have started, and found the lock held, while this agent was leaving.
            if reason is not LeaveReason.IDLE or not _is_needed(folders):
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


async def _run(
    options: Options,
    folders: list[Path],
    lock: AgentLock,
    pair: KeyPair,
) -> LeaveReason:
    tracker, here = RankTracker(folders), PidNamespace.here()
    sockets = open_sockets(options, pair)
    try:
        service = AgentService(options, tracker, sockets, pair.public)
        service.handle_signals()  # whoever finds the card may send one at once
        card = replace(
            service.card,
            pid_namespace=here.inode,
            net_namespace=announcement.network_namespace(),
        )
        announcement.write_card(lock.files, card)
        lease = FolderLease(lock, card, tracker, StaleFiles(folders, here, options.linger))
        if options.by_hand:
            with suppress(OSError):  # a full disk under its output must not end an agent
                sys.stdout.write(
                    f"frtop agent on {card.host}, ports {card.pub} and {card.ask}, "
                    f"rings in {folders[0]}; ctrl+c ends it\n"
                )
                sys.stdout.flush()
        maintenance = asyncio.create_task(lease.maintain())
        try:
            return await service.run()
        finally:
            maintenance.cancel()
            lease.sweep()
    finally:
        tracker.clear()
        sockets.close()


async def _find_living(folders: list[Path]) -> bool:
    tracker = RankTracker(folders)
    try:
        return tracker.has_living()
    finally:
        tracker.clear()


def _is_needed(folders: list[Path]) -> bool:
    return asyncio.run(_find_living(folders))


def _occupied(files: AgentFiles) -> str:
    card = announcement.read_card(files)
    if card is None:
        return f"another agent is starting in {files.folder}: nothing to do\n"
    return (
        f"an agent (pid {card.pid}) serves {files.folder} already, on ports {card.pub} and "
        f"{card.ask}: nothing to do\n"
    )


def _detach() -> None:
    """Drops what the process inherited from the rank that spawned it, and limits its resources."""
    for link in tuple(Path("/proc/self/fd").iterdir()):
        if int(link.name) > 2:
            with suppress(OSError):
                os.close(int(link.name))
    with suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with suppress(OSError):
        os.nice(_NICE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (min([MEMORY, *known]), hard))
    os.umask(0o077)
    # An abandoned child may be reaped before asyncio notices; asyncio would log that.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    os.chdir("/")
