"""The ops of one group in one rank, in a row: cut into blocks of which the sums are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_probe.consistency.checksums import MODULUS, SIZES, UNKNOWN, added, packed, weight
from frtop_probe.consistency.signatures import RULE

MOST_KEPT: Final = 48
"""Blocks that are told to whoever asks for the state; the older ones in the largest size."""
MOST_EARLY: Final = 256
"""More ops behind a gap than threads that overtake each other explain: it will stay."""
_PATIENCE: Final = 2
"""Ticks for which an op may be missing: another thread may still be writing it down."""


class Block(NamedTuple):
    """`size` ops of a group from number `first` on. `pairs` may be `sums.UNKNOWN`."""

    first: int
    size: int
    sum: int
    pairs: int


class Run:
    """What came since the last blocks, without a gap, and the last blocks themselves.

    `append` takes what op number `end` counts for; whoever calls it moves `end` on.
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
        "kept",
        "start",
    )

    def __init__(self, group: int, number: int) -> None:
        self.group = group
        self.start = self.end = number
        self.exact = False
        self.entry: object = None
        self.kept: list[Block] = []
        self._sums: list[int] = []
        self.append = self._sums.append
        self._pairs: dict[int, int] = {}
        self._early: dict[int, tuple[int, int]] = {}
        self._ready: list[Block] = []
        self._seen = number
        self._waited = 0

    def take(self, number: int, count: int, pairs: int) -> None:
        """Any op, also one that is out of order; `append` is for the common case."""
        if number >= self.end:
            self._early[number] = count, pairs
            self._catch_up()
            if len(self._early) > MOST_EARLY:
                self._jump(min(self._early))

    def skip(self, number: int) -> None:
        """An op of which not all is known: no block has it."""
        if number >= self.end:
            self._jump(number + 1)

    def cut(self) -> list[Block]:
        """The blocks to be told now: the more ops since the last time, the larger."""
        self._catch_up()
        quiet = self.end == self._seen
        self._seen = self.end
        if self._early:
            self._waited += 1
            if self._waited > _PATIENCE:
                self._waited = 0
                self._jump(min(self._early))
        else:
            self._waited = 0
        blocks = self._ready
        self._ready = []
        if self._sums:
            blocks += self._cut(to_the_end=quiet)
        for block in blocks:
            self._keep(block)
        return blocks

    @property
    def waiting(self) -> bool:
        """Whether there is anything to cut."""
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

    def _jump(self, number: int) -> None:
        """Goes on behind a gap; what was before it is cut as it is."""
        self._ready += self._cut(to_the_end=True)
        del self._ready[:-MOST_KEPT]
        self.start = self.end = number
        self._early = {n: found for n, found in self._early.items() if n >= number}
        self._catch_up()

    def _cut(self, *, to_the_end: bool) -> list[Block]:
        made = []
        sums, at, left = self._sums, 0, len(self._sums)
        usual = max(size for size in SIZES if size <= max(1, left))
        while left:
            size = _fitting(self.start, usual)
            if size > left:
                if not to_the_end:
                    break
                size = _fitting(self.start, left)
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

    def _keep(self, block: Block) -> None:
        kept = self.kept
        kept.append(block)
        factor = SIZES[1] // SIZES[0]
        while len(kept) >= factor and (size := kept[-1].size) < SIZES[-1]:
            last = kept[-factor:]
            first = last[0].first
            if (
                any(one.size != size for one in last)
                or last[-1].first != first + size * (factor - 1)
                or (first - 1) % (size * factor)
            ):
                break
            total, pairs = sum(one.sum for one in last), added([one.pairs for one in last])
            whole = Block(first, size * factor, total % MODULUS, pairs)
            kept[-factor:] = [whole]
        del kept[:-MOST_KEPT]


def _fitting(first: int, most: int) -> int:
    """The largest block that may begin there."""
    return max(size for size in SIZES if size <= most and (first - 1) % size == 0)


def told(group: int, blocks: Iterable[Block]) -> list[wire.BlockSums]:
    """Blocks in the words of the wire: those of one size in a row are one message."""
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
            RULE,
        )
        for row in rows
    ]
