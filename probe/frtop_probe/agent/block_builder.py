"""Collects the ops of one group in one rank, and cuts them into blocks, whose sums are sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_probe.consistency.checksums import MODULUS, SIZES, UNKNOWN, added, packed, weight
from frtop_probe.consistency.signatures import RULE

MAX_RECENT: Final = 48
"""Blocks sent to whoever asks for the state; the older ones are in the largest size."""
MAX_EARLY: Final = 256
"""Ops after a gap: threads that overtake each other leave fewer, so the gap will stay."""
_MAX_WAIT: Final = 2
"""Ticks for which an op may be missing: another thread may still be writing it."""


class Block(NamedTuple):
    """`size` ops of a group, from number `first` on. `pairs` may be `checksums.UNKNOWN`."""

    first: int
    size: int
    sum: int
    pairs: int


class BlockBuilder:
    """Ops since the last block, without a gap, and the most recent blocks.

    `append` adds the value of op number `end`; the caller increments `end`.
    """

    __slots__ = (
        "_early",
        "_pairs",
        "_ready",
        "_seen",
        "_sums",
        "_waited",
        "append",
        "end",
        "entry",
        "exact",
        "group",
        "recent",
        "start",
    )

    def __init__(self, group: int, number: int) -> None:
        self.group = group
        self.start = self.end = number
        self.exact = False
        self.entry: object = None
        self.recent: list[Block] = []
        self._sums: list[int] = []
        self.append = self._sums.append
        self._pairs: dict[int, int] = {}
        self._early: dict[int, tuple[int, int]] = {}
        self._ready: list[Block] = []
        self._seen = number
        self._waited = 0

    def add(self, number: int, count: int, pairs: int) -> None:
        """Adds any op, also one out of order; `append` is for the common case."""
        if number >= self.end:
            self._early[number] = count, pairs
            self._catch_up()
            if len(self._early) > MAX_EARLY:
                self._skip_to(min(self._early))

    def skip(self, number: int) -> None:
        """Skips an op with an unknown value: no block contains it."""
        if number >= self.end:
            self._skip_to(number + 1)

    def cut(self) -> list[Block]:
        """Returns the blocks to send now: the more ops have come, the larger."""
        self._catch_up()
        quiet = self.end == self._seen
        self._seen = self.end
        if self._early:
            self._waited += 1
            if self._waited > _MAX_WAIT:
                self._waited = 0
                self._skip_to(min(self._early))
        else:
            self._waited = 0
        blocks = self._ready
        self._ready = []
        if self._sums:
            blocks += self._cut(everything=quiet)
        for block in blocks:
            self._remember(block)
        return blocks

    @property
    def waiting(self) -> bool:
        """Whether `cut` has anything to return."""
        return bool(self._sums or self._early or self._ready)

    def _catch_up(self) -> None:
        early = self._early
        while early and (found := early.pop(self.end, None)) is not None:
            count, pairs = found
            self.append(count)
            if pairs:
                known = pairs != UNKNOWN
                self._pairs[self.end] = pairs * weight(self.end) % MODULUS if known else UNKNOWN
            self.end += 1

    def _skip_to(self, number: int) -> None:
        """Continues after a gap; what came before it is cut as it is."""
        self._ready += self._cut(everything=True)
        del self._ready[:-MAX_RECENT]
        self.start = self.end = number
        self._early = {n: found for n, found in self._early.items() if n >= number}
        self._catch_up()

    def _cut(self, *, everything: bool) -> list[Block]:
        made = []
        sums, at, left = self._sums, 0, len(self._sums)
        preferred = max(size for size in SIZES if size <= max(1, left))
        while left:
            size = _largest_size(self.start, preferred)
            if size > left:
                if not everything:
                    break
                size = _largest_size(self.start, left)
            total = sum(sums[at : at + size]) % MODULUS
            made.append(Block(self.start, size, total, self._pairs_of(self.start, size)))
            self.start += size
            at += size
            left -= size
        del sums[:at]
        return made

    def _pairs_of(self, first: int, size: int) -> int:
        if not self._pairs:
            return 0
        return added([self._pairs.pop(number, 0) for number in range(first, first + size)])

    def _remember(self, block: Block) -> None:
        recent = self.recent
        recent.append(block)
        factor = SIZES[1] // SIZES[0]
        while len(recent) >= factor and (size := recent[-1].size) < SIZES[-1]:
            last = recent[-factor:]
            first = last[0].first
            if (
                any(one.size != size for one in last)
                or last[-1].first != first + size * (factor - 1)
                or (first - 1) % (size * factor)
            ):
                break
            total, pairs = sum(one.sum for one in last), added([one.pairs for one in last])
            recent[-factor:] = [Block(first, size * factor, total % MODULUS, pairs)]
        del recent[:-MAX_RECENT]


def _largest_size(first: int, most: int) -> int:
    """The largest block size that may begin at op `first`."""
    return max(size for size in SIZES if size <= most and (first - 1) % size == 0)


def encode_blocks(group: int, blocks: Iterable[Block], rule: int = RULE) -> list[wire.BlockSums]:
    """Converts blocks to wire messages: consecutive blocks of one size share a message."""
    rows: list[list[Block]] = []
    for block in blocks:
        last = rows[-1][-1] if rows else None
        if last is not None and (last.first + last.size, last.size) == (block.first, block.size):
            rows[-1].append(block)
        else:
            rows.append([block])
    return [
        wire.BlockSums(
            group,
            row[0].first,
            row[0].size,
            packed(block.sum for block in row),
            packed(block.pairs for block in row) if any(block.pairs for block in row) else b"",
            rule,
        )
        for row in rows
    ]
