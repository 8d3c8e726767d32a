"""Ops that were issued and are not complete, and the `Work` handles that say so.

A held `Work` keeps its tensors, after completion too. So handles are looked at in every
hook (two of them, in rotation: one that never completes must not shield those behind it)
and by the recorder's thread, and let go at once. That of an op whose caller waits in the
call itself needs no look when the same thread issues the next one.

Some handles never say that they are complete. Those are held weakly as soon as their
caller has them: Python sees the same object as we do, so its end is the sign that nobody
waits any more.

Every step is one atomic operation on a dict or deque: a lock would cost more than all the
rest. And a signal handler may raise between any two of them, so an op is written down as
complete before it is closed, and leaves its queue only after that: what is done twice does
no harm.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from frtop_probe.recorder.carried import Carried, unpack, weakly
from frtop_probe.recorder.operations import Operation
from frtop_probe.recorder.writer import Writer
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Cell, Flag

HANDED_OVER_NS: Final = 100_000_000
"""By then a call that returned a handle has given it to whoever called."""
SUSPICIOUS_NS: Final = 10_000_000
"""Ops that took longer are asked whether they failed: a broken connection takes a while
to be noticed, and asking costs two microseconds."""
MAX_UNMEASURED: Final = 1024
"""Waits that are kept until the next beat; a power of two. In a list of that length from the
beginning: what grows at an op takes a little memory between the program's tensors, and
malloc cannot join the places where they were."""
MAX_FAR: Final = 256
"""Ops on devices whose tensors are remembered: the newest ones, whether complete or not."""

Entry = tuple[Any, int, int, int, int, bool, Any, "Operation | None"]
"""A handle, then of its op: sequence number, issued ns, site, group, whether its caller
waits in the call itself, its tensors (see `carried`), and which op it is."""
Loose = tuple[Entry, int, int]
"""An entry that will be held weakly, when its call returned, and the thread's ident."""


class Pending:
    """All of them: `open` by sequence number, with a handle once the call has returned."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.open: dict[int, int] = {}
        """Group by sequence number; also of ops whose call has not returned yet."""
        self.queue: deque[Entry] = deque()
        self.waiting: dict[int, list[Any]] = {}
        """By thread: the op whose call waits for it, as an `Entry` with its handle boxed,
        and when it was returned, if that handle will never say anything, where an `Entry`
        says whether its caller waits."""
        self.unbox: Callable[[Any], Any] = lambda boxed: boxed
        self.loose: deque[Loose] = deque()
        self.far: deque[tuple[int, Operation, Any]] = deque(maxlen=MAX_FAR)
        """Ops on devices: their tensors, weakly, since nobody here knows when they end."""
        self._weak: dict[int, tuple[weakref.ref[Any], Entry]] = {}
        self._moved: dict[int, int] = {}
        self._free = list(range(writer.shape.leftovers))
        self._moving = threading.Lock()
        self._measured: list[tuple[int, int] | None] = [None] * MAX_UNMEASURED
        self._waits: dict[int, tuple[int, int]] = {}
        self._writes = 0
        self.finish = self._finisher()
        self.returned = self._returner()

    def prober(self) -> Callable[[int], None]:
        """A function of the time that looks at the two handles whose turn it is."""
        queue, finish = self.queue, self.finish
        turn, drop = self.queue.rotate, self.queue.remove

        def probe(now: int) -> None:
            try:
                entry = queue[0]
                if entry[0].is_completed():
                    finish(entry, now)
                    drop(entry)
                else:
                    turn(-1)
                if not queue:
                    return
                entry = queue[0]
                if entry[0].is_completed():
                    finish(entry, now)
                    drop(entry)
                else:
                    turn(-1)
            except (IndexError, ValueError):  # another thread took it
                return

        return probe

    def _finisher(self) -> Callable[..., None]:
        writer = self._writer
        is_open, close = self.open, self.open.pop
        words, slots = writer.words, writer.shape.slots
        first, width = writer.shape.slots_offset // 8, layout.SLOT_SIZE // 8
        done_word = layout.SLOT_DONE // 8
        moved, retire = self._moved, self._retire
        measured, place = self._measured, MAX_UNMEASURED - 1

        def finish(entry: Entry, now: int, failed: bool = False) -> None:
            """Writes down that an op is complete; without a handle: that it has returned."""
            work, sequence, issued, site, _, _, _, _ = entry
            if sequence not in is_open:
                return
            if now - issued > SUSPICIOUS_NS and work is not None and _failed(work):
                failed = True
            at = first + sequence % slots * width
            if words[at] == sequence:
                words[at + done_word] = -now if failed else now
            if not failed:
                measured[sequence & place] = site, now - issued
            close(sequence, None)
            if sequence in moved:
                retire(sequence)

        return finish

    def _returner(self) -> Callable[[list[Any], int], None]:
        writer, finish = self._writer, self.finish
        is_open, close = self.open, self.open.pop
        words, slots = writer.words, writer.shape.slots
        first, width = writer.shape.slots_offset // 8, layout.SLOT_SIZE // 8
        done_word = layout.SLOT_DONE // 8
        moved, measured, place = self._moved, self._measured, MAX_UNMEASURED - 1

        def returned(entry: list[Any], now: int) -> None:
            """A thread that issues another op has come back from the one it waited for.

            That spares the handle, unless the op took long. This is `finish` without all
            that the usual case has no need of.
            """
            boxed, sequence, issued, site, group, _, _, _ = entry
            if boxed is None:
                return
            wait = now - issued
            if wait > SUSPICIOUS_NS or moved:
                work = self.unbox(boxed)
                finish((work, sequence, issued, site, group, True, None, None), now)
            elif sequence in is_open:
                at = first + sequence % slots * width
                if words[at] == sequence:
                    words[at + done_word] = now
                measured[sequence & place] = site, wait
                close(sequence, None)
            entry[0] = entry[6] = None

        return returned

    def reap(self) -> None:
        """Looks at every handle, and lets go of those that are complete."""
        now = time.monotonic_ns()
        self._look_at_waiting(now)
        for _ in range(len(self.queue)):
            try:
                entry = self.queue[0]
            except IndexError:
                break
            if entry[0].is_completed():
                self.finish(entry, now)
            if entry[1] in self.open:
                self.queue.rotate(-1)
            else:
                _drop(self.queue, entry)
        self.weaken(0, now)
        for sequence, (reference, entry) in list(self._weak.items()):
            work = reference()
            if work is not None and work.is_completed():
                self.finish((work, *entry[1:]), now)
                self._weak.pop(sequence, None)
        self._measure()

    def _look_at_waiting(self, now: int) -> None:
        for waited in list(self.waiting.values()):
            boxed = waited[0]
            if boxed is None:
                continue
            entry = (self.unbox(boxed), *waited[1:5], True, *waited[6:])
            if entry[0].is_completed():
                self.finish(entry, now)
                waited[0] = waited[6] = None
            elif waited[5] and now - waited[5] > HANDED_OVER_NS:
                self._weaken(entry, now)
                waited[0] = waited[6] = None

    def weaken(self, thread: int, now: int) -> None:
        """Holds those handles weakly whose callers must have them by now.

        That is so for all earlier calls of a thread that is in the hook again, and after
        a while for every other. In between, nobody but us may hold a Python object.
        """
        for _ in range(len(self.loose)):
            try:
                loose = self.loose[0]
                entry, returned_ns, caller = loose
                if caller == thread or now - returned_ns > HANDED_OVER_NS:
                    self._weaken(entry, now)
                    self.loose.remove(loose)
                else:
                    self.loose.rotate(-1)
            except (IndexError, ValueError):  # another thread took it
                return

    def _weaken(self, entry: Entry, now: int) -> None:
        work, sequence, issued, site, group, sync, carried, operation = entry
        if work.is_completed():
            self.finish(entry, now)
            return
        rest = (None, sequence, issued, site, group, sync, weakly(carried), operation)
        weak = self._weak

        def ended(_: object) -> None:
            if weak.pop(sequence, None) is None:
                return
            if sync:
                self.finish(rest, time.monotonic_ns())  # the call that waited is over
            else:
                self.untrack(sequence, time.monotonic_ns())

        weak[sequence] = weakref.ref(work, ended), rest

    def _measure(self) -> None:
        """Smooths how long ops from a call site take: an eighth of each new one."""
        writer = self._writer
        touched = set()
        measured = self._measured
        for index, one in enumerate(measured):
            if one is None:
                continue
            measured[index] = None
            site, wait_ns = one
            if not site:
                continue
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

    def carried(self) -> dict[int, Carried]:
        """The tensors of all ops that are pending, oldest first, and of those on devices.

        One whose handle another thread just looks at may be missing: ask again.
        """
        found: dict[int, tuple[Operation | None, Any]] = {
            sequence: (operation, carried) for sequence, operation, carried in list(self.far)
        }
        # Copies of a deque and of a dict's values are one step each.
        entries = [*list(self.queue), *(loose[0] for loose in list(self.loose))]
        entries += [entry for _, entry in list(self._weak.values())]
        for entry in (*entries, *list(self.waiting.values())):
            carried = entry[6]  # taken once: the hook may clear it meanwhile
            if entry[1] in self.open and carried is not None:
                found[entry[1]] = entry[7], carried
        return {
            sequence: unpack(sequence, operation, carried)
            for sequence, (operation, carried) in sorted(found.items())
            if operation is not None
        }

    def untrack(self, sequence: int, ended_ns: int = 0) -> None:
        """From here on nobody will know when this op completes.

        With `ended_ns` its handle was dropped then, so at least nobody waits for it.
        """
        if sequence not in self.open:
            return
        writer = self._writer
        at = writer.shape.slots_offset + sequence % writer.shape.slots * layout.SLOT_SIZE
        if writer.words[at // 8] == sequence:
            writer.map[at + layout.SLOT_FLAGS] |= Flag.UNTRACKED
            writer.words[(at + layout.SLOT_DONE) // 8] = ended_ns
        self.open.pop(sequence, None)
        if sequence in self._moved:
            self._retire(sequence)

    def let_go(self, group: int | None = None) -> None:
        """Drops the handles of a group, or of all: it is being destroyed."""
        self.reap()
        for entry in list(self.queue):
            if group in (None, entry[4]):
                self.untrack(entry[1])
                _drop(self.queue, entry)
        for loose in list(self.loose):
            if group in (None, loose[0][4]):
                self.untrack(loose[0][1])
                _drop(self.loose, loose)
        for _, entry in list(self._weak.values()):
            if group in (None, entry[4]):
                self.untrack(entry[1])
                self._weak.pop(entry[1], None)
        for waited in list(self.waiting.values()):
            if waited[0] is not None and group in (None, waited[4]):
                self.untrack(waited[1])
                waited[0] = waited[6] = None

    def advance(self) -> None:
        """Saves old pending ops from being overwritten, and says where to start looking."""
        writer = self._writer
        if self._moving.locked():
            return  # by another thread, or this one before a signal handler took over
        with self._moving:
            head = writer.cells[Cell.HEAD]
            horizon = head - writer.shape.slots // 2
            for sequence in list(self._moved):
                if sequence not in self.open:  # whoever closed it was interrupted there
                    self._retire(sequence)
            for sequence in list(self.open):
                if sequence < horizon and sequence not in self._moved:
                    self._move(sequence)
            young = [sequence for sequence in list(self.open) if sequence not in self._moved]
            writer.cells[Cell.OLDEST] = min(min(young, default=head + 1), head + 1)

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


def _drop(queue: deque[Any], one: Entry | Loose) -> None:
    with suppress(IndexError, ValueError):  # another thread took it
        queue.remove(one)


def _failed(work: Any) -> bool:
    """Whether a complete op has failed. `Work.exception()` would say, with a warning."""
    try:
        future = work.get_future()
    except RuntimeError:  # not every handle has one
        return False
    try:
        future.value()
    except RuntimeError:
        return True
    return False
