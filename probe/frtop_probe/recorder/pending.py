"""Ops that were issued and are not complete, and the `Work` handles that say so.

A held `Work` keeps its tensors, after completion too. So handles are looked at in every
hook (two of them, in rotation: one that never completes must not shield those behind it)
and by the recorder's thread, and let go at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from frtop_probe.recorder.writer import Writer
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Cell, Flag

ABANDONED_NS: Final = 1_000_000_000
"""A p2p handle that only we hold and that is older than this was dropped by its owner."""
_OWN_REFERENCES: Final = 3
"""To a handle in `_abandon`: the entry, its local name, and the argument itself."""


class Entry(NamedTuple):
    """A pending op; `work` is None while the call that issues it has not returned."""

    work: Any
    issued_ns: int
    site: int
    group: int
    p2p: bool


class Pending:
    """All of them, by sequence number. Every step is one atomic operation, no lock."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.entries: dict[int, Entry] = {}
        self.queue: deque[int] = deque()
        self._moved: dict[int, int] = {}
        self._free = list(range(writer.shape.leftovers))
        self._moving = threading.Lock()
        self._waits: dict[int, tuple[int, int]] = {}
        self._writes = 0
        self.finish = self._finisher()

    def prober(self) -> Callable[[], None]:
        """A function that looks at the two handles whose turn it is."""
        queue, entries, finish = self.queue, self.entries, self.finish

        def probe() -> None:
            for _ in (1, 2):
                try:
                    sequence = queue.popleft()
                except IndexError:
                    return
                entry = entries.get(sequence)
                if entry is None:
                    continue
                if entry[0].is_completed():
                    finish(sequence)
                else:
                    queue.append(sequence)

        return probe

    def _finisher(self) -> Callable[..., None]:
        writer = self._writer
        take, clock = self.entries.pop, time.monotonic_ns
        words, slots = writer.words, writer.shape.slots
        first = (writer.shape.slots_offset + layout.SLOT_DONE) // 8
        sequence_word = writer.shape.slots_offset // 8
        width = layout.SLOT_SIZE // 8
        moved, retire, measure = self._moved, self._retire, self._measure

        def finish(sequence: int, failed: bool = False) -> None:
            entry = take(sequence, None)
            if entry is None:
                return
            now = clock()
            work = entry[0]
            if not failed and work is not None:
                failed = work.exception() is not None
            at = sequence % slots * width
            if words[sequence_word + at] == sequence:
                words[first + at] = -now if failed else now
            if sequence in moved:
                retire(sequence)
            site = entry[2]
            if site and not failed:
                measure(site, now - entry[1])

        return finish

    def _measure(self, site: int, wait_ns: int) -> None:
        """Smooths how long ops from a call site take: an eighth of each new one."""
        writer = self._writer
        if site >= writer.shape.sites:
            return
        count, smooth = self._waits.get(site, (0, wait_ns))
        smooth += (wait_ns - smooth) >> 3
        self._waits[site] = (count + 1, smooth)
        self._writes += 1
        at = writer.shape.sites_offset + site * layout.SITE_ROW.size
        layout.SITE_ROW.pack_into(writer.map, at, self._writes, count + 1, smooth, self._writes)

    def reap(self) -> int:
        """Looks at every handle, and returns how many ops are still pending."""
        now = time.monotonic_ns()
        for sequence in list(self.entries):
            entry = self.entries.get(sequence)
            if entry is None or entry.work is None:
                continue
            if entry.work.is_completed():
                self.finish(sequence)
            elif entry.p2p and now - entry.issued_ns > ABANDONED_NS:
                self._abandon(sequence, entry)
        return len(self.entries)

    def _abandon(self, sequence: int, entry: Entry) -> None:
        """Lets go of a p2p handle that nobody else in Python holds.

        On gloo one that nobody waits for never says that it is complete; its tensors
        would stay for ever.
        """
        work = entry.work
        if sys.getrefcount(work) <= _OWN_REFERENCES:
            self.untrack(sequence)

    def untrack(self, sequence: int) -> None:
        """From here on nobody will know when this op completes."""
        if self.entries.pop(sequence, None) is None:
            return
        writer = self._writer
        at = writer.shape.slots_offset + sequence % writer.shape.slots * layout.SLOT_SIZE
        if writer.words[at // 8] == sequence:
            writer.map[at + layout.SLOT_FLAGS] |= Flag.UNTRACKED
        if sequence in self._moved:
            self._retire(sequence)

    def let_go(self, groups: frozenset[int] | None = None) -> None:
        """Drops the handles of some groups, or all: a group is being destroyed."""
        self.reap()
        for sequence, entry in list(self.entries.items()):
            if entry.work is not None and (groups is None or entry.group in groups):
                self.untrack(sequence)

    def advance(self) -> None:
        """Saves old pending ops from being overwritten, and says where to start looking."""
        writer = self._writer
        if not self._moving.acquire(blocking=False):
            return
        try:
            head = writer.cells[Cell.HEAD]
            horizon = head - writer.shape.slots // 2
            for sequence in [s for s in list(self.entries) if s < horizon]:
                if sequence not in self._moved:
                    self._move(sequence)
            young = [s for s in list(self.entries) if s not in self._moved]
            writer.cells[Cell.OLDEST] = min(min(young, default=head + 1), head + 1)
        finally:
            self._moving.release()

    def _move(self, sequence: int) -> None:
        writer = self._writer
        if not self._free:
            writer.cells[Cell.PENDING_LOST] += 1
            self.entries.pop(sequence, None)
            return
        shape = writer.shape
        at = shape.slots_offset + sequence % shape.slots * layout.SLOT_SIZE
        row = writer.map[at : at + layout.SLOT_SIZE]
        if int.from_bytes(row[:8], sys.byteorder) != sequence:
            writer.cells[Cell.PENDING_LOST] += 1
            self.entries.pop(sequence, None)
            return
        index = self._free.pop()
        to = shape.leftovers_offset + index * layout.SLOT_SIZE
        writer.map[to : to + layout.SLOT_SIZE] = row
        self._moved[sequence] = index
        if sequence not in self.entries:  # completed while it was being moved
            self._retire(sequence)

    def _retire(self, sequence: int) -> None:
        index = self._moved.pop(sequence, None)
        if index is None:
            return
        writer = self._writer
        at = writer.shape.leftovers_offset + index * layout.SLOT_SIZE + layout.SLOT_DONE
        writer.words[at // 8] = time.monotonic_ns()
        self._free.append(index)
