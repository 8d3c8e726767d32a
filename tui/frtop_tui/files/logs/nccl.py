"""What NCCL's own lines say: which process is which rank, and whom others lost.

Ranks are those within a communicator. They are the job's if it is as large as the job, and if every
rank in it is one process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from frtop_tui.job.naming import printable
from frtop_tui.job.units import counted

MOST: Final = 131_072
MOST_LOST: Final = 3
"""Addresses that are named in notes."""


class NcclProcess(NamedTuple):
    """A process as NCCL names it, in a file, and what stands before the line."""

    file: int
    prefix: str
    host: str
    pid: int


def _sets() -> defaultdict[str, set[str]]:
    return defaultdict(set)


@dataclass(slots=True)
class NcclLines:
    """Collects lines of all files."""

    _ranks: defaultdict[int, set[tuple[int, NcclProcess]]] = field(
        default_factory=lambda: defaultdict(set)
    )  # by size of the communicator
    _hosts: defaultdict[str, set[str]] = field(default_factory=_sets)  # by address
    _lost: defaultdict[str, set[str]] = field(default_factory=_sets)  # by address: who says so
    _size: int = 0

    def note_rank(self, process: NcclProcess, rank: int, size: int) -> None:
        if self._has_room():
            self._ranks[size].add((rank, process))

    def note_address(self, host: str, address: str) -> None:
        if self._has_room():
            self._hosts[address].add(host)

    def note_lost(self, address: str, by: str) -> None:
        """A process says that its peer at an address is gone, or does not answer."""
        if self._has_room():
            self._lost[address].add(by)

    def _has_room(self) -> bool:
        self._size += 1
        return self._size <= MOST

    def ranks(self, world: int) -> dict[NcclProcess, int]:
        """The processes whose rank in the job is known; `world` is its size, 0: not known."""
        known = self._ranks.get(world, set()) if world else set()
        ranks, places = {rank for rank, _ in known}, {(one.host, one.pid) for _, one in known}
        is_one_each = ranks == {*range(world)} and len(places) == len(known) == world
        return {process: rank for rank, process in known} if is_one_each else {}

    def notes(self) -> Iterator[str]:
        """Which addresses several processes lost. Whoever was ended is lost in the same way."""
        lost = sorted(self._lost.items(), key=lambda one: (-len(one[1]), one[0]))
        for address, by in lost[:MOST_LOST]:
            hosts = sorted(self._hosts.get(address, ()))
            where = f" (host {printable(hosts[0])})" if len(hosts) == 1 else ""
            if len(by) > 1:
                yield (
                    f"{counted(len(by), 'process')} lost the connection to"
                    f" {printable(address)}{where}: its process may have been ended before, or its"
                    " network failed"
                )
