"""Follows the places that the operator named: which hosts they lead to, and how.

Looking may take seconds (squeue, kubectl, ssh's settings), so threads do it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc import daemon_thread
from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.places import Place
from frtop_tui.errors import FrtopError

WORKERS: Final = 16
AGAIN_NS: Final = 10_000_000_000
"""After this time we search a place again if it failed, or if it has hosts that we do not reach:
pods and nodes get replaced."""


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """What is new since the last search; names are those of hosts, or of a place without hosts."""

    endpoints: tuple[PipeEndpoint, ...] = ()
    failed: tuple[tuple[str, FrtopError], ...] = ()
    under_way: tuple[tuple[str, str], ...] = ()
    over: tuple[str, ...] = ()


class PlaceSearch:
    """Belongs to the source's thread, and never blocks it."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = {place.name: place for place in places}
        self._todo: queue.SimpleQueue[Place] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[str, Sequence[PipeEndpoint] | FrtopError]] = (
            queue.SimpleQueue()
        )
        self._workers: list[threading.Thread] = []
        self._looking: set[str] = set()
        self._looked_at: dict[str, int] = {}
        self._hosts: dict[str, frozenset[str]] = {}  # of a place, when it was last found

    def search(self, now: int, connected: Collection[str]) -> FoundPlaces:
        """Returns what was found, and starts the searches that are due."""
        endpoints: list[PipeEndpoint] = []
        failed: list[tuple[str, FrtopError]] = []
        over: list[str] = []
        while not self._done.empty():
            name, found = self._done.get()
            self._looking.discard(name)
            self._looked_at[name] = now
            if isinstance(found, FrtopError):
                if name not in self._hosts:
                    failed.append((name, found))
                continue
            hosts = frozenset(one.host for one in found)
            if name not in self._hosts and name not in hosts:
                over.append(name)
            self._hosts[name] = hosts
            endpoints += found
        under_way = self._look(now, connected)
        return FoundPlaces(tuple(endpoints), tuple(failed), under_way, tuple(over))

    def _look(self, now: int, connected: Collection[str]) -> tuple[tuple[str, str], ...]:
        first: list[tuple[str, str]] = []
        for name, place in self._places.items():
            if name in self._looking:
                continue
            looked_at = self._looked_at.get(name)
            if looked_at is None:
                first.append((name, place.doing))
            elif now - looked_at < AGAIN_NS or not self._is_wanted(name, connected):
                continue
            self._looking.add(name)
            self._todo.put(place)
        self._start_workers()
        return tuple(first)

    def _start_workers(self) -> None:
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        for _ in range(min(self._todo.qsize(), WORKERS - len(self._workers))):
            self._workers.append(daemon_thread.start(self._work, "frtop places"))

    def _is_wanted(self, name: str, connected: Collection[str]) -> bool:
        hosts = self._hosts.get(name)
        return hosts is None or (hosts != {name} and not hosts <= set(connected))

    def _work(self) -> None:
        while True:
            try:
                place = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._done.put((place.name, place.find()))
            except FrtopError as error:
                self._done.put((place.name, error))
