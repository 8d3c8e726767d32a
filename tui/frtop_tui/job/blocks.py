"""Sums over blocks of ops, compared between the members of a group as they arrive.

Cost follows what arrives: a block is a few look-ups, one that all members have told alike is
dropped at once, and the others are dropped when newer ones need their place. Ranks tell blocks
of different sizes; small ones are added up until there is one that others have, too.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_probe.consistency.checksums import MODULUS, SIZES, UNKNOWN, added, unpacked
from frtop_tui.job.groups import Identifier, members_of
from frtop_tui.job.naming import JobKey, job_key
from frtop_tui.job.parting import Parting
from frtop_tui.job.record import RankRecord

KEPT_NS: Final = 30_000_000_000
"""So long a parting is shown: by then its ops have been asked for, and judged."""
MOST_PARTINGS: Final = 32
MOST_IN_GROUP: Final = 4
"""Who is out of step differs in every block: the first ones tell where that began."""
MOST_JOBS: Final = 16
MOST_GROUPS: Final = 16_384
MOST_TOLD: Final = 4096
_MOST_BLOCKS: Final = 1024
_FEWEST_BLOCKS: Final = 64
"""Of one group: what a rank tells of it at once finds room in any case."""
_WORDS: Final = 2**22
"""What the blocks of a job may take, in words, while not all members are heard: the more
groups and members there are, the fewer blocks are kept of each."""
_BLOCK_WORDS: Final = 64
"""Of a block, beside one for each rank that has told."""
_Told = tuple[int, int, int, int]
"""First op, size, sum, sum over pairs."""


@dataclass(slots=True, eq=False)
class _Block:
    """What was told of one block: the ranks by sum."""

    sides: dict[int, list[int]] = field(default_factory=dict)
    told: int = 0
    pairs: int = 0
    noticed: bool = False


@dataclass(slots=True)
class _Part:
    """A larger block, as far as one rank's smaller ones add up to it from its beginning."""

    first: int = 0
    next: int = 0
    sum: int = 0
    pairs: int = 0


class _Teller:
    """One rank in one group: up to which op it has told, and what is being added up."""

    __slots__ = ("heard", "parts")

    def __init__(self) -> None:
        self.heard = 0
        self.parts = tuple(_Part() for _ in SIZES[1:])

    def larger(self, told: _Told) -> Iterator[_Told]:
        """The larger blocks that this one completes."""
        first, size, total, pairs = told
        for part, whole in zip(self.parts, SIZES[1:], strict=True):
            if whole <= size:
                continue
            begin = (first - 1) // whole * whole + 1
            if first == begin:
                part.first, part.sum, part.pairs = begin, 0, 0
            elif part.first != begin or part.next != first:
                part.next = -1
                continue
            part.next = first + size
            part.sum += total
            part.pairs = added((part.pairs, pairs))
            if part.next == begin + whole:
                yield begin, whole, part.sum % MODULUS, part.pairs


@dataclass(slots=True, eq=False)
class _Noticed:
    """A parting as it grows. `shown` is what was handed out, for as long as nothing came."""

    id: int
    first: int
    last: int
    block: _Block
    since_ns: int
    pairs: bool
    ops: dict[int, tuple[wire.Op, ...]] = field(default_factory=dict)
    shown: Parting | None = None
    shown_told: int = 0


class _Group:
    """All that was told of one group."""

    def __init__(self, group: wire.Group) -> None:
        self.group = group
        self.members = len(members_of(group.ranks))
        self.noticed: list[_Noticed] = []
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._most = _MOST_BLOCKS
        self._tellers: dict[int, _Teller] = {}
        self._settled: deque[tuple[int, int]] = deque(maxlen=256)
        """Where it was noticed: larger blocks with the same ops are no news."""

    def take(self, rank: int, told: wire.BlockSums, most: int) -> list[tuple[int, int, _Block]]:
        """Gives blocks that are worth a notice: first op, size, block.

        Args:
            rank: who told.
            told: what it told.
            most: so many blocks may be kept.
        """
        self._most = most
        teller = self._tellers.get(rank)
        if teller is None:
            teller = self._tellers[rank] = _Teller()
        size, first = told.size, told.first
        pairs = unpacked(told.pairs[: 4 * MOST_TOLD])
        odd: list[tuple[int, int, _Block]] = []
        for index, total in enumerate(unpacked(told.sums[: 4 * MOST_TOLD])):
            last = first + size - 1
            if last > teller.heard:
                mine = pairs[index] if index < len(pairs) else 0
                self._note(rank, (first, size, total, mine), odd)
                if first > teller.heard:
                    for larger in teller.larger((first, size, total, mine)):
                        self._note(rank, larger, odd)
                teller.heard = last
            first = last + 1
        return odd

    def _note(self, rank: int, told: _Told, odd: list[tuple[int, int, _Block]]) -> None:
        first, size, total, pairs = told
        block = self._blocks.get((first, size))
        if block is None:
            while len(self._blocks) >= self._most:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[first, size] = _Block()
        side = block.sides.get(total)
        if side is None:
            block.sides[total] = [rank]
        else:
            side.append(rank)
        block.told += 1
        if pairs:
            block.pairs = added((block.pairs, pairs))
        complete = block.told == self.members
        if complete:
            del self._blocks[first, size]
        differs = len(block.sides) > 1
        if not block.noticed and (differs or (complete and block.pairs not in (0, UNKNOWN))):
            block.noticed = True
            odd.append((first, size, block))

    def notice(self, noticed: _Noticed) -> bool:
        """Whether it is news, and one that there is room for."""
        first, last = noticed.first, noticed.last
        if len(self.noticed) >= MOST_IN_GROUP:
            return False
        if any(a <= last and first <= b for a, b in self._settled):
            return False
        self.noticed.append(noticed)
        self._settled.append((first, last))
        return True


class Ledgers:
    """The blocks of all jobs: the same group may be in several."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, Ledger] = {}
        self._ids = itertools.count(1)

    def keep(self, jobs: Iterable[JobKey]) -> None:
        """Has room for the first of `jobs`, and lets go of all others."""
        first = itertools.islice(dict.fromkeys(jobs), MOST_JOBS)
        self._jobs = {key: self._jobs.get(key) or Ledger(self._ids) for key in first}

    def take(self, record: RankRecord, told: Iterable[wire.BlockSums], now_ns: int) -> None:
        """What one rank said."""
        rank = record.identity.rank
        if rank < 0:
            return
        key = job_key(record.identity.job)
        ledger = self._jobs.get(key)
        if ledger is None:
            if len(self._jobs) >= MOST_JOBS:
                return
            ledger = self._jobs[key] = Ledger(self._ids)
        ledger.take(rank, record.groups, told, now_ns)

    def tell(self, parting: int, record: RankRecord, ops: tuple[wire.Op, ...]) -> None:
        """The ops of a rank that was asked for them; none if it has them no more."""
        ledger = self._jobs.get(job_key(record.identity.job))
        if ledger is not None:
            ledger.tell(parting, record.identity.rank, ops)

    def partings(self, job: JobKey, now_ns: int) -> tuple[Parting, ...]:
        """Those of the last seconds, the oldest first."""
        ledger = self._jobs.get(job)
        return ledger.partings(now_ns) if ledger is not None else ()


class Ledger:
    """The blocks of one job. Its partings are numbered by `ids`."""

    def __init__(self, ids: Iterator[int] | None = None) -> None:
        self._groups: dict[tuple[Identifier, int], _Group] = {}
        self._words = 0
        self._most = _MOST_BLOCKS
        self._ids = itertools.count(1) if ids is None else ids
        self._open: list[tuple[_Group, _Noticed]] = []

    def take(
        self,
        rank: int,
        groups: Mapping[int, wire.Group],
        told: Iterable[wire.BlockSums],
        now_ns: int,
    ) -> None:
        """What one rank said. What makes no sense is left out."""
        for one in told:
            group = groups.get(one.group)
            if group is None or not group.exact or one.size not in SIZES or one.first < 1:
                continue
            if (one.first - 1) % one.size:
                continue
            known = self._group(group, one.rule)
            if known is None:
                continue
            for first, size, block in known.take(rank, one, self._most):
                self._notice(known, first, first + size - 1, block, now_ns)

    def tell(self, parting: int, rank: int, ops: tuple[wire.Op, ...]) -> None:
        """The ops of a rank that was asked for them."""
        for _, noticed in self._open:
            if noticed.id == parting:
                noticed.ops[rank] = ops
                noticed.shown = None

    def partings(self, now_ns: int) -> tuple[Parting, ...]:
        """Those of the last seconds, the oldest first."""
        if not self._open:
            return ()
        for known, noticed in self._open:
            if now_ns - noticed.since_ns > KEPT_NS:
                known.noticed.remove(noticed)
        self._open = [(known, one) for known, one in self._open if one in known.noticed]
        return tuple(_shown(known, noticed) for known, noticed in self._open)

    def _group(self, group: wire.Group, rule: int) -> _Group | None:
        key = (group.name, group.ranks, group.epoch), rule
        known = self._groups.get(key)
        if known is None:
            if len(self._groups) >= MOST_GROUPS or not members_of(group.ranks):
                return None
            known = self._groups[key] = _Group(group)
            self._words += _BLOCK_WORDS + known.members
            self._most = max(_FEWEST_BLOCKS, min(_MOST_BLOCKS, _WORDS // self._words))
        return known

    def _notice(self, known: _Group, first: int, last: int, block: _Block, now_ns: int) -> None:
        if len(self._open) >= MOST_PARTINGS:
            return
        pairs = len(block.sides) == 1
        noticed = _Noticed(next(self._ids), first, last, block, now_ns, pairs)
        if known.notice(noticed):
            self._open.append((known, noticed))


def _shown(known: _Group, noticed: _Noticed) -> Parting:
    block = noticed.block
    if noticed.shown is None or noticed.shown_told != block.told:
        sides = sorted(
            (tuple(sorted(side)) for side in block.sides.values()),
            key=lambda side: (-len(side), side),
        )
        noticed.shown_told = block.told
        noticed.shown = Parting(
            noticed.id,
            known.group,
            noticed.first,
            noticed.last,
            tuple(sides),
            noticed.since_ns,
            noticed.pairs,
            block.told >= known.members,
            dict(noticed.ops),
        )
    return noticed.shown
