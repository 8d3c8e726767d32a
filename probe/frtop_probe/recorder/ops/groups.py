"""Process groups as this rank knows them: number, members, and whether counting is exact.

Counting is exact if the recorder saw the group before its first op; then numbers can be compared
between ranks. After a later start, or a `stop()`, numbers are relative.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.ops.device_front import DeviceFront
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Side
from frtop_probe.ring.rank_ranges import fold_short

MAX_CHANNELS: Final = 4096
"""Bounds memory if a program gives each message its own tag."""
MAX_NUMBER: Final = 65_536
"""Bounds what is kept of groups with numbers: 256 KiB."""
Channel = tuple[str, int, int]
"""Messages that are counted together: name of the op, party as in a slot, tag."""


class RecordedGroup:
    """One process group. The hook writes to it, so it is not frozen."""

    __slots__ = (
        "_row", "channels", "copied", "described", "destroyed", "epoch", "exact", "front", "id",
        "name", "next_number", "next_p2p", "number", "p2p", "ranks", "text",
    )  # fmt: skip

    def __init__(self, number: int, name: str, row: memoryview[int] | None, *, exact: bool) -> None:
        """`row` is its row in the ring, None if it has none."""
        self.id = number
        self.name = name
        self.exact = exact
        self.epoch = 0
        self.ranks: tuple[int, ...] = ()
        self.number = 0
        self.p2p = 0
        self.copied = 0
        self._row = row
        self.next_number = itertools.count(1).__next__
        self.next_p2p = itertools.count(1).__next__
        self.described = False
        self.front: DeviceFront | None = None
        self.text: dict[str, Any] = {}
        self.channels: dict[Channel, Callable[[], int] | None] = {}

    @property
    def issued(self) -> tuple[int, int, int]:
        """The last op's sequence number, the numbers of the last collective and the last p2p op."""
        row = self._row
        return (row[0], row[1], row[2]) if row is not None else (0, self.number, self.p2p)

    def next_message(self, channel: Channel) -> int:
        """Counts a message; returns its number as in a slot."""
        count = self.channels.get(channel)
        if count is None:
            if channel in self.channels or len(self.channels) >= MAX_CHANNELS:
                return 0
            count = self.channels[channel] = itertools.count().__next__
        return count() % layout.MESSAGES + 1

    def lose_count(self, channel: Channel) -> None:
        """Stops counting, after a message was counted but never issued."""
        self.channels[channel] = None


class Epochs:
    """How often groups of the same name and members were made.

    It is known of each for good. Torch numbers most of them, and a job may make thousands, so four
    bytes are kept of a number that was used once: a hash of the members.
    """

    def __init__(self) -> None:
        self._once = array("I")
        self._counts: Counter[int] = Counter()

    def count(self, name: str, ranks: str) -> int:
        """Counts one more; returns how many there were before."""
        key = hash((name, ranks))
        if name.isascii() and name.isdecimal() and (number := int(name[:9])) < MAX_NUMBER:
            mark = key & 0xFFFFFFFF or 1
            self._once.extend(itertools.repeat(0, number + 1 - len(self._once)))
            if not self._once[number]:
                self._once[number] = mark
                return 0
            if self._once[number] == mark and not self._counts[key]:
                self._counts[key] = 1
        self._counts[key] += 1
        return self._counts[key] - 1


class GroupTable:
    """Finds the group of an op by the identity of its Python object."""

    def __init__(self, ring: OwnRing, c10d: Any) -> None:
        self._ring = ring
        self._c10d = c10d
        self._ids = itertools.count(1)
        self._epochs = Epochs()
        self._unregistered: dict[str, RecordedGroup] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._lock = threading.RLock()
        self._next_number: Callable[[int, int], int] | None = None
        self._forget: Callable[[int, bool], object] = lambda *_: None
        self.front_of: Callable[[int, Any, Any], DeviceFront | None] = lambda *_: None
        """Makes the front of a group from its number, torch's object and a weak reference to it."""
        self.known: dict[int, RecordedGroup] = {}
        """By `id()` of the process group; an entry is removed with its group, so no id is stale."""

    def use(
        self, next_number: Callable[[int, int], int], forget: Callable[[int, bool], object]
    ) -> None:
        """Sets what the native kernels have in place of our counters, before any group is known.

        Args:
            next_number: of a group, by its id and whether the op is p2p.
            forget: called with the id of a group whose object is gone, and whether the group is.
        """
        self._next_number, self._forget = next_number, forget

    def register(self, name: str, process_group: Any) -> RecordedGroup:
        """Adds a group without any op yet, so its numbers are exact."""
        with self._lock:
            group = self._new(name, exact=True)
            self._track(process_group, group)
            return group

    def adopt(self, process_group: Any) -> RecordedGroup:
        """Adds a group that may have had ops, or was created without `distributed_c10d`."""
        with self._lock:
            found = self.known.get(id(process_group))
            if found is not None:
                self.describe(found, process_group)
                return found
            name = _text(process_group, "group_name")
            registered = process_group in getattr(self._c10d._world, "pg_map", {})  # noqa: SLF001
            group = None if registered else self._unregistered.get(name)
            if group is None:
                group = self._new(name, exact=False)
                if not registered:
                    # Its Python object may differ at each op, so find it by name.
                    self._unregistered[name] = group
            self._track(process_group, group)
            self.describe(group, process_group)
            return group

    def _new(self, name: str, *, exact: bool) -> RecordedGroup:
        number, row = next(self._ids), None
        if number < self._ring.shape.groups:
            at = (layout.GROUPS_OFFSET + number * layout.GROUP_ROW.size) // 8
            row = self._ring.words[at : at + layout.GROUP_ROW.size // 8]
        return RecordedGroup(number, name, row, exact=exact)

    def _track(self, process_group: Any, group: RecordedGroup) -> None:
        key = id(process_group)
        known, references, forget_elsewhere = self.known, self._references, self._forget
        unregistered = self._unregistered
        if (count := self._next_number) is not None:
            group.next_number = functools.partial(count, group.id, 0)
            group.next_p2p = functools.partial(count, group.id, 1)

        def forget(_: object) -> None:
            known.pop(key, None)
            references.pop(key, None)
            forget_elsewhere(group.id, unregistered.get(group.name) is not group)

        references[key] = weakref.ref(process_group, forget)
        known[key] = group

    def describe(self, group: RecordedGroup, process_group: Any) -> None:
        """Writes the group to the side table once its members are known after its creation."""
        with self._lock:
            if group.described:
                return
            ranks = self._members(process_group)
            if not ranks:
                return
            group.ranks = ranks
            folded = fold_short(ranks)
            group.epoch = self._epochs.count(group.name, folded)
            group.text = {
                "name": group.name,
                "description": _text(process_group, "group_desc"),
                "backend": self._backend(process_group),
                "ranks": folded,
                "exact": group.exact,
                "epoch": group.epoch,
                "timeout_s": _timeout(process_group),
            }
            group.described = True
            self._ring.write_entry(Side.GROUP, group.id, group.text)
            reference = self._references[id(process_group)]
            group.front = self.front_of(group.id, process_group, reference)

    def describe_all(self) -> None:
        for key, reference in list(self._references.items()):
            process_group, group = reference(), self.known.get(key)
            if process_group is not None and group is not None:
                self.describe(group, process_group)

    def note_device(self, number: int, blind: str, error: str) -> None:
        """Records why a group's ops cannot be tracked on the device, or the backend's error."""
        with self._lock:
            for group in list(self.known.values()):
                if group.id == number:
                    group.text = {**group.text, "blind": blind, "error": error}
                    self._ring.write_entry(Side.GROUP, group.id, group.text)

    def mark_inexact(self) -> None:
        """Marks all groups as not comparable by number, because ops were missed."""
        with self._lock:
            for group in list(self.known.values()):  # a group may be dropped during this
                if group.exact:
                    group.exact = False
                    group.text = {**group.text, "exact": False}
                    if group.described:
                        self._ring.write_entry(Side.GROUP, group.id, group.text)

    def end(self, process_group: Any | None) -> list[RecordedGroup]:
        """Marks a group (None: all groups) as destroyed; returns the groups marked."""
        with self._lock:
            if process_group is None:
                ended = list(self.known.values())
                self.known.clear()
                self._references.clear()
                self._unregistered.clear()
            else:
                group = self.known.pop(id(process_group), None)
                self._references.pop(id(process_group), None)
                ended = [] if group is None else [group]
            for group in ended:
                self._forget(group.id, self._unregistered.get(group.name) is not group)
                if group.described:
                    text = {**group.text, "destroyed": True}
                    self._ring.write_entry(Side.GROUP, group.id, text)
            return ended

    def copy_last_ops(self) -> None:
        """Copies the slot of each group's last op into its row before newer ops overwrite it."""
        ring, shape = self._ring, self._ring.shape
        for group in list(self.known.values()):
            if group.id >= shape.groups:
                continue
            sequence = group.issued[0]
            if sequence == group.copied:
                continue
            at = ring.slot_at(sequence)
            to = layout.GROUPS_OFFSET + group.id * layout.GROUP_ROW.size + layout.GROUP_COPY
            ring.map[to : to + layout.COPIED] = ring.map[at : at + layout.COPIED]
            group.copied = sequence

    def adopt_all(self) -> None:
        for process_group in list(getattr(self._c10d._world, "pg_map", {})):  # noqa: SLF001
            self.adopt(process_group)

    def _members(self, process_group: Any) -> tuple[int, ...]:
        members = getattr(self._c10d._world, "pg_group_ranks", {}).get(process_group)  # noqa: SLF001
        if members:
            return tuple(sorted(members, key=members.__getitem__))
        if process_group in getattr(self._c10d._world, "pg_map", {}):  # noqa: SLF001
            return ()  # just registered: torch sets the members one line later
        return tuple(range(process_group.size()))

    def _backend(self, process_group: Any) -> str:
        configured = getattr(self._c10d._world, "pg_backend_config", {}).get(process_group)  # noqa: SLF001
        if not configured:
            return _text(process_group, "name")
        # "cpu:gloo,cuda:nccl" stays, "cpu:gloo,cuda:gloo" becomes "gloo".
        backends = {part.partition(":")[2] for part in str(configured).split(",")}
        return backends.pop() or str(configured) if len(backends) == 1 else str(configured)


def _text(process_group: Any, attribute: str) -> str:
    try:
        value = getattr(process_group, attribute)
        return str(value() if callable(value) else value)
    except (AttributeError, RuntimeError):
        return ""


def _timeout(process_group: Any) -> float:
    try:
        for device in process_group._device_types:  # noqa: SLF001
            options = process_group._get_backend(device).options  # noqa: SLF001
            return float(options._timeout.total_seconds())  # noqa: SLF001
    except (AttributeError, RuntimeError):
        pass
    return 0.0
