"""Ops that were issued and are not complete, and the `Work` handles that say so.

A held `Work` keeps its tensors, after completion too. So handles are looked at in every
hook (two of them, in rotation: one that never completes must not shield those behind it)
and by the recorder's thread, and let go at once. Every step is one atomic operation on a
dict or deque: a lock would cost more than all the rest.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.writer import Writer
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Cell, Flag

ABANDONED_NS: Final = 1_000_000_000
"""A p2p handle that only we hold and that is older than this was dropped by its owner."""
_OWN_REFERENCES: Final = 3
"""To a handle in `_abandoned`: the entry, its local name, and the argument itself."""
MAX_UNMEASURED: Final = 4096

Entry = tuple[Any, int, int, int, int, bool]
"""A handle, then of its op: sequence number, issued ns, site, group, whether p2p."""


class Pending:
    """All of them: `open` by sequence number, with a handle once the call has returned."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.open: dict[int, int] = {}
        """Group by sequence number; also of ops whose call has not returned yet."""
        self.queue: deque[Entry] = deque()
        self._moved: dict[int, int] = {}
        self._free = list(range(writer.shape.leftovers))
        self._moving = threading.Lock()
        self._measured: deque[tuple[int, int]] = deque(maxlen=MAX_UNMEASURED)
        self._waits: dict[int, tuple[int, int]] = {}
        self._writes = 0
        self.finish = self._finisher()

    def prober(self) -> Callable[[], None]:
        """A function that looks at the two handles whose turn it is."""
        queue, finish = self.queue, self.finish
        take, put = self.queue.popleft, self.queue.append

        def probe() -> None:
            if not queue:
                return
            try:
                entry = take()
                if entry[0].is_completed():
                    finish(entry)
                else:
                    put(entry)
                if not queue:
                    return
                entry = take()
                if entry[0].is_completed():
                    finish(entry)
                else:
                    put(entry)
            except IndexError:  # another thread took it
                return

        return probe

    def _finisher(self) -> Callable[..., None]:
        writer = self._writer
        close, clock = self.open.pop, time.monotonic_ns
        words, slots = writer.words, writer.shape.slots
        first, width = writer.shape.slots_offset // 8, layout.SLOT_SIZE // 8
        done_word = layout.SLOT_DONE // 8
        moved, retire, measured = self._moved, self._retire, self._measured.append

        def finish(entry: Entry, failed: bool = False) -> None:
            """Writes down that an op is complete; an entry without handle has returned."""
            work, sequence, issued, site, _, _ = entry
            if close(sequence, None) is None:
                return
            now = clock()
            if work is not None and work.exception() is not None:
                failed = True
            at = first + sequence % slots * width
            if words[at] == sequence:
                words[at + done_word] = -now if failed else now
            if sequence in moved:
                retire(sequence)
            if site and not failed:
                measured((site, now - issued))

        return finish

    def reap(self) -> int:
        """Looks at every handle, and returns how many ops are still pending."""
        now = time.monotonic_ns()
        for _ in range(len(self.queue)):
            try:
                entry = self.queue.popleft()
            except IndexError:
                break
            if entry[0].is_completed():
                self.finish(entry)
            elif entry[5] and now - entry[2] > ABANDONED_NS and _abandoned(entry):
                self.untrack(entry[1])
            elif entry[1] in self.open:
                self.queue.append(entry)
        self._measure()
        return len(self.open)

    def _measure(self) -> None:
        """Smooths how long ops from a call site take: an eighth of each new one."""
        writer = self._writer
        touched = set()
        for _ in range(len(self._measured)):
            site, wait_ns = self._measured.popleft()
            count, smooth = self._waits.get(site, (0, wait_ns))
            self._waits[site] = (count + 1, smooth + ((wait_ns - smooth) >> 3))
            touched.add(site)
        for site in touched:
            if site < writer.shape.sites:
                self._writes += 1
                layout.SITE_ROW.pack_into(
                    writer.map,
                    writer.shape.sites_offset + site * layout.SITE_ROW.size,
                    *(self._writes, *self._waits[site], self._writes),
                )

    def untrack(self, sequence: int) -> None:
        """From here on nobody will know when this op completes."""
        if self.open.pop(sequence, None) is None:
            return
        writer = self._writer
        at = writer.shape.slots_offset + sequence % writer.shape.slots * layout.SLOT_SIZE
        if writer.words[at // 8] == sequence:
            writer.map[at + layout.SLOT_FLAGS] |= Flag.UNTRACKED
        if sequence in self._moved:
            self._retire(sequence)

    def let_go(self, group: int | None = None) -> None:
        """Drops the handles of a group, or of all: it is being destroyed."""
        self.reap()
        for _ in range(len(self.queue)):
            try:
                entry = self.queue.popleft()
            except IndexError:
                return
            if group is None or entry[4] == group:
                self.untrack(entry[1])
            else:
                self.queue.append(entry)

    def advance(self) -> None:
        """Saves old pending ops from being overwritten, and says where to start looking."""
        writer = self._writer
        if not self._moving.acquire(blocking=False):
            return
        try:
            head = writer.cells[Cell.HEAD]
            horizon = head - writer.shape.slots // 2
            for sequence in list(self.open):
                if sequence < horizon and sequence not in self._moved:
                    self._move(sequence)
            young = [sequence for sequence in list(self.open) if sequence not in self._moved]
            writer.cells[Cell.OLDEST] = min(min(young, default=head + 1), head + 1)
        finally:
            self._moving.release()

    def _move(self, sequence: int) -> None:
        writer, shape = self._writer, self._writer.shape
        at = shape.slots_offset + sequence % shape.slots * layout.SLOT_SIZE
        if not self._free or writer.words[at // 8] != sequence:
            writer.cells[Cell.PENDING_LOST] += 1
            self.open.pop(sequence, None)
            return
        index = self._free.pop()
        to = shape.leftovers_offset + index * layout.SLOT_SIZE
        writer.map[to : to + layout.SLOT_SIZE] = writer.map[at : at + layout.SLOT_SIZE]
        self._moved[sequence] = index
        if sequence not in self.open:  # completed while it was being moved
            self._retire(sequence)

    def _retire(self, sequence: int) -> None:
        index = self._moved.pop(sequence, None)
        if index is None:
            return
        writer = self._writer
        at = writer.shape.leftovers_offset + index * layout.SLOT_SIZE + layout.SLOT_DONE
        writer.words[at // 8] = time.monotonic_ns()
        self._free.append(index)


def _abandoned(entry: Entry) -> bool:
    """Whether nobody else in Python holds a p2p handle.

    On gloo one that nobody waits for never says that it is complete; its tensors would
    stay for ever.
    """
    work = entry[0]
    return sys.getrefcount(work) <= _OWN_REFERENCES
