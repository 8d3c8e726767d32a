"""Ops that were issued and are not complete, with the `Work` handles that report completion.

A `Work` keeps its tensors alive, also after completion. So each hook tests two handles (in
rotation, because one that never completes must not block those after it), the recorder's thread
tests all, and completed handles are dropped at once. If the caller waits in the call itself,
the handle needs no test once the same thread issues the next op.

Some handles never report completion. They are held weakly as soon as the caller has them:
Python sees the same object as we do, so its end means that no caller waits any more.

Each step is one atomic operation on a dict or deque, because a lock would cost more than all
the rest. A signal handler may raise between any two steps. So an op is first recorded as
complete, then removed from `open`, and last removed from its queue; repeating a step is harmless.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from frtop_probe.recorder.operations import Operation
from frtop_probe.recorder.tensor_refs import OpTensorRefs, unpack, weak_refs
from frtop_probe.recorder.writer import RingWriter
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Flag, StatusCell

HANDED_OVER_NS: Final = 100_000_000
"""Time in ns after which the caller has received the handle that a call returned."""
SUSPICIOUS_NS: Final = 10_000_000
"""Ops that took longer are tested for failure: the test costs two microseconds, and gloo notices
a broken connection only after a while."""
MAX_UNMEASURED: Final = 1024
"""Waits that are stored until the next beat; a power of two. The list has this length from the
start: growing at an op would take memory between the program's tensors and fragment malloc."""
MAX_DEVICE_OPS: Final = 256
"""Ops on devices whose tensors are stored: the newest ones, complete or not."""

Entry = tuple[Any, int, int, int, int, bool, Any, "Operation | None"]
"""A handle, and its op's sequence number, issue time in ns, site, group, whether the caller waits
in the call itself, its tensors (see `tensor_refs`), and which op it is."""
ToWeaken = tuple[Entry, int, int]
"""An entry to be held weakly, when its call returned in ns, and the ident of its thread."""


class PendingOps:
    """Pending ops by sequence number, with a handle once the call has returned."""

    def __init__(self, writer: RingWriter) -> None:
        self._writer = writer
        self.open: dict[int, int] = {}
        """Group by sequence number, including ops whose call has not returned yet."""
        self.queue: deque[Entry] = deque()
        self.sync_ops: dict[int, list[Any]] = {}
        """By thread: the op whose call waits for it, as an `Entry` with a boxed handle. Instead
        of whether its caller waits, it has the time of its return if it is unsignalled."""
        self.unbox: Callable[[Any], Any] = lambda boxed: boxed
        self.to_weaken: deque[ToWeaken] = deque()
        self.device_ops: deque[tuple[int, Operation, Any]] = deque(maxlen=MAX_DEVICE_OPS)
        """Ops on devices with weak references to their tensors: their completion is unknown."""
        self._weak: dict[int, tuple[weakref.ref[Any], Entry]] = {}
        self._overflow: dict[int, int] = {}
        self._free = list(range(writer.shape.overflow))
        self._spilling = threading.Lock()
        self._measured: list[tuple[int, int] | None] = [None] * MAX_UNMEASURED
        self._waits: dict[int, tuple[int, int]] = {}
        self._writes = 0
        self.finish = self._finisher()
        self.returned = self._returner()

    def prober(self) -> Callable[[int], None]:
        """Returns a function of the time that tests the next two handles in rotation."""
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
        overflow, retire = self._overflow, self._retire
        measured, place = self._measured, MAX_UNMEASURED - 1

        def finish(entry: Entry, now: int, failed: bool = False) -> None:
            """Records that an op is complete; without a handle: that its call has returned."""
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
            if sequence in overflow:
                retire(sequence)

        return finish

    def _returner(self) -> Callable[[list[Any], int], None]:
        writer, finish = self._writer, self.finish
        is_open, close = self.open, self.open.pop
        words, slots = writer.words, writer.shape.slots
        first, width = writer.shape.slots_offset // 8, layout.SLOT_SIZE // 8
        done_word = layout.SLOT_DONE // 8
        overflow, measured, place = self._overflow, self._measured, MAX_UNMEASURED - 1

        def returned(entry: list[Any], now: int) -> None:
            """Completes the op that a thread waited for, when the thread issues another op.

            The handle needs no test unless the op took long. This is `finish` without the
            steps that the usual op does not need.
            """
            boxed, sequence, issued, site, group, _, _, _ = entry
            if boxed is None:
                return
            wait = now - issued
            if wait > SUSPICIOUS_NS or overflow:
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
        """Tests every handle, and drops those that are complete."""
        now = time.monotonic_ns()
        self._test_sync_ops(now)
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

    def _test_sync_ops(self, now: int) -> None:
        for sync_op in list(self.sync_ops.values()):
            boxed = sync_op[0]
            if boxed is None:
                continue
            entry = (self.unbox(boxed), *sync_op[1:5], True, *sync_op[6:])
            if entry[0].is_completed():
                self.finish(entry, now)
                sync_op[0] = sync_op[6] = None
            elif sync_op[5] and now - sync_op[5] > HANDED_OVER_NS:
                self._weaken(entry, now)
                sync_op[0] = sync_op[6] = None

    def weaken(self, thread: int, now: int) -> None:
        """Weakens references to handles that their callers must have received.

        That holds for all earlier calls of a thread that is in the hook again, and after
        `HANDED_OVER_NS` for other calls. Before that we may hold the only reference.
        """
        for _ in range(len(self.to_weaken)):
            try:
                item = self.to_weaken[0]
                entry, returned_ns, caller = item
                if caller == thread or now - returned_ns > HANDED_OVER_NS:
                    self._weaken(entry, now)
                    self.to_weaken.remove(item)
                else:
                    self.to_weaken.rotate(-1)
            except (IndexError, ValueError):  # another thread took it
                return

    def _weaken(self, entry: Entry, now: int) -> None:
        work, sequence, issued, site, group, sync, tensors, operation = entry
        if work.is_completed():
            self.finish(entry, now)
            return
        rest = (None, sequence, issued, site, group, sync, weak_refs(tensors), operation)
        weak = self._weak

        def ended(_: object) -> None:
            if weak.pop(sequence, None) is None:
                return
            if sync:
                self.finish(rest, time.monotonic_ns())  # the call that waited has returned
            else:
                self.untrack(sequence, time.monotonic_ns())

        weak[sequence] = weakref.ref(work, ended), rest

    def _measure(self) -> None:
        """Updates the smoothed wait of each call site: each new wait counts an eighth."""
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

    def tensor_refs(self) -> dict[int, OpTensorRefs]:
        """Returns the tensors of pending ops and of ops on devices, oldest first.

        An op whose handle another thread is testing may be missing: try again.
        """
        found: dict[int, tuple[Operation | None, Any]] = {
            sequence: (operation, tensors) for sequence, operation, tensors in list(self.device_ops)
        }
        # Copies of a deque and of a dict's values are one step each.
        entries = [*list(self.queue), *(item[0] for item in list(self.to_weaken))]
        entries += [entry for _, entry in list(self._weak.values())]
        for entry in (*entries, *list(self.sync_ops.values())):
            tensors = entry[6]  # read once: the hook may clear it meanwhile
            if entry[1] in self.open and tensors is not None:
                found[entry[1]] = entry[7], tensors
        return {
            sequence: unpack(sequence, operation, tensors)
            for sequence, (operation, tensors) in sorted(found.items())
            if operation is not None
        }

    def untrack(self, sequence: int, ended_ns: int = 0) -> None:
        """Marks an op's completion as unknown.

        Args:
            sequence: of the op.
            ended_ns: when its handle was dropped, after which no caller waits; 0 for no drop.
        """
        if sequence not in self.open:
            return
        writer = self._writer
        at = writer.shape.slots_offset + sequence % writer.shape.slots * layout.SLOT_SIZE
        if writer.words[at // 8] == sequence:
            writer.map[at + layout.SLOT_FLAGS] |= Flag.UNTRACKED
            writer.words[(at + layout.SLOT_DONE) // 8] = ended_ns
        self.open.pop(sequence, None)
        if sequence in self._overflow:
            self._retire(sequence)

    def release(self, group: int | None = None) -> None:
        """Drops the handles of a group that is being destroyed; None: of all groups."""
        self.reap()
        for entry in list(self.queue):
            if group in (None, entry[4]):
                self.untrack(entry[1])
                _drop(self.queue, entry)
        for item in list(self.to_weaken):
            if group in (None, item[0][4]):
                self.untrack(item[0][1])
                _drop(self.to_weaken, item)
        for _, entry in list(self._weak.values()):
            if group in (None, entry[4]):
                self.untrack(entry[1])
                self._weak.pop(entry[1], None)
        for sync_op in list(self.sync_ops.values()):
            if sync_op[0] is not None and group in (None, sync_op[4]):
                self.untrack(sync_op[1])
                sync_op[0] = sync_op[6] = None

    def spill_old_ops(self) -> None:
        """Copies old pending ops to the overflow section, and updates `OLDEST`."""
        writer = self._writer
        if self._spilling.locked():
            return  # another thread is at it, or this one was interrupted by a signal handler
        with self._spilling:
            head = writer.cells[StatusCell.HEAD]
            horizon = head - writer.shape.slots // 2
            for sequence in list(self._overflow):
                if sequence not in self.open:  # `finish` was interrupted before this
                    self._retire(sequence)
            for sequence in list(self.open):
                if sequence < horizon and sequence not in self._overflow:
                    self._spill(sequence)
            young = [sequence for sequence in list(self.open) if sequence not in self._overflow]
            writer.cells[StatusCell.OLDEST] = min(min(young, default=head + 1), head + 1)

    def _spill(self, sequence: int) -> None:
        writer, shape = self._writer, self._writer.shape
        at = shape.slots_offset + sequence % shape.slots * layout.SLOT_SIZE
        if not self._free or writer.words[at // 8] != sequence:
            writer.cells[StatusCell.PENDING_LOST] += 1
            self.open.pop(sequence, None)
            return
        index = self._free.pop()
        to = shape.overflow_offset + index * layout.SLOT_SIZE
        writer.map[to : to + layout.SLOT_SIZE] = writer.map[at : at + layout.SLOT_SIZE]
        self._overflow[sequence] = index
        if sequence not in self.open:  # it completed during the copy
            self._retire(sequence)

    def _retire(self, sequence: int) -> None:
        index = self._overflow.pop(sequence, None)
        if index is None:
            return
        writer = self._writer
        at = writer.shape.overflow_offset + index * layout.SLOT_SIZE + layout.SLOT_DONE
        writer.words[at // 8] = time.monotonic_ns()
        self._free.append(index)


def _drop(queue: deque[Any], one: Entry | ToWeaken) -> None:
    with suppress(IndexError, ValueError):  # another thread took it
        queue.remove(one)


def _failed(work: Any) -> bool:
    """Returns whether a complete op has failed. `Work.exception()` knows it, but warns."""
    try:
        future = work.get_future()
    except RuntimeError:  # not every handle has one
        return False
    try:
        future.value()
    except RuntimeError:
        return True
    return False
