"""Sends sums over blocks of a rank's ops instead of the ops, for every group with exact numbers.

Sends and receives are counted instead, by peer and tag. Every op of a rank passes here, so slots
are read in bulk, and an op's value is looked up by its signature. An op whose reduce op is not
decoded yet is waited for up to `GRACE_NS`.
"""

from __future__ import annotations

from typing import Final

from frtop_probe import wire
from frtop_probe.agent.block_builder import BlockBuilder, encode_blocks
from frtop_probe.agent.ring_view import RingView
from frtop_probe.consistency.checksums import WEIGHTS, signature_digest, splits_digest
from frtop_probe.consistency.signatures import SPLIT
from frtop_probe.ring import bulk_read, layout
from frtop_probe.ring.layout import LONGEST, Flag, StatusCell
from frtop_probe.ring.reader import OpKey

GRACE_NS: Final = 2_000_000_000
"""After this time an op is taken as it is: what is unknown by then stays unknown."""
MAX_MESSAGES: Final = 48
"""Messages per tick. Groups beyond it are sent in larger blocks a tick later."""
AT_ONCE: Final = 16_384
"""Ops of a rank in one tick, some 50 ms of a core: a new agent finds longer rings full."""
_TORN: Final = 4
"""Ticks for which a slot may be unwritten: a thread may be stopped while it writes."""

MAX_CHANNELS: Final = 1024

_Meaning = tuple[BlockBuilder | None, int, int]
"""Where an op belongs (None: nowhere), its value, and its share in the sum over pairs. Of a send or
receive the value is the place of its channel, plus 1."""
_Channel = tuple[int, bool, int | None, int | None]
"""Of messages that are counted together: group, whether they are sent, peer, tag."""
_SKIPPED: Final[_Meaning] = (None, 0, 0)
_UNKNOWN: Final = -1
_Words = tuple[int, int, int, int]
"""Group and form, party, sizes, and the number of the reduce op."""
_REDUCE: Final = 8 * (layout.SLOT_REDUCE - layout.SLOT_BODY.size)
"""Where the reduce op is in the word with the checksum."""
_MESSAGE: Final = 8 * (layout.SLOT_MESSAGE - layout.SLOT_BODY.size)
_MAX_KNOWN: Final = 4096
"""Most ops whose meaning is kept: with varying shapes each op has another one."""


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
        """Values of ops that are no longer waited for; others with these keys may become known."""
        self._channels: dict[_Channel, int] = {}
        self._messages: list[int] = []
        """By place of its channel, the number of the last message."""

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
            # groups left out come first next time
            self._builders[builder.group] = self._builders.pop(builder.group)
        return tuple(made)

    def recent(self) -> tuple[wire.BlockSums, ...]:
        """The most recent blocks sent, of every group."""
        builders = (builder for builder in self._builders.values() if self._exact(builder))
        return tuple(
            one for builder in builders for one in encode_blocks(builder.group, builder.recent)
        )

    def messages(self) -> tuple[wire.Messages, ...] | None:
        """What was sent and received; None while there are ops that were not read yet."""
        ring = self._ring
        if self._next <= ring.cell(StatusCell.HEAD):
            return None
        counts: dict[int, list[wire.MessageCount]] = {}
        for channel, place in self._channels.items():
            group, send, peer, tag = channel
            if number := self._messages[place - 1]:
                one = wire.MessageCount(send, peer, tag, number)
                counts.setdefault(group, []).append(one)
        found = []
        for row in ring.group_rows():
            if row.p2p:
                mine = tuple(counts.get(row.group, ()))
                missing = (row.p2p - sum(one.number for one in mine)) % layout.MESSAGES
                found.append(wire.Messages(row.group, row.p2p, not missing, mine))
        return tuple(found)

    def _read(self, now_ns: int) -> None:
        ring = self._ring
        head = ring.cell(StatusCell.HEAD)
        expected = max(self._next, ring.oldest(head))
        overtaken = head - ring.shape.slots // 2  # the ring overwrites these soon: do not wait
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
                messages[counts - 1] = state >> _MESSAGE & layout.MESSAGES
            expected += 1
        self._next = expected

    def _new_meaning(self, words: _Words, number: int, *, late: bool) -> _Meaning | None:
        """The meaning of an op seen for the first time; None while it is waited for."""
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
        """Whether an unwritten slot is no longer waited for."""
        self._torn = self._torn + 1 if sequence == self._next else 1
        if self._torn <= _TORN:
            return False
        self._torn = 0
        return True

    def _meaning(self, words: _Words, number: int) -> _Meaning:
        """The meaning of an op, as far as it is known by now."""
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
            return _SKIPPED  # its sizes, which the tag is one of, were overwritten
        channel = key.group, signature.kind == "send", signature.peer, tag
        place = self._channels.get(channel)
        if place is None:
            if len(self._channels) >= MAX_CHANNELS:
                return _SKIPPED
            place = self._channels[channel] = len(self._channels) + 1
            self._messages.append(0)
        meaning: _Meaning = None, place, 0
        _keep(self._known, words, meaning)
        return meaning

    def _pairs(self, signature: wire.Signature, group: int) -> int:
        """The value of an op's splits. Only splits need the members, and there may be thousands."""
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
