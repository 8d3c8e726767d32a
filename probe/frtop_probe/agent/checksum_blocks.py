"""Sends checksums over blocks of a rank's ops instead of the ops, for groups with exact numbers.

Sends and receives are counted instead, by peer and tag. Every op of a rank passes through here, so
`BlockReader` reads slots in bulk, and looks up an op's value by its signature. It waits up to
`GRACE_NS` until a reduce op is decoded. `BlockBuilder` cuts the ops of one group into blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_probe.agent.ring_view import RingView
from frtop_probe.consistency.checksums import (
    MODULUS,
    SIZES,
    UNKNOWN,
    WEIGHTS,
    added,
    packed,
    signature_digest,
    splits_digest,
    weight,
)
from frtop_probe.consistency.signatures import RULE, SPLIT
from frtop_probe.ring import bulk_read, layout
from frtop_probe.ring.layout import LONGEST, Flag, StatusCell
from frtop_probe.ring.reader import OpKey

GRACE_NS: Final = 2_000_000_000
"""After this time an op is taken as is: its unknown fields stay unknown."""
MAX_MESSAGES: Final = 48
"""Messages per tick. Further groups are sent in larger blocks one tick later."""
AT_ONCE: Final = 16_384
"""Ops of a rank per tick, about 50 ms of a core: a new agent finds longer rings full."""
_TORN: Final = 4
"""Ticks for which a slot may stay unwritten: a thread may be stopped while it writes."""

MAX_CHANNELS: Final = 1024

_Meaning = tuple["BlockBuilder | None", int, int]
"""An op's block (None if it has none), its value, and its share in the sum over pairs. The
value of a send or receive is the place of its channel."""
_Channel = tuple[int, bool, int | None, int | None]
"""Messages that are counted together: group, whether sent, peer, tag."""
_SKIPPED: Final[_Meaning] = (None, 0, 0)
_UNKNOWN: Final = -1
_Words = tuple[int, int, int, int]
"""Group and form, party, sizes, and the number of the reduce op."""
_GROUP: Final = 2**32 - 1
"""Where the group is in the word with the form."""
_REDUCE: Final = 8 * (layout.SLOT_REDUCE - layout.SLOT_BODY.size)
"""Where the reduce op is in the word with the checksum."""
_MESSAGE: Final = 8 * (layout.SLOT_MESSAGE - layout.SLOT_BODY.size)
_MAX_KNOWN: Final = 4096
"""Most ops whose meaning is kept: if shapes vary, each op has its own."""
MAX_RECENT: Final = 48
"""Most blocks in the full state; older ones have the largest size."""
MAX_EARLY: Final = 256
"""Most ops after a gap: threads that overtake each other leave fewer; with more, the gap stays."""
_MAX_WAIT: Final = 2
"""Ticks for which an op may be missing: another thread may still be writing it."""


class BlockReader:
    """Reads the ops of one ring."""

    def __init__(self, view: RingView) -> None:
        self._view = view
        self._ring = view.ring
        self._next = 1
        self._torn = 0
        self._builders: dict[int, BlockBuilder] = {}
        self._known: dict[_Words, _Meaning] = {}
        self._given_up_values: dict[_Words, _Meaning] = {}
        """Values of ops that were given up on; later ops with these keys may become known."""
        self._channels: dict[_Channel, int] = {}
        self._messages: dict[int, int] = {}
        """Number of the last message, by the place of its channel."""
        self._places = itertools.count(1)

    def fresh(self, now_ns: int) -> tuple[wire.BlockSums, ...]:
        """Blocks of the ops issued since the last call, as far as they can be read."""
        self._read(now_ns)
        made: list[wire.BlockSums] = []
        for builder in list(self._builders.values()):
            if not builder.waiting:
                continue
            if len(made) >= MAX_MESSAGES:
                break
            blocks = builder.cut()
            if self._exact(builder):
                made += encode_blocks(builder.group, blocks)
            # groups left out now come first next time
            self._builders[builder.group] = self._builders.pop(builder.group)
        return tuple(made)

    def recent(self) -> tuple[wire.BlockSums, ...]:
        """The most recent blocks sent, of every group."""
        builders = (builder for builder in self._builders.values() if self._exact(builder))
        return tuple(
            one for builder in builders for one in encode_blocks(builder.group, builder.recent)
        )

    def messages(self) -> tuple[wire.Messages, ...] | None:
        """The messages sent and received; None while some ops have not been read."""
        ring = self._ring
        if self._next <= ring.cell(StatusCell.HEAD):
            return None
        counts: dict[int, list[wire.MessageCount]] = {}
        for channel, place in self._channels.items():
            group, send, peer, tag = channel
            if number := self._messages[place]:
                one = wire.MessageCount(send, peer, tag, number)
                counts.setdefault(group, []).append(one)
        found = []
        for row in self._view.group_rows():
            if row.p2p and not ring.is_dropped(row.group):
                mine = tuple(counts.get(row.group, ()))
                missing = (row.p2p - sum(one.number for one in mine)) % layout.MESSAGES
                found.append(wire.Messages(row.group, row.p2p, not missing, mine))
        return tuple(found)

    def forget(self, groups: Collection[int]) -> None:
        """Forgets groups that were dropped."""
        for group in groups:
            self._builders.pop(group, None)
        for channel in [one for one in self._channels if one[0] in groups]:
            del self._messages[self._channels.pop(channel)]
        for known in (self._known, self._given_up_values):
            for words in [one for one in known if one[0] & _GROUP in groups]:
                del known[words]

    def _read(self, now_ns: int) -> None:
        ring = self._ring
        head = ring.cell(StatusCell.HEAD)
        expected = max(self._next, ring.oldest(head))
        overtaken = head - ring.shape.slots // 2  # soon overwritten: do not wait
        known, weights, count, messages = self._known, WEIGHTS, len(WEIGHTS), self._messages
        rows = bulk_read.words(ring, expected, min(head, expected + AT_ONCE - 1))
        for sequence, issued_ns, number, what, party, sizes, state, right in rows:
            if sequence != expected or not right or not 0 <= number < LONGEST:
                if sequence <= expected and not self._is_overdue(expected):
                    break
                expected += 1
                continue
            words = (what, party, sizes, state >> _REDUCE & 255)
            meaning = known.get(words)
            if meaning is None:
                late = expected < overtaken or now_ns - issued_ns > GRACE_NS
                meaning = self._new_meaning(words, number, late=late)
                if meaning is None:
                    break
            builder, counts, pairs = meaning
            if builder is not None:
                if counts == _UNKNOWN:
                    builder.skip(number)
                elif number == builder.end and not pairs:
                    builder.append(counts * weights[number % count])
                    builder.end = number + 1
                else:
                    builder.add(number, counts * weights[number % count], pairs)
            elif counts > 0:
                messages[counts] = state >> _MESSAGE & layout.MESSAGES
            expected += 1
        self._next = expected

    def _new_meaning(self, words: _Words, number: int, *, late: bool) -> _Meaning | None:
        """The meaning of an op seen for the first time; None to wait for it."""
        if late and words in self._given_up_values:
            return self._given_up_values[words]
        meaning = self._meaning(words, number)
        if meaning[1] == _UNKNOWN:
            if not late:
                return None
            if meaning[0] is not None:
                _keep(self._given_up_values, words, meaning)
        return meaning

    def _is_overdue(self, sequence: int) -> bool:
        """Whether to stop waiting for an unwritten slot."""
        self._torn = self._torn + 1 if sequence == self._next else 1
        if self._torn <= _TORN:
            return False
        self._torn = 0
        return True

    def _meaning(self, words: _Words, number: int) -> _Meaning:
        """The meaning of an op, as far as it is known."""
        what, party, sizes, reduce = words
        key = bulk_read.key_of(what, party, sizes)
        if not key.group:
            _keep(self._known, words, _SKIPPED)
            return _SKIPPED
        group = self._view.group(key.group)
        if group is None:
            return None, _UNKNOWN, 0
        if not bulk_read.is_collective(party):
            return self._message(words, key, party)
        builder = self._builders.get(key.group)
        if builder is None:
            builder = self._builders[key.group] = BlockBuilder(key.group, number)
        signature = self._view.signature(key, bulk_read.reduce_of(reduce))
        if signature is None:
            return builder, _UNKNOWN, 0
        counts = signature_digest(signature, group.backend)
        if counts is None:
            return builder, _UNKNOWN, 0
        meaning = builder, counts, self._pairs(signature, key.group)
        _keep(self._known, words, meaning)
        return meaning

    def _message(self, words: _Words, key: OpKey, party: int) -> _Meaning:
        """The place of the channel of a send or receive."""
        signature = self._view.signature(key, None)
        if signature is None:
            return None, _UNKNOWN, 0
        _, flags = bulk_read.event_and_flags(party >> 32 & 2**32 - 1)
        tag = None if flags & Flag.DEVICE else signature.tag
        if tag is None and not flags & Flag.DEVICE:
            return _SKIPPED  # its sizes and its tag were overwritten
        channel = key.group, signature.kind == "send", signature.peer, tag
        place = self._channels.get(channel)
        if place is None:
            if len(self._channels) >= MAX_CHANNELS:
                return _SKIPPED
            place = self._channels[channel] = next(self._places)
            self._messages[place] = 0
        meaning: _Meaning = None, place, 0
        _keep(self._known, words, meaning)
        return meaning

    def _pairs(self, signature: wire.Signature, group: int) -> int:
        """The value of an op's splits, which alone need the members (there may be thousands)."""
        if signature.kind not in SPLIT:
            return 0
        members = self._view.members(group)
        rank = self._ring.cell(StatusCell.RANK)
        place = members.index(rank) if rank in members else -1
        return splits_digest(signature, place, len(members))

    def _exact(self, builder: BlockBuilder) -> bool:
        entry = self._ring.groups.get(builder.group)
        if entry is not builder.entry:
            builder.entry = entry
            group = self._view.group(builder.group)
            builder.exact = group is not None and group.exact
        return builder.exact


def _keep(among: dict[_Words, _Meaning], words: _Words, meaning: _Meaning) -> None:
    if len(among) >= _MAX_KNOWN:
        among.clear()
    among[words] = meaning


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

    __slots__ = ("_early", "_pairs", "_ready", "_seen", "_sums", "_waited", "append", "end",
                 "entry", "exact", "group", "recent", "start")  # fmt: skip

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
        """Adds any op, even out of order; `append` is for the common case."""
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
        """Returns the blocks to send now: the more ops have arrived, the larger the blocks."""
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
        """Continues after a gap; cuts what came before it as it is."""
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
