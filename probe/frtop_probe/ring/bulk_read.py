"""Reads many slots of a ring at once, column by column: ten times as fast as slot by slot.

Torn slots are found as in `reader`: all tails are read first, then bodies, then heads. A slot
is complete when both ends hold the expected sequence number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from frtop_probe.ring import layout
from frtop_probe.ring.layout import Event, Flag
from frtop_probe.ring.reader import Ring

Words = tuple[int, int, int, int, int, int]
"""One slot: sequence number at its end, issue time in ns, number in its group, group and
signature ids, flags with reduce op and event, sequence number at its start."""

_CHUNK: Final = 512
_WIDTH: Final = layout.SLOT_SIZE // 8
_ORDER: Final = (10, 1, 3, 5, 7, 0)
"""Positions of these words in a slot, in the order in which they must be read."""
_PAIR: Final = struct.Struct("=II")
_STATE: Final = struct.Struct("=BBHI")
_WORD: Final = struct.Struct("=q")


def words(ring: Ring, first: int, last: int) -> Iterator[Words]:
    """Yields the slots of events `first` to `last` in order, whatever they hold."""
    slots, size = ring.slot_words, ring.shape.slots
    while first <= last:
        begin = first % size
        count = min(last - first + 1, size - begin, _CHUNK)
        at, end = begin * _WIDTH, (begin + count - 1) * _WIDTH + 1
        yield from zip(
            *(slots[at + word : end + word : _WIDTH].tolist() for word in _ORDER), strict=True
        )
        first += count


def pair_of(word: int) -> tuple[int, int]:
    """Returns group id and signature id."""
    group, signature = _PAIR.unpack(_WORD.pack(word))
    return group, signature


def is_collective(word: int) -> bool:
    """Returns whether the word with flags and event is that of an op counted in its group."""
    flags, _, event, _ = _STATE.unpack(_WORD.pack(word))
    return event == Event.OP and not flags & Flag.P2P


def reduce_of(word: int) -> str | None:
    """Returns the name of the reduce op; None where it is unknown or the op has none."""
    _, reduce, _, _ = _STATE.unpack(_WORD.pack(word))
    return layout.REDUCE_OPS[reduce] if reduce < len(layout.REDUCE_OPS) else "other"
