"""Copies of old pending ops, in a section of the ring that newer ops do not overwrite.

As in `pending`, a signal handler may raise between any two steps, and repeating one is harmless.
"""

from __future__ import annotations

import threading
import time

from frtop_probe.recorder.ops.writer import RingWriter
from frtop_probe.ring import layout
from frtop_probe.ring.layout import StatusCell


class Overflow:
    """The overflow section.

    Args:
        writer: of the ring.
        pending: the pending ops, by sequence number; ops for which there is no room go from it.
    """

    def __init__(self, writer: RingWriter, pending: dict[int, int]) -> None:
        self.places: dict[int, int] = {}
        """Where each op is, by sequence number."""
        self._writer = writer
        self._open = pending
        self._free = list(range(writer.shape.overflow))
        self._spilling = threading.Lock()

    def spill(self) -> None:
        """Copies old pending ops, and updates `OLDEST`."""
        writer = self._writer
        if self._spilling.locked():
            return  # another thread is at it, or this one was interrupted by a signal handler
        with self._spilling:
            head = writer.cells[StatusCell.HEAD]
            horizon = head - writer.shape.slots // 2
            for sequence in list(self.places):
                if sequence not in self._open:  # `finish` was interrupted before this
                    self.retire(sequence)
            for sequence in list(self._open):
                if sequence < horizon and sequence not in self.places:
                    self._spill(sequence)
            young = [sequence for sequence in list(self._open) if sequence not in self.places]
            writer.cells[StatusCell.OLDEST] = min(min(young, default=head + 1), head + 1)

    def _spill(self, sequence: int) -> None:
        writer, shape = self._writer, self._writer.shape
        at = writer.slot_at(sequence)
        if not self._free and self._stays(sequence):
            return
        if not self._free or writer.words[at // 8] != sequence:
            writer.cells[StatusCell.PENDING_LOST] += 1
            self._open.pop(sequence, None)
            return
        index = self._free.pop()
        to = shape.overflow_offset + index * layout.SLOT_SIZE
        writer.map[to : to + layout.SLOT_SIZE] = writer.map[at : at + layout.SLOT_SIZE]
        self.places[sequence] = index
        if sequence not in self._open:  # it completed during the copy
            self.retire(sequence)

    def _stays(self, sequence: int) -> bool:
        """Whether no op takes its slot for another ring's length, as the ring was made longer."""
        shape, first = self._writer.shape, self._writer.longer_from[0]
        if sequence < first:
            return sequence + shape.slots >= first
        return self._writer.cells[StatusCell.HEAD] - sequence < shape.more - shape.slots

    def retire(self, sequence: int) -> None:
        index = self.places.pop(sequence, None)
        if index is None:
            return
        writer = self._writer
        at = writer.shape.overflow_offset + index * layout.SLOT_SIZE + layout.SLOT_DONE
        writer.words[at // 8] = time.monotonic_ns()
        self._free.append(index)
