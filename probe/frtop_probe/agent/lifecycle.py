"""Starts and ends an agent: one per folder, with limited resources, without leftover files.

`service.py` decides when it leaves. A rank starts the next one:
`recorder/process/agent_launch.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from frtop_probe.agent import announcement
from frtop_probe.agent.agent_lock import AgentLock, take_when_free
from frtop_probe.agent.announcement import Announcement, own_version
from frtop_probe.agent.audit import bound_log
from frtop_probe.agent.black_boxes import BlackBoxWriter
from frtop_probe.agent.key_bootstrap import bootstrap_key
from frtop_probe.agent.options import Options
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.resources import drop_inherited, limit_resources
from frtop_probe.agent.service import AgentService, LeaveReason
from frtop_probe.agent.sockets import AgentSockets, PortProblem, open_sockets
from frtop_probe.agent.stale_files import StaleFiles
from frtop_probe.keys import KeyPair, KeyProblem
from frtop_probe.ring.box_lock import RecordingLock
from frtop_probe.ring.folder import AgentFiles, FolderError, candidates, claim, existing, taken
from frtop_probe.ring.pid_namespace import PidNamespace

CHECK_S: Final = 0.5


def serve(options: Options) -> int:
    """Runs the agent of this user's folder until it should leave; returns the exit status.

    Needs its own process: it closes inherited descriptors, changes folder and priority.
    """
    try:
        folders = [folder.absolute() for folder in candidates()]
        pair = bootstrap_key(folders, by_hand=options.by_hand)
        drop_inherited()
        limit_resources()
        files = AgentFiles.here(folders[0])
        while (lock := take_when_free(files)) is not None:
            try:
                lock.remove_files(log=False)  # left by a killed agent
                reason = asyncio.run(_run(options, folders, lock, pair))
            finally:
                lock.remove_files()
                lock.release()
            # A rank may have started while this agent was leaving, and found the lock taken.
            if reason is not LeaveReason.IDLE or not asyncio.run(_is_needed(folders)):
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
    if others := taken():
        tracker.note_fault(others)
    sockets = open_sockets(options, pair)
    try:
        service = make_service(options, tracker, sockets)
        service.handle_signals()  # a process that finds the card may send a signal at once
        card = describe(service, sockets, pair.public)
        announcement.write_card(lock.files, card)
        lease = FolderLease(lock, card, tracker, StaleFiles(folders, here, options.linger))
        if options.by_hand:
            with suppress(OSError):  # a full disk must not end an agent
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
        lock.remove_files()  # first: screens that see the sockets close look for the next agent
        sockets.close()


def make_service(options: Options, tracker: RankTracker, sockets: AgentSockets) -> AgentService:
    """The service of an agent that uses ZeroMQ and writes black boxes."""
    return AgentService(
        options,
        tracker,
        sockets,
        own_version(),
        lambda taker, make_update, host, instance: BlackBoxWriter(
            tracker,
            taker,
            make_update,
            RecordingLock(tracker.home),
            host=host,
            instance=instance,
        ),
    )


def describe(service: AgentService, sockets: AgentSockets, public_key: bytes) -> Announcement:
    """The card of an agent."""
    return Announcement(
        pid=os.getpid(),
        host=service.host,
        address=sockets.address,
        pub=sockets.pub,
        ask=sockets.ask,
        public_key=public_key.decode(),
        instance=service.instance,
        version=service.version,
        pid_namespace=PidNamespace.here().inode,
        net_namespace=announcement.network_namespace(),
    )


async def _is_needed(folders: list[Path]) -> bool:
    tracker = RankTracker(folders)
    try:
        return tracker.has_living()
    finally:
        tracker.clear()


def _occupied(files: AgentFiles) -> str:
    card = announcement.read_card(files)
    if card is None:
        return f"another agent is starting in {files.folder}: nothing to do\n"
    return (
        f"an agent (pid {card.pid}) already serves {files.folder} on ports {card.pub} and "
        f"{card.ask}: nothing to do\n"
    )


class FolderLease:
    """Holds an agent's place in its folder while the agent works."""

    def __init__(
        self, lock: AgentLock, card: Announcement, tracker: RankTracker, stale_files: StaleFiles
    ) -> None:
        self._lock = lock
        self._card = card
        self._tracker = tracker
        self._stale_files = stale_files
        self._swept = time.monotonic()

    async def maintain(self) -> None:
        """Checks the folder and sweeps stale files until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()
            if time.monotonic() - self._swept >= self._stale_files.every_s:
                self.sweep()

    def sweep(self) -> None:
        """Removes stale files of other agents and ranks, and bounds the log."""
        self._swept = time.monotonic()
        with suppress(OSError):
            bound_log(self._lock.files.log)
        with self._noted():
            self._tracker.add_folders(existing())
            note = self._stale_files.sweep()
            if note:
                self._tracker.note(note)

    def check(self) -> None:
        """Retakes the lock and rewrites the card if they are gone."""
        with self._noted():
            files, in_place = self._lock.files, self._lock.in_place
            if in_place and files.card.exists():
                return
            if not in_place and not self._tracker.busy:
                self._tracker.closed = True  # cleared after the job: expect no new ranks
                return
            if in_place or self._retake():
                announcement.write_card(files, self._card)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Turns a failure into a note: later checks may succeed, and new screens need them."""
        try:
            yield
        except FolderError as problem:
            self._tracker.note(str(problem))
        except OSError as error:
            where = error.filename or self._lock.files.folder
            self._tracker.note(f"{where}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - unforeseen; must not end the task silently
            self._tracker.note(f"{self._lock.files.folder} is not maintained: {error!r}")

    def _retake(self) -> bool:
        claim(self._lock.files.folder)
        taken = self._lock.retake()
        # If another agent runs there, we keep our ranks and leave it the new ones.
        self._tracker.closed = not taken
        if taken:
            self._tracker.note(
                f"{self._lock.files.folder} was cleared: an agent that starts later cannot see the "
                "ranks that already run; set FRTOP_DIR to another folder"
            )
        else:
            self._tracker.note(
                f"{self._lock.files.folder} was cleared, and another agent runs there now: it has "
                "the ranks that started since then; this agent has the earlier ones"
            )
        return taken
