"""One agent at work: a tick twice a second, questions in between, until it should leave."""

from __future__ import annotations

import asyncio
import enum
import os
import secrets
import signal
import socket
import time
from contextlib import suppress
from importlib import metadata
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.announcement import Announcement
from frtop_probe.agent.blackbox import BlackBoxes
from frtop_probe.agent.desk import Desk
from frtop_probe.agent.door import Door
from frtop_probe.agent.looks import Looker
from frtop_probe.agent.moment import Moment
from frtop_probe.agent.options import Options
from frtop_probe.agent.roster import Roster
from frtop_probe.ring.recording import RecordingLock

TICK: Final = 0.5
FAREWELL: Final = 2.0
"""Seconds that an agent stays at most for its black boxes once it should leave."""


class Leaving(enum.Enum):
    """Why an agent leaves."""

    TOLD = enum.auto()  # by a signal
    ALONE = enum.auto()  # the process it came with has ended
    IDLE = enum.auto()  # no rank any more


class Service:
    """Ties the roster to the sockets. One event loop, no threads of its own."""

    def __init__(self, options: Options, roster: Roster, door: Door, public_key: bytes) -> None:
        self._options = options
        self._roster = roster
        self._door = door
        self._leaving: asyncio.Future[Leaving] = asyncio.get_running_loop().create_future()
        self._number = 0
        self._since_living = time.monotonic()
        self._host = socket.gethostname()
        looker = Looker()
        self._desk = Desk(self._host, roster, door, self._state, looker)
        self._version = _version()
        self.card = Announcement(
            pid=os.getpid(),
            host=self._host,
            address=door.address,
            pub=door.pub,
            ask=door.ask,
            public_key=public_key.decode(),
            instance=secrets.token_hex(8),
            version=self._version,
            started_wall_ns=time.time_ns(),
        )
        self._ticked = Moment.now()
        self._boxes = BlackBoxes(roster, looker, self._told, RecordingLock(roster.home))

    async def run(self) -> Leaving:
        """Works until it is told to leave, is alone, or has had nothing to do for long."""
        self._listen_for_signals()
        companion = self._accompany()
        asking = asyncio.create_task(self._desk.serve())
        try:
            while not self._leaving.done():
                begun = time.monotonic()
                self._tick()
                self._leave_when_idle()
                if asking.done():
                    asking.result()  # raises: better no agent, and a new one, than a deaf one
                rest = max(0.02, TICK - (time.monotonic() - begun))
                with suppress(asyncio.TimeoutError, TimeoutError):
                    await asyncio.wait_for(asyncio.shield(self._leaving), rest)
            self._tick()  # the last endings, for whoever still listens
            await self._boxes.finish(self._tick, time.monotonic() + FAREWELL)
        finally:
            if companion is not None:
                asyncio.get_running_loop().remove_reader(companion)
                os.close(companion)
            asking.cancel()
            await asyncio.gather(asking, self._desk.close(), return_exceptions=True)
        return self._leaving.result()

    def _tick(self) -> None:
        self._ticked = Moment.now()
        now_ns = self._ticked.monotonic_ns
        news = self._roster.tick(now_ns)
        self._boxes.tick(now_ns)
        self._number += 1
        update = wire.Update(
            host=self._host,
            instance=self.card.instance,
            number=self._number,
            monotonic_ns=now_ns,
            wall_ns=self._ticked.wall_ns,
            ranks=news.ranks,
            forgotten=news.forgotten,
            notes=self._notes() if news.notes or self._door.admission.news() else (),
            version=self._version,
        )
        # PUB drops instead of blocking, so that this completes at once.
        self._door.updates.send(wire.packed(update))

    def _leave_when_idle(self) -> None:
        if self._roster.busy:
            self._since_living = time.monotonic()
        elif (
            self._options.with_pid is None
            and time.monotonic() - self._since_living >= self._options.linger
        ):
            self._leave(Leaving.IDLE)

    def _leave(self, why: Leaving) -> None:
        if not self._leaving.done():
            self._leaving.set_result(why)

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave, Leaving.TOLD)

    def _accompany(self) -> int | None:
        """Watches the process with which to leave; it may be over already."""
        if self._options.with_pid is None:
            return None
        try:
            descriptor = os.pidfd_open(self._options.with_pid)
        except OSError:
            self._leave(Leaving.ALONE)
            return None
        asyncio.get_running_loop().add_reader(descriptor, self._leave, Leaving.ALONE)
        return descriptor

    def _notes(self) -> tuple[str, ...]:
        return (*self._roster.notes, *self._door.admission.notes)

    def _state(self) -> wire.Update:
        """Everything as of the last tick."""
        ranks = tuple(rank.full() for rank in self._roster.ranks.values())
        return self._told(ranks, Moment.now())

    def _told(self, ranks: tuple[wire.RankUpdate, ...], at: Moment | None = None) -> wire.Update:
        """All there is to know of some ranks, as of `at` or the last tick."""
        at = at or self._ticked
        return wire.Update(
            host=self._host,
            instance=self.card.instance,
            number=self._number,
            monotonic_ns=at.monotonic_ns,
            wall_ns=at.wall_ns,
            ranks=ranks,
            notes=self._notes(),
            version=self._version,
            full=True,
        )


def _version() -> str:
    try:
        return metadata.version("frtop")
    except metadata.PackageNotFoundError:
        return ""
