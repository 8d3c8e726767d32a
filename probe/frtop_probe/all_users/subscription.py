"""The updates of one connection: only ranks of users whom its key may see. Pure.

PUB sends everything to every subscriber, and topics are the subscriber's own choice. So an agent
that must not tell everybody everything publishes nothing: each connection gets its updates as
messages of its own, encrypted for it alone, composed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire

KEY_BITS: Final = 24
MAX_WAITING: Final = 64
"""Updates of one user's process that wait for the next one of the connection."""


def joint_key(process: int, key: int) -> int:
    """The key of a rank among those of all users' processes. `key` is the process's own.

    Raises:
        ValueError: it is no key that a process gives.
    """
    if not 0 < key < 1 << KEY_BITS:
        raise ValueError(f"{key} is no key of a rank")
    return process << KEY_BITS | key


def split_key(key: int) -> tuple[int, int]:
    """Process and its own key of a rank, from `joint_key`."""
    return key >> KEY_BITS, key & (1 << KEY_BITS) - 1


def with_joint_keys(process: int, update: wire.Update) -> wire.Update:
    """An update with the keys that operators know.

    Raises:
        ValueError: a key is none.
    """
    return replace(
        update,
        ranks=tuple(replace(rank, key=joint_key(process, rank.key)) for rank in update.ranks),
        forgotten=tuple(joint_key(process, key) for key in update.forgotten),
    )


class Subscription:
    """What one connection is to be told.

    Args of the constructor:
        instance: of the agent; the numbers of updates are this connection's own.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._number = 0
        self._visible: frozenset[int] = frozenset()
        self._informed_of: frozenset[int] = frozenset()
        self._asking = 0
        self._waiting: list[tuple[int, wire.Update]] = []
        self._notes: dict[int, tuple[str, ...]] = {}
        self._notes_sent: tuple[str, ...] = ()
        self.informed = False
        """Whether it was sent a state, which updates continue."""

    @property
    def visible(self) -> frozenset[int]:
        """The processes whose ranks it may see."""
        return self._visible

    def see(self, processes: frozenset[int]) -> None:
        """Takes in which processes it may see from now on; of others nothing is told any more.

        With other processes than before, the next update has a gap before it: the operator then
        asks for the state, and what it may not see any more is gone from its screen.
        """
        if processes != self._visible:
            self._visible = processes
            self._informed_of &= processes
            self._waiting = [(one, update) for one, update in self._waiting if one in processes]
            self._notes = {one: notes for one, notes in self._notes.items() if one in processes}
            self.lose()

    def lose(self) -> None:
        """Leaves a gap: something could not be told, and the state has to be asked for."""
        if self.informed:
            self._number += 1

    def ask(self) -> None:
        """The processes are being asked for their states, see `state`."""
        self._asking += 1

    def take(self, process: int, update: wire.Update) -> None:
        """Takes in an update of a process, with joint keys."""
        if process not in self._visible or not (self._asking or process in self._informed_of):
            return
        if update.notes and not self._asking:
            self._notes[process] = tuple(filter(None, update.notes))
        if len(self._waiting) >= MAX_WAITING * len(self._visible):
            self._waiting = []
            self.lose()
        self._waiting.append((process, update))

    def state(
        self,
        states: Mapping[int, wire.Update],
        empty: wire.Update,
        notes: tuple[str, ...],
    ) -> wire.Update:
        """The full state, after `ask`, out of those of the processes that it may see.

        Updates that a process sent after its state come with the next update. Of a process that
        has not answered nothing is told until the operator asks again.

        Args:
            states: by process, with joint keys.
            empty: names host, time and version.
            notes: of the agent itself.
        """
        self._asking -= 1
        seen = {one: state for one, state in states.items() if one in self._visible}
        self._informed_of = frozenset(seen)
        self._waiting = [
            (one, update)
            for one, update in self._waiting
            if one in seen and update.number > seen[one].number
        ]
        self._notes = {one: tuple(filter(None, state.notes)) for one, state in seen.items()}
        self._notes_sent = self._all_notes(notes)
        self.informed = True
        return replace(
            empty,
            instance=self._instance,
            number=self._number,
            ranks=tuple(rank for state in seen.values() for rank in state.ranks),
            notes=self._notes_sent,
            full=True,
        )

    def update(self, empty: wire.Update, notes: tuple[str, ...]) -> wire.Update | None:
        """What has happened since the last one; None before the first state."""
        if not self.informed:
            return None
        self._number += 1
        waiting, self._waiting = self._waiting, []
        now = self._all_notes(notes)
        changed, self._notes_sent = now != self._notes_sent, now
        return replace(
            empty,
            instance=self._instance,
            number=self._number,
            ranks=tuple(rank for _, update in waiting for rank in update.ranks),
            forgotten=tuple(key for _, update in waiting for key in update.forgotten),
            notes=(now or ("",)) if changed else (),
        )

    def _all_notes(self, notes: Iterable[str]) -> tuple[str, ...]:
        of_processes = (note for process in sorted(self._notes) for note in self._notes[process])
        return tuple(dict.fromkeys((*notes, *of_processes)))
