"""The ops of one rank by field: 64 ranks with 8,192 ops each are drawn without an object per op.

All times are of the rank's host. Lists of integers are searched at the speed of C; an `Op` is made
only of the one that is described. `column_builder` makes and extends them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from operator import add, sub
from typing import Final

from frtop_probe import wire
from frtop_probe.ring.layout import Flag
from frtop_tui.features.timeline.intervals import PENDING_NS, Intervals
from frtop_tui.features.timeline.letters import letter_of

UNTRACKED: Final = int(Flag.UNTRACKED)
LATE: Final = int(Flag.LATE)
P2P: Final = int(Flag.P2P)
CALL: Final = 1 << 16
"""Flag of our own: a call that makes groups, which has no number."""
NO_END: Final = UNTRACKED | wire.UNTIMED
_ALONE: Final = P2P | CALL
_CHUNK: Final = 256
"""Ops that are put into an index together, once one of them is looked for."""
_NUMBERS: Final = 1 << 48
"""More than there are ops in a group."""


@dataclass(frozen=True)
class OpColumns:
    """Ops in the order in which they were issued.

    `took` is 0 while an op is pending, and negative when it failed. `known_from` is since when
    every op is here, `known_until` up to when. `reach` is the last end of any op up to that one.
    """

    sequence: Sequence[int] = ()
    group: Sequence[int] = ()
    number: Sequence[int] = ()
    signature: Sequence[int] = ()  # from 1, in `signatures`; 0: not known
    site: Sequence[int] = ()
    issued: Sequence[int] = ()
    took: Sequence[int] = ()
    flags: Sequence[int] = ()
    issuer: Sequence[int] = ()
    signatures: tuple[wire.Signature, ...] = ()
    sites: tuple[wire.Site, ...] = ()
    issuers: tuple[wire.Issuer, ...] = ()
    marks: tuple[wire.Mark, ...] = ()
    lost: int = 0
    note: str = ""
    known_from: int = 0
    known_until: int = 0
    end: Sequence[int] = field(default=(), repr=False)
    reach: Sequence[int] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.issued)

    @cached_property
    def letters(self) -> str:
        """A letter per entry of `signatures`, after one for an unknown signature."""
        return letter_of("") + "".join(letter_of(one.kind) for one in self.signatures)

    @cached_property
    def length(self) -> Sequence[int]:
        """How long each op is drawn, in ns."""
        return list(map(sub, self.end, self.issued))

    @cached_property
    def _chunks(self) -> dict[int, Mapping[int, int]]:
        """By number of the chunk, where its collectives are; made when they are looked up."""
        return {}

    def _positions(self, chunk: int) -> Mapping[int, int]:
        known = self._chunks.get(chunk)
        if known is None:
            here = slice(chunk * _CHUNK, (chunk + 1) * _CHUNK)
            # Integers as keys: tuples cost three times as much, and the garbage collector's time.
            keys = map(add, map(_NUMBERS.__mul__, self.group[here]), self.number[here])
            positions = range(here.start, min(here.stop, len(self)))
            flags = self.flags[here]
            if any(one & _ALONE for one in {*flags}):
                own = [not one & _ALONE for one in flags]
                found = dict(zip(compress(keys, own), compress(positions, own), strict=True))
            else:
                found = dict(zip(keys, positions, strict=True))
            known = self._chunks[chunk] = found
        return known

    @cached_property
    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """By the rank's own id of a group, the first and the last number of its collectives."""
        found: dict[int, tuple[int, int]] = {}
        for group in {*self.group}:
            wanted = map(group.__eq__, self.group)
            flags = compress(zip(self.number, self.flags, strict=True), wanted)
            numbers = [number for number, flag in flags if not flag & _ALONE and number > 0]
            if numbers:
                found[group] = min(numbers), max(numbers)
        return found

    def find(self, group: int, number: int, near_ns: int | None = None) -> int | None:
        """Where the collective `number` of a group is, by the rank's own id of it.

        Ranks issue one collective at about the same time: it is looked for around `near_ns` first.
        """
        key = group * _NUMBERS + number
        first = 0 if near_ns is None else bisect_left(self.issued, near_ns) // _CHUNK
        position = self._positions(first).get(key)
        if position is None and self._has(group, number):
            chunks = sorted(range(-(-len(self) // _CHUNK)), key=lambda chunk: abs(chunk - first))
            found = (self._positions(chunk).get(key) for chunk in chunks[1:])
            position = next((one for one in found if one is not None), None)
        return position if position is not None and self.number[position] == number else None

    def _has(self, group: int, number: int) -> bool:
        first, last = self.bounds.get(group, (1, 0))
        return first <= number <= last

    def is_numbered(self, position: int) -> bool:
        """Whether an op has a number that it shares with other ranks: no message, no call."""
        return self.number[position] > 0 and not self.flags[position] & _ALONE

    def letter(self, position: int) -> str:
        """What stands for an op in its lane."""
        return self.letters[self.signature[position]]

    def pending(self, position: int) -> bool:
        return self.end[position] == PENDING_NS

    def at_most(self, position: int) -> bool:
        """Whether an op may have ended before its end."""
        return bool(self.flags[position] & LATE)

    def end_known(self, position: int) -> bool:
        """Whether anybody knows when an op ended; it is pending where nothing is over."""
        flags, took = self.flags[position], self.took[position]
        return self.pending(position) or not (flags & NO_END or not took)

    def op(self, position: int) -> wire.Op:
        """One op as everything else reads it."""
        issued, took, flags = self.issued[position], self.took[position], self.flags[position]
        done = 0 if not took else issued + took if took > 0 else took - issued
        signature, site = self.signature[position], self.site[position]
        return wire.Op(
            self.sequence[position],
            self.group[position],
            self.number[position],
            self.signatures[signature - 1] if signature else None,
            self.sites[site - 1] if site else None,
            issued,
            done,
            sync=bool(flags & Flag.SYNC),
            p2p=bool(flags & P2P),
            pseudo=bool(flags & CALL),
            tracked=not flags & UNTRACKED,
            timed=not flags & wire.UNTIMED,
            late=bool(flags & LATE),
            on_device=bool(flags & Flag.DEVICE),
            issuer=self.issuer_at(position),
        )

    def issuer_at(self, position: int) -> wire.Issuer | None:
        """What issued an op; None where that is not recorded."""
        issuer = self.issuer[position]
        return self.issuers[issuer - 1] if issuer else None

    def at(self, positions: Sequence[int]) -> Intervals:
        """Some of the ops, to be drawn in a lane of their own."""
        issued = [self.issued[position] for position in positions]
        return Intervals(issued, [self.end[position] for position in positions])

    def known_to(self, until_ns: int) -> OpColumns:
        """The same, with nothing issued since."""
        return replace(self, known_until=max(self.known_until, until_ns))
