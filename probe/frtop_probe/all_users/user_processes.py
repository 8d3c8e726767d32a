"""The processes that read users' ranks: they run while somebody looks who may see them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from frtop_probe import daemon_thread, wire
from frtop_probe.agent.interfaces import Operator
from frtop_probe.all_users.admitted import AdmittedKey
from frtop_probe.all_users.presence import PresenceScanner, Present
from frtop_probe.all_users.subscription import split_key
from frtop_probe.all_users.user_process import Asker, UserProcess

LINGER_S: Final = 60.0
"""A user's process ends so long after the last connection that may see its ranks."""
SCAN_S: Final = 2.0
INTEREST_S: Final = 5.0
"""How often processes are told that somebody looks: they read ranks only then."""
RESTART_S: Final = 5.0
"""A process that ends at once is not started again and again."""
MAX_GREETINGS: Final = 256
"""Of those that are not answered yet; screens repeat what they show."""
_OURSELVES: Final = Operator(b"all users", b"")
"""Asks processes for the time, so that they know that somebody looks."""


class UserProcesses:
    """One process per user. Needs a running event loop.

    Args of the constructor:
        on_update: called with each update of each process, which has joint keys.
        scanner: tells which users there are.
    """

    def __init__(
        self,
        on_update: Callable[[UserProcess, wire.Update], None],
        scanner: PresenceScanner | None = None,
    ) -> None:
        self.by_number: dict[int, UserProcess] = {}
        self._on_update = on_update
        self._scanner = scanner or PresenceScanner()
        self._present = Present()
        self._with_folder: set[int] = set()
        self._wanted_at: dict[int, float] = {}
        self._not_before: dict[int, float] = {}
        self._failures: dict[int, str] = {}
        self._next_number = 1
        self._starting = asyncio.Lock()
        self._scanned = self._interested = 0.0
        self._greetings: set[asyncio.Task[None]] = set()

    @property
    def problems(self) -> dict[int, str]:
        """Why the ranks of a user cannot be read, by uid."""
        failed = {one.uid: one.problem for one in self.by_number.values() if one.problem}
        runs = {one.uid for one in self.by_number.values() if one.runs}
        found = {**self._failures, **failed}
        return {uid: text for uid, text in found.items() if uid not in runs}

    async def care(self, looking: Sequence[AdmittedKey]) -> None:
        """Looks who is there, starts and ends processes; to be called about once a second.

        Args:
            looking: what each key may do that looks now.
        """
        now = time.monotonic()
        if looking:
            if now - self._scanned >= SCAN_S:
                await self.look_around()
            await self.start_wanted(looking)
            if now - self._interested >= INTEREST_S:
                self._interested = now
                self._show_interest()
        for process in list(self.by_number.values()):
            if now - self._wanted_at.get(process.uid, 0.0) > LINGER_S:
                await self._end(process)
                self._failures.pop(process.uid, None)

    async def look_around(self) -> None:
        """Looks which users have processes that may be ranks."""
        self._scanned = time.monotonic()
        ours = {os.getpid(), *(one.pid for one in self.by_number.values())}
        scan = daemon_thread.run(
            lambda: self._scanner.scan(time.monotonic(), ours), "frtop presence"
        )
        done, _ = await asyncio.wait({scan}, timeout=SCAN_S)
        if done:
            self._present = scan.result()

    async def start_wanted(self, looking: Sequence[AdmittedKey]) -> None:
        """Starts a process for each user whose ranks somebody who looks may see."""
        async with self._starting:
            for uid in self._present.users:
                if any(admitted.right(uid) is not None for admitted in looking):
                    await self._keep(uid, time.monotonic())

    async def close(self) -> None:
        """Ends all."""
        for task in self._greetings:
            task.cancel()
        await asyncio.gather(*self._greetings, return_exceptions=True)
        processes = list(self.by_number.values())
        await asyncio.gather(*(one.end() for one in processes), return_exceptions=True)

    async def _keep(self, uid: int, now: float) -> None:
        """Starts a user's process unless it runs, and knows the folder of the user's rings."""
        self._wanted_at[uid] = now
        known = next((one for one in self.by_number.values() if one.uid == uid), None)
        has_folder = uid in self._present.folders
        if known is not None and known.runs and not (has_folder and uid not in self._with_folder):
            return
        if known is not None:
            await self._end(known)
        if now < self._not_before.get(uid, 0.0):
            return
        self._not_before[uid] = now + RESTART_S
        process = UserProcess(self._next_number, uid, self._on_update)
        self._next_number += 1
        self._with_folder.discard(uid)
        if has_folder:
            self._with_folder.add(uid)
        self.by_number[process.number] = process
        await process.start()

    async def _end(self, process: UserProcess) -> None:
        if process.problem:
            self._failures[process.uid] = process.problem
        self.by_number.pop(process.number, None)
        await process.end()

    def show(self, shown: Collection[int] | None, admitted: AdmittedKey) -> None:
        """Passes on which ranks a screen shows; of the others less is read.

        Args:
            shown: joint keys; None where the screen does not say it.
            admitted: what its key may do.
        """
        for process in self.by_number.values():
            if admitted.right(process.uid) is None:
                continue
            parts = [split_key(key) for key in shown or ()]
            own = tuple(key for number, key in parts if number == process.number)
            if own or shown is None:
                self._greet_soon(process, own if shown is not None else None)

    def _show_interest(self) -> None:
        """A process reads ranks only while it is asked for something."""
        for process in self.by_number.values():
            self._greet_soon(process, ())

    def _greet_soon(self, process: UserProcess, shown: tuple[int, ...] | None) -> None:
        if len(self._greetings) < MAX_GREETINGS:
            task = asyncio.create_task(self._greet(process, shown))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    async def _greet(self, process: UserProcess, shown: tuple[int, ...] | None) -> None:
        asker = Asker(_OURSELVES, may_act=False, is_owner=True)
        await process.ask(asker, wire.TimeRequest(0, shown))
