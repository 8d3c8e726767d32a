"""Issued ops that are not complete, with the `Work` handles that report completion.

The call of `Work.wait` shows when a thread began to wait for an op, and its return when the op was
complete (see `waits`). That is exact. But perhaps nobody waits, or only C++ does; and a `Work`
keeps its tensors alive, even after completion. So each hook tests two handles (in turn, because a
handle that never completes must not block later ones), the end of a phase tests 32, the recorder's
thread tests all, and completed handles are dropped at once. An op found complete in this way ended
then or earlier, and is marked `Flag.LATE`.

Some handles never report completion. They are held weakly as soon as the caller has them: the
caller has the same Python object, so once that is gone, no caller waits.

Each step is one atomic operation on a dict or deque, because a lock would cost more than all
the rest. A signal handler may raise between any two steps. So an op is first recorded as
complete, then removed from `open`, and its handle is dropped last; repeating a step is harmless.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from frtop_probe.recorder.ops.operations import Operation
from frtop_probe.recorder.ops.tensor_refs import OpTensorRefs, unpack, weak_refs
from frtop_probe.recorder.ops.usual_waits import MAX_STORED, UsualWaits
from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Flag, StatusCell

if TYPE_CHECKING:
    from frtop_probe.recorder.native.library import Library

HANDED_OVER_NS: Final = 100_000_000
"""Time in ns after which the caller has received the handle that a call returned."""
SUSPICIOUS_NS: Final = 10_000_000
"""Ops that took longer are tested for failure: the test costs 2 µs, and gloo notices a broken
connection only after a while."""
TESTED: Final = 32
"""The hook tests only among this many handles: finding the n-th one takes n steps."""
MAX_HANDLES: Final = 4096
"""Most handles held: some backends never report completion."""
MAX_DEVICE_OPS: Final = 256
"""Ops on devices whose tensors are stored: the newest ones, complete or not."""

Entry = tuple[Any, int, int, int, int, int, Any, "Operation | None"]
"""A handle, and its op's sequence number, issue time in ns, site, group, whether the call itself
waits, its tensors (see `tensor_refs`), and its `Operation`."""
ToWeaken = tuple[Entry, int, int]
"""An entry to hold weakly, when its call returned in ns, and the ident of its thread."""


class PendingOps:
    """Pending ops by sequence number, with a handle once the call has returned."""

    def __init__(self, ring: OwnRing) -> None:
        self.ring = ring
        self.open: dict[int, int] = {}
        """Group by sequence number, including ops whose calls have not returned yet."""
        self.handles: dict[int, Entry] = {}
        """Ops whose handles report completion, by `id()`; the entry keeps the handle alive."""
        self.silent_handles: dict[int, Entry] = {}
        """Ops whose handles do not. Once the handle is held weakly, the entry has none, and ends
        with it."""
        self.last_sync: dict[int, int] = {}
        """The last op whose call waits, by thread."""
        self.to_weaken: deque[ToWeaken] = deque()
        self.device_handles: dict[int, tuple[Any, int, int]] = {}
        """By thread: the handle of an op on a device whose caller is about to wait for it, the
        op's sequence number, and when the call returned. The handle is dropped when the wait
        begins."""
        self.device_ops: deque[tuple[int, Operation, Any]] = deque(maxlen=MAX_DEVICE_OPS)
        """Ops on devices, complete or not, with weak references to their tensors."""
        self._only_waited: set[int] = set()
        """Untracked ops that are open because a thread waits for them."""
        self.overflow = Overflow(ring, self.open)
        self.usual_waits = UsualWaits(ring)
        self._weak: dict[int, tuple[weakref.ref[Any], Entry]] = {}
        self.finish = self._finisher()
        self._native: Library | None = None

    def use(self, native: Library) -> None:
        """Leaves ops on CPUs to the native kernels, and half of the overflow."""
        self._native = native
        self.overflow.share(native)

    def is_open(self, sequence: int) -> bool:
        """Whether an op is pending, as far as is known."""
        return sequence in self.open or bool(self._native and self._native.is_open(sequence))

    def is_any_open(self) -> bool:
        """Whether an op on CPUs is pending."""
        head = self.ring.cells[StatusCell.HEAD]
        if self._native is not None and self._native.oldest() <= head:
            return True
        return any(not one[0].is_completed() for one in list(self.handles.values()))

    def prober(self) -> Callable[[int], None]:
        """Returns a function of the time that tests two of the oldest handles, each in turn."""
        handles, finish, pick = self.handles, self.finish, itertools.islice
        turn = itertools.count().__next__

        def probe(now: int) -> None:
            for _ in (0, 1):
                try:
                    entry = next(pick(handles.values(), turn() % min(len(handles), TESTED), None))
                except (RuntimeError, StopIteration, ZeroDivisionError):
                    return  # none left, or another thread took or added one
                if entry[0].is_completed():
                    finish(entry, now, late=True)

        return probe

    def test_oldest(self) -> None:
        """Tests the oldest handles when a phase ends or an optimizer's step begins.

        Ops that C++ waited for (in DDP's reducer) are complete at that point. The next hook may
        come only after a fetch and a forward, and until then they would seem to be pending.
        """
        handles = self.handles
        if not handles:
            return
        now = time.monotonic_ns()
        try:
            oldest = list(itertools.islice(handles.values(), TESTED))
        except RuntimeError:
            return  # another thread took or added one
        for entry in oldest:
            if entry[0].is_completed():
                self.finish(entry, now, late=True)

    def _finisher(self) -> Callable[..., None]:
        ring = self.ring
        is_open, close, forget = self.open, self.open.pop, self.handles.pop
        words, data, longer_from = ring.words, ring.map, ring.longer_from
        slots, more = ring.shape.slots, ring.shape.more
        first, width = ring.shape.slots_offset // 8, layout.SLOT_SIZE // 8
        done_word, flags_byte, late_flag = layout.SLOT_DONE // 8, layout.SLOT_FLAGS, int(Flag.LATE)
        overflow, retire = self.overflow.places, self.overflow.retire
        measured, newest = self.usual_waits.measured, MAX_STORED - 1
        identity = id

        def finish(entry: Entry, now: int, failed: bool | None = None, late: bool = False) -> None:
            """Records that an op is complete; without a handle, that its call has returned.

            Args:
                entry: the op's entry.
                now: when it was complete.
                failed: whether it failed; if None, asks its handle if it took suspiciously long.
                late: whether it may have completed earlier.
            """
            work, sequence, issued, site, _, _, _, _ = entry
            if sequence in is_open:
                if failed is None:
                    failed = now - issued > SUSPICIOUS_NS and work is not None and _failed(work)
                place = sequence % slots
                if sequence >= longer_from[0]:
                    place = slots + sequence % more
                at = first + place * width
                if words[at] == sequence:
                    if late:
                        data[at * 8 + flags_byte] |= late_flag
                    words[at + done_word] = -now if failed else now
                if not failed:
                    measured[sequence & newest] = site, now - issued, not late
                close(sequence, None)
            if sequence in overflow:
                retire(sequence)
            if work is not None:
                forget(identity(work), None)

        return finish

    # -- waits that are seen

    def wait_began(self, sequence: int, now: int) -> None:
        """Records that this thread waits for an op, and whether another thread issued it."""
        self.set_wait(sequence, now)
        words, at = self.ring.words, self.ring.slot_at(sequence)
        issued_here = words[(at + layout.SLOT_THREAD) // 8] == threading.get_ident()
        if words[at // 8] == sequence and not issued_here:
            self.ring.map[at + layout.SLOT_FLAGS] |= Flag.ELSEWHERE

    def wait_ended(self, entry: Entry, work: Any, now: int, failed: bool, late: bool) -> None:
        """Completes an op that a thread waited for.

        Args:
            entry: as found before the wait.
            work: its handle.
            now: when the wait ended.
            failed: whether the wait raised. If the op is still incomplete, it stays pending.
            late: whether the op may have completed earlier.
        """
        if failed and not work.is_completed():
            self.set_wait(entry[1], -now)
            return
        self.finish(entry, now, failed, late)
        if self.silent_handles.pop(id(work), None) is not None:
            self.forget_silent(entry[1])

    def returned(self, sequence: int, now: int) -> None:
        """Completes an op whose wait was not seen, because the thread issues another op."""
        silent = list(self.silent_handles.items())
        for entry in (*list(self.handles.values()), *(entry for _, entry in silent)):
            if entry[1] == sequence:
                self.finish(entry, now, late=True)
                self.forget_silent(sequence)
                for key, other in silent:
                    if other is entry:
                        self.silent_handles.pop(key, None)

    def forget_silent(self, sequence: int) -> None:
        """Drops a handle that does not report completion, once its op is complete."""
        self._weak.pop(sequence, None)
        for item in list(self.to_weaken):
            if item[0][1] == sequence:
                _drop(self.to_weaken, item)

    def device_wait_began(self, sequence: int, now: int) -> None:
        """Records that a thread waits for an op on a device."""
        if sequence not in self.open:
            self.open[sequence] = layout.NO_GROUP
            self._only_waited.add(sequence)
        self.set_wait(sequence, now)

    def device_wait_ended(self, sequence: int, now: int) -> None:
        self.set_wait(sequence, -now)
        if sequence not in self._only_waited:
            return  # its device shows when it is complete
        self._only_waited.discard(sequence)
        self.open.pop(sequence, None)
        if sequence in self.overflow.places:
            self.overflow.retire(sequence)

    def set_wait(self, sequence: int, value: int) -> None:
        """Writes the time of a wait, in the form of `layout.SLOT`."""
        words, shape = self.ring.words, self.ring.shape
        at = self.ring.slot_at(sequence)
        if words[at // 8] == sequence:
            words[(at + layout.SLOT_WAIT) // 8] = value
        if sequence in self.overflow.places:
            at = shape.overflow_offset + self.overflow.places[sequence] * layout.SLOT_SIZE
            words[(at + layout.SLOT_WAIT) // 8] = value

    def reap(self) -> None:
        """Tests every handle, and drops those that are complete."""
        now = time.monotonic_ns()
        for entry in list(self.handles.values()):
            # Not open: released, or a signal handler raised before it was dropped.
            if entry[1] not in self.open or entry[0].is_completed():
                self.finish(entry, now, late=True)
        for key, entry in list(self.handles.items())[:-MAX_HANDLES]:
            self.untrack(entry[1])
            self.handles.pop(key, None)
        self.weaken(0, now)
        for sequence, (reference, entry) in list(self._weak.items()):
            work = reference()
            if work is not None and work.is_completed():
                self.finish((work, *entry[1:]), now, late=True)
                self._weak.pop(sequence, None)
        for thread, (_, _, returned_ns) in list(self.device_handles.items()):
            if now - returned_ns > HANDED_OVER_NS:
                self.device_handles.pop(thread, None)
        if (native := self._native) is None:
            self.usual_waits.update()
            return
        native.tick()
        if why := native.failure():
            raise RuntimeError(why)
        self.usual_waits.update(native.measured())

    def weaken(self, thread: int, now: int) -> None:
        """Weakens references to handles that their callers must have received.

        That holds for all earlier calls of a thread that is in the hook again, and for other calls
        after `HANDED_OVER_NS`. Before that we may hold the only reference.
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
            self.finish(entry, now, late=True)
            return
        rest = (None, sequence, issued, site, group, sync, weak_refs(tensors), operation)
        weak, silent, key = self._weak, self.silent_handles, id(work)

        def ended(_: object) -> None:
            silent.pop(key, None)
            if weak.pop(sequence, None) is None:
                return
            if sync:
                self.finish(rest, time.monotonic_ns(), late=True)  # the waiting call returned
            else:
                self.untrack(sequence, time.monotonic_ns())

        weak[sequence] = weakref.ref(work, ended), rest
        silent[key] = rest

    def tensor_refs(self) -> dict[int, OpTensorRefs]:
        """Returns the tensors of pending ops and of ops on devices, oldest first."""
        found: dict[int, tuple[Operation | None, Any]] = {
            sequence: (operation, tensors) for sequence, operation, tensors in list(self.device_ops)
        }
        # Copies, because other threads go on; copying a deque or a dict's values is one step.
        entries = [*list(self.handles.values()), *(item[0] for item in list(self.to_weaken))]
        entries += [entry for _, entry in list(self._weak.values())]
        for entry in entries:
            if entry[1] in self.open and entry[6] is not None:
                found[entry[1]] = entry[7], entry[6]
        refs = {
            sequence: unpack(sequence, operation, tensors)
            for sequence, (operation, tensors) in found.items()
            if operation is not None
        }
        for sequence, tensors in self._native.tensors() if self._native is not None else ():
            refs[sequence] = OpTensorRefs.of(sequence, tensors)
        return dict(sorted(refs.items()))

    def is_complete(self, sequence: int) -> bool:
        """Returns whether an op is known to be complete; also false if that is unknown."""
        ring = self.ring
        at = ring.slot_at(sequence)
        known = ring.words[at // 8] == sequence
        untracked = ring.map[at + layout.SLOT_FLAGS] & Flag.UNTRACKED
        return known and not untracked and not self.is_open(sequence)

    def enqueued(self, sequence: int) -> None:
        """Notes that the call of an op on a device has returned."""
        ring = self.ring
        at = ring.slot_at(sequence)
        if ring.words[at // 8] == sequence:
            ring.map[at + layout.SLOT_FLAGS] |= Flag.ENQUEUED

    def untrack(self, sequence: int, ended_ns: int = 0) -> None:
        """Marks an op's completion as unknown.

        Args:
            sequence: the op's sequence number.
            ended_ns: when its handle was dropped, after which no caller waits; 0 if it was not.
        """
        if sequence not in self.open:
            return
        ring = self.ring
        at = ring.slot_at(sequence)
        if ring.words[at // 8] == sequence:
            ring.map[at + layout.SLOT_FLAGS] |= Flag.UNTRACKED
            ring.words[(at + layout.SLOT_DONE) // 8] = ended_ns
        self.open.pop(sequence, None)
        if sequence in self.overflow.places:
            self.overflow.retire(sequence)

    def release(self, group: int | None = None) -> None:
        """Drops the handles of a group that is being destroyed; None means all groups."""
        self.reap()
        if self._native is not None:
            self._native.release(group or 0)
        for key, entry in list(self.handles.items()):
            if group in (None, entry[4]):
                self.untrack(entry[1])
                self.handles.pop(key, None)
        for item in list(self.to_weaken):
            if group in (None, item[0][4]):
                self.untrack(item[0][1])
                self.silent_handles.pop(id(item[0][0]), None)
                _drop(self.to_weaken, item)
        for _, entry in list(self._weak.values()):
            if group in (None, entry[4]):
                self.untrack(entry[1])
                self._weak.pop(entry[1], None)


def _drop(queue: deque[ToWeaken], one: ToWeaken) -> None:
    try:  # noqa: SIM105 - `suppress` costs a microsecond
        queue.remove(one)
    except (IndexError, ValueError):  # another thread took it
        pass


def _failed(work: Any) -> bool:
    """Returns whether a complete op failed. `Work.exception()` knows, but warns."""
    try:
        future = work.get_future()
    except RuntimeError:  # not every handle has one
        return False
    try:
        future.value()
    except RuntimeError:
        return True
    return False


class Overflow:
    """Copies of old pending ops, in a section of the ring that newer ops do not overwrite.

    As in `PendingOps`, a signal handler may raise between any two steps; repeating one is harmless.
    `pending` has the pending ops by sequence number; ops without room here are removed from it.
    """

    def __init__(self, ring: OwnRing, pending: dict[int, int]) -> None:
        self.places: dict[int, int] = {}
        """Where each op is, by sequence number."""
        self._ring = ring
        self._open = pending
        self._free = list(range(ring.shape.overflow))
        self._spilling = threading.Lock()
        self._oldest_elsewhere: Callable[[], float] = lambda: math.inf

    def share(self, native: Library) -> None:
        """Leaves the first half to the native kernels, which copy their own ops."""
        self._free = [row for row in self._free if row >= self._ring.shape.overflow // 2]
        self._oldest_elsewhere = native.oldest

    def spill(self) -> None:
        """Copies old pending ops, and updates `OLDEST`."""
        ring = self._ring
        if self._spilling.locked():
            return  # another thread does this, or a signal handler interrupted it
        with self._spilling:
            head = ring.cells[StatusCell.HEAD]
            horizon = head - ring.shape.slots // 2
            for sequence in list(self.places):
                if sequence not in self._open:  # `finish` was interrupted before this
                    self.retire(sequence)
            for sequence in list(self._open):
                if sequence < horizon and sequence not in self.places:
                    self._spill(sequence)
            young = [sequence for sequence in list(self._open) if sequence not in self.places]
            oldest = min(min(young, default=head + 1), head + 1, self._oldest_elsewhere())
            ring.cells[StatusCell.OLDEST] = int(oldest)

    def _spill(self, sequence: int) -> None:
        ring, shape = self._ring, self._ring.shape
        at = ring.slot_at(sequence)
        if not self._free and self._stays(sequence):
            return
        if not self._free or ring.words[at // 8] != sequence:
            ring.cells[StatusCell.PENDING_LOST] += 1
            self._open.pop(sequence, None)
            return
        index = self._free.pop()
        to = shape.overflow_offset + index * layout.SLOT_SIZE
        ring.map[to : to + layout.SLOT_SIZE] = ring.map[at : at + layout.SLOT_SIZE]
        self.places[sequence] = index
        if sequence not in self._open:  # it completed during the copy
            self.retire(sequence)

    def _stays(self, sequence: int) -> bool:
        """Whether no op will take its slot soon, because the ring was made longer."""
        shape, first = self._ring.shape, self._ring.longer_from[0]
        if sequence < first:
            return sequence + shape.slots >= first
        return self._ring.cells[StatusCell.HEAD] - sequence < shape.more - shape.slots

    def retire(self, sequence: int) -> None:
        index = self.places.pop(sequence, None)
        if index is None:
            return
        ring = self._ring
        at = ring.shape.overflow_offset + index * layout.SLOT_SIZE + layout.SLOT_DONE
        ring.words[at // 8] = time.monotonic_ns()
        self._free.append(index)
