"""Compares checksums over blocks of ops between the members of a group, as they arrive.

A block costs a few look-ups. It is dropped when all members agree on it or on a larger one, or
when newer blocks need its place. Ranks send blocks of different sizes; small ones are added up to
larger ones that other ranks sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_probe.consistency.checksums import MODULUS, SIZES, UNKNOWN, added, unpacked
from frtop_probe.consistency.signatures import RULE
from frtop_tui.job.groups import Identifier, identifier, members_of
from frtop_tui.job.model import DivergenceHint
from frtop_tui.job.naming import JobKey, job_key
from frtop_tui.job.record import RankRecord

HINT_NS: Final = 30_000_000_000
"""How long a hint is valid: its ops have been requested and judged by then."""
MAX_HINTS: Final = 32
MAX_HINTS_PER_GROUP: Final = 4
"""Once a rank is out of step, all its blocks differ: the first ones show where that began."""
MAX_SETTLED: Final = 256
MAX_JOBS: Final = 16
MAX_GROUPS: Final = 16_384
MAX_BLOCKS_PER_MESSAGE: Final = 4096
_MAX_BLOCKS: Final = 1024
_MIN_BLOCKS: Final = 64
"""Per group: room for everything that a rank sends about it at once."""
_WORDS: Final = 2**22
"""Memory for the blocks of a job, in words, while some members have not reported: with more groups
and members, each gets fewer blocks."""
_BLOCK_WORDS: Final = 64
"""Per block, in addition to one per rank that reported it."""
_Sums = tuple[int, int, int, int]
"""First op, size, sum, sum over pairs."""


@dataclass(slots=True, eq=False)
class _Block:
    """One block: the ranks that reported each sum."""

    sides: dict[int, list[int]] = field(default_factory=dict)
    reports: int = 0
    pairs: int = 0
    noticed: bool = False


@dataclass(slots=True)
class _PartialBlock:
    """The beginning of a larger block, added up from smaller ones of one rank."""

    first: int = 0
    next: int = 0
    sum: int = 0
    pairs: int = 0


class _Member:
    """One rank in one group: the last op that it reported, and the blocks being added up."""

    __slots__ = ("parts", "reported")

    def __init__(self) -> None:
        self.reported = 0
        self.parts = tuple(_PartialBlock() for _ in SIZES[1:])

    def larger(self, sums: _Sums) -> Iterator[_Sums]:
        """Yields the larger blocks that this one completes."""
        first, size, total, pairs = sums
        for part, target in zip(self.parts, SIZES[1:], strict=True):
            if target <= size:
                continue
            begin = (first - 1) // target * target + 1
            if first == begin:
                part.first, part.sum, part.pairs = begin, 0, 0
            elif part.first != begin or part.next != first:
                part.next = -1
                continue
            part.next = first + size
            part.sum += total
            part.pairs = added((part.pairs, pairs))
            if part.next == begin + target:
                yield begin, target, part.sum % MODULUS, part.pairs


@dataclass(slots=True, eq=False)
class _Divergence:
    """A growing divergence. `hint` has been handed out, and is valid until more arrives."""

    id: int
    first: int
    last: int
    block: _Block
    since_ns: int
    pairs: bool
    ops: dict[int, tuple[wire.Op, ...]] = field(default_factory=dict)
    hint: DivergenceHint | None = None
    hint_reports: int = 0


class _Group:
    """All checksums of one group."""

    def __init__(self, group: wire.Group) -> None:
        self.group = group
        self.members = len(members_of(group.ranks))
        self.divergences: list[_Divergence] = []
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._max_blocks = _MAX_BLOCKS
        self._new_blocks = 0
        """Since those that can have no more reports were dropped."""
        self._reporting: dict[int, _Member] = {}
        self._settled: list[tuple[int, int]] = []
        """Op ranges that already have a hint: larger blocks of the same ops add nothing."""

    def add(
        self, rank: int, sums: wire.BlockSums, max_blocks: int
    ) -> list[tuple[int, int, _Block]]:
        """Takes in checksums; yields the blocks that now differ: first op, size, block."""
        self._max_blocks = max_blocks
        member = self._reporting.get(rank)
        if member is None:
            member = self._reporting[rank] = _Member()
        size, first = sums.size, sums.first
        pairs = unpacked(sums.pairs[: 4 * MAX_BLOCKS_PER_MESSAGE])
        differing: list[tuple[int, int, _Block]] = []
        for index, total in enumerate(unpacked(sums.sums[: 4 * MAX_BLOCKS_PER_MESSAGE])):
            last = first + size - 1
            if last > member.reported:
                own_pairs = pairs[index] if index < len(pairs) else 0
                self._add_block(rank, (first, size, total, own_pairs), differing)
                if first > member.reported:
                    for larger in member.larger((first, size, total, own_pairs)):
                        self._add_block(rank, larger, differing)
                member.reported = last
            first = last + 1
        return differing

    def forget(self, rank: int) -> bool:
        """Forgets a member; returns whether none is left."""
        self._reporting.pop(rank, None)
        return not self._reporting

    def _add_block(self, rank: int, sums: _Sums, differing: list[tuple[int, int, _Block]]) -> None:
        first, size, total, pairs = sums
        block = self._blocks.get((first, size))
        if block is None:
            self._new_blocks += 1
            if self._new_blocks > max(_MIN_BLOCKS, len(self._blocks)):
                self._drop_passed()
            while len(self._blocks) >= self._max_blocks:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[first, size] = _Block()
        side = block.sides.get(total)
        if side is None:
            block.sides[total] = [rank]
        else:
            side.append(rank)
        block.reports += 1
        if pairs:
            block.pairs = added((block.pairs, pairs))
        complete = block.reports == self.members
        if complete:
            del self._blocks[first, size]
        differs = len(block.sides) > 1
        if not block.noticed and (differs or (complete and block.pairs not in (0, UNKNOWN))):
            block.noticed = True
            differing.append((first, size, block))

    def _drop_passed(self) -> None:
        """Drops blocks that all members have passed: some reported those ops in other sizes."""
        self._new_blocks = 0
        if len(self._reporting) == self.members:
            passed = min(member.reported for member in self._reporting.values())
            for one in [one for one in self._blocks if sum(one) - 1 <= passed]:
                del self._blocks[one]

    def accept(self, divergence: _Divergence) -> bool:
        """Adds a new divergence if there is room; returns whether it did."""
        first, last = divergence.first, divergence.last
        if len(self.divergences) >= MAX_HINTS_PER_GROUP:
            return False
        if any(a <= last and first <= b for a, b in self._settled):
            return False
        self.divergences.append(divergence)
        self._settled.append((first, last))
        del self._settled[:-MAX_SETTLED]
        return True


class ChecksumComparisons:
    """Checksums of all jobs: several jobs may have the same group."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, JobChecksums] = {}
        self._ids = itertools.count(1)

    def retain(self, jobs: Iterable[JobKey]) -> None:
        """Holds the checksums of the first `MAX_JOBS` jobs, and drops all others."""
        first = itertools.islice(dict.fromkeys(jobs), MAX_JOBS)
        self._jobs = {key: self._jobs.get(key) or JobChecksums(self._ids) for key in first}

    def add(self, record: RankRecord, sums: Iterable[wire.BlockSums], now_ns: int) -> None:
        rank = record.identity.rank
        if rank < 0:
            return
        key = job_key(record.identity.job)
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= MAX_JOBS:
                return
            job = self._jobs[key] = JobChecksums(self._ids)
        job.add(rank, record.latest.groups, sums, now_ns)

    def forget(self, record: RankRecord, groups: Iterable[wire.Group]) -> None:
        """Forgets groups that a rank has destroyed."""
        job = self._jobs.get(job_key(record.identity.job))
        if job is not None:
            job.forget(record.identity.rank, groups)

    def add_ops(self, hint: int, record: RankRecord, ops: tuple[wire.Op, ...]) -> None:
        """Takes in the ops that we asked a rank for; empty if it no longer had them."""
        job = self._jobs.get(job_key(record.identity.job))
        if job is not None:
            job.add_ops(hint, record.identity.rank, ops)

    def hints(self, job: JobKey, now_ns: int) -> tuple[DivergenceHint, ...]:
        """Hints of the last `HINT_NS`, the oldest first."""
        checksums = self._jobs.get(job)
        return checksums.hints(now_ns) if checksums is not None else ()


class JobChecksums:
    """Checksums of one job; `ids` numbers its hints."""

    def __init__(self, ids: Iterator[int] | None = None) -> None:
        self._groups: dict[tuple[Identifier, int], _Group] = {}
        self._words = 0
        self._max_blocks = _MAX_BLOCKS
        self._ids = itertools.count(1) if ids is None else ids
        self._open: list[tuple[_Group, _Divergence]] = []

    def add(
        self,
        rank: int,
        groups: Mapping[int, wire.Group],
        sums: Iterable[wire.BlockSums],
        now_ns: int,
    ) -> None:
        """Takes in checksums of one rank; ignores invalid ones."""
        for one in sums:
            group = groups.get(one.group)
            if group is None or not group.exact or one.size not in SIZES or one.first < 1:
                continue
            if (one.first - 1) % one.size:
                continue
            known = self._group(group, one.rule)
            if known is None:
                continue
            for first, size, block in known.add(rank, one, self._max_blocks):
                self._hint(known, first, first + size - 1, block, now_ns)

    def forget(self, rank: int, groups: Iterable[wire.Group]) -> None:
        """Forgets groups that a rank has destroyed, once all members that reported have."""
        for group in groups:
            known = self._groups.get(key := (identifier(group), RULE))
            if known is not None and known.forget(rank):
                del self._groups[key]
                self._words -= _BLOCK_WORDS + known.members
                self._open = [one for one in self._open if one[0] is not known]

    def add_ops(self, hint: int, rank: int, ops: tuple[wire.Op, ...]) -> None:
        for _, divergence in self._open:
            if divergence.id == hint:
                divergence.ops[rank] = ops
                divergence.hint = None

    def hints(self, now_ns: int) -> tuple[DivergenceHint, ...]:
        """Hints of the last `HINT_NS`, the oldest first."""
        if not self._open:
            return ()
        for known, divergence in self._open:
            if now_ns - divergence.since_ns > HINT_NS:
                known.divergences.remove(divergence)
        self._open = [(known, one) for known, one in self._open if one in known.divergences]
        return tuple(_hint_of(known, divergence) for known, divergence in self._open)

    def _group(self, group: wire.Group, rule: int) -> _Group | None:
        key = identifier(group), rule
        known = self._groups.get(key)
        if known is None:
            if len(self._groups) >= MAX_GROUPS or not members_of(group.ranks):
                return None
            known = self._groups[key] = _Group(group)
            self._words += _BLOCK_WORDS + known.members
            self._max_blocks = max(_MIN_BLOCKS, min(_MAX_BLOCKS, _WORDS // self._words))
        return known

    def _hint(self, known: _Group, first: int, last: int, block: _Block, now_ns: int) -> None:
        if len(self._open) >= MAX_HINTS:
            return
        pairs = len(block.sides) == 1
        divergence = _Divergence(next(self._ids), first, last, block, now_ns, pairs)
        if known.accept(divergence):
            self._open.append((known, divergence))


def _hint_of(known: _Group, divergence: _Divergence) -> DivergenceHint:
    block = divergence.block
    if divergence.hint is None or divergence.hint_reports != block.reports:
        sides = sorted(
            (tuple(sorted(side)) for side in block.sides.values()),
            key=lambda side: (-len(side), side),
        )
        divergence.hint_reports = block.reports
        divergence.hint = DivergenceHint(
            divergence.id,
            known.group,
            divergence.first,
            divergence.last,
            tuple(sides),
            divergence.since_ns,
            divergence.pairs,
            block.reports >= known.members,
            dict(divergence.ops),
        )
    return divergence.hint
