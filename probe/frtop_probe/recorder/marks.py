"""Writes marks into the ring: what a rank does beside ops, with its begin and its end.

This runs several times per training step, in the program's threads: a mark costs about a
microsecond. All is bound once; see `hook` for the reasons.
"""

from __future__ import annotations

import itertools
import threading
import time
from mmap import mmap
from typing import Final
from zlib import crc32

from frtop_probe.ring import layout
from frtop_probe.ring.layout import MarkKind, Shape, StatusCell

UNSEEN: Final = -1
"""End of a mark that nobody saw end: an exception has passed, say."""
MAX_NUMBER: Final = 2**62 - 1
"""Of samples and of steps."""


class MarkWriter:
    """The marks of one ring."""

    def __init__(self, ring: mmap, words: memoryview, shape: Shape) -> None:
        """Begins with no mark.

        Args:
            ring: the mapped file.
            words: the same as 64-bit words.
            shape: of the ring.
        """
        self._map = ring
        self._words = words
        self._at = shape.marks_offset
        self._count = shape.marks
        self._cells = words[layout.CELLS_OFFSET // 8 : layout.GROUPS_OFFSET // 8]
        self._next = itertools.count(1).__next__

    def watch(self, *kinds: MarkKind) -> None:
        """Notes that marks of these kinds are recorded from now on."""
        for kind in kinds:
            self._cells[StatusCell.WATCHED] |= 1 << kind

    def unwatch(self, kind: MarkKind) -> None:
        """Notes that marks of this kind are not recorded any more."""
        self._cells[StatusCell.WATCHED] &= ~(1 << kind)

    def instant(self, kind: MarkKind, number: int) -> int:
        """Marks this time; returns the mark's sequence number."""
        now = time.monotonic_ns()
        return self._write(kind, number, now, now)

    def begin(self, kind: MarkKind, number: int) -> int:
        """Begins a mark; returns its sequence number, for `end`."""
        return self._write(kind, number, time.monotonic_ns(), 0)

    def end(self, sequence: int) -> None:
        """Ends a mark now."""
        self._store(sequence, layout.MARK_END, time.monotonic_ns())

    def abandon(self, sequence: int) -> None:
        """Says of a mark that nobody saw it end."""
        self._store(sequence, layout.MARK_END, UNSEEN)

    def add_samples(self, sequence: int, samples: int) -> None:
        """Adds to the samples of a step."""
        at = self._word_of(sequence)
        if self._words[at] == sequence:
            known = self._words[at + layout.MARK_SAMPLES // 8]
            self._words[at + layout.MARK_SAMPLES // 8] = min(known + samples, MAX_NUMBER)

    def _write(self, kind: MarkKind, number: int, begin_ns: int, end_ns: int) -> int:
        sequence = self._next()
        body = layout.MARK_BODY.pack(sequence, begin_ns, number, threading.get_ident(), kind, 0)
        at = self._at + sequence % self._count * layout.MARK_SIZE
        layout.MARK.pack_into(self._map, at, body, crc32(body), end_ns, 0)
        if sequence > self._cells[StatusCell.MARKS]:  # noqa: PLR1730 - a call may switch threads
            self._cells[StatusCell.MARKS] = sequence
        return sequence

    def _store(self, sequence: int, offset: int, value: int) -> None:
        at = self._word_of(sequence)
        if self._words[at] == sequence:  # else it was overwritten meanwhile
            self._words[at + offset // 8] = value

    def _word_of(self, sequence: int) -> int:
        return (self._at + sequence % self._count * layout.MARK_SIZE) // 8
