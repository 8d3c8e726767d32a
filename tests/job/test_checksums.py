"""Checksums of a group's members, compared as they arrive."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.agent.checksum_blocks import MAX_RECENT, BlockBuilder, encode_blocks
from frtop_probe.consistency.checksums import MODULUS, UNKNOWN, packed, weight
from frtop_tui.job.checksums import (
    HINT_NS,
    MAX_HINTS_PER_GROUP,
    MAX_JOBS,
    ChecksumComparisons,
    JobChecksums,
)
from frtop_tui.job.clock import HostClock
from frtop_tui.job.naming import JobKey, job_key
from frtop_tui.job.record import RankRecord

GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-3")
GROUPS = {1: GROUP}
Program = Callable[[int], int]


def usual(number: int) -> int:
    return 1000 + number % 7


class Rank:
    """Issues ops and reports them as an agent does."""

    def __init__(self, program: Program = usual, pairs: int = 0) -> None:
        self._program = program
        self._pairs = pairs
        self.run = BlockBuilder(1, 1)

    def report(self, ops: int) -> list[wire.BlockSums]:
        for number in range(self.run.end, self.run.end + ops):
            self.run.add(number, self._program(number) * weight(number), self._pairs)
        return encode_blocks(1, self.run.cut())


def hear(
    checksums: JobChecksums, rank: int, blocks: Iterable[wire.BlockSums], now_ns: int = 0
) -> None:
    checksums.add(rank, GROUPS, blocks, now_ns)


def odd_at(number: int) -> Program:
    return lambda n: 5 if n == number else usual(n)


cuts = st.lists(st.integers(1, 700), min_size=1, max_size=4)


def play(checksums: JobChecksums, ranks: Sequence[Rank], chunks: Sequence[Sequence[int]]) -> None:
    """All ranks issue the same number of ops, each in its own ticks, then none."""
    ops = max(map(sum, chunks))
    for turn in range(max(map(len, chunks))):
        for number, (rank, mine) in enumerate(zip(ranks, chunks, strict=True)):
            if turn < len(mine):
                hear(checksums, number, rank.report(mine[turn]))
    for number, rank in enumerate(ranks):
        hear(checksums, number, rank.report(ops + 1 - rank.run.end))
        hear(checksums, number, rank.report(0))


@given(st.lists(cuts, min_size=4, max_size=4))
def test_equal_ops_never_give_a_hint(chunks: list[list[int]]) -> None:
    checksums = JobChecksums()
    play(checksums, [Rank() for _ in range(4)], chunks)
    assert checksums.hints(0) == ()


@given(st.lists(cuts, min_size=4, max_size=4), st.data())
def test_one_different_op_gives_a_hint_with_its_rank_as_the_minority(
    chunks: list[list[int]], data: st.DataObject
) -> None:
    ops = max(map(sum, chunks)) // 512 * 512  # an incomplete block at the end is not comparable
    if not ops:
        return
    odd = data.draw(st.integers(1, ops))
    checksums = JobChecksums()
    play(checksums, [Rank(odd_at(odd) if n == 2 else usual) for n in range(4)], chunks)
    (hint,) = checksums.hints(0)
    assert hint.first <= odd <= hint.last
    assert {2} in map(set, hint.sides)


def test_all_sides_are_known_when_all_members_reported() -> None:
    checksums = JobChecksums()
    hear(checksums, 0, Rank().report(3))
    hear(checksums, 2, Rank(odd_at(2)).report(3))
    (early,) = checksums.hints(0)
    assert (early.first, early.last, early.complete) == (2, 2, False)
    for rank in (1, 3):
        hear(checksums, rank, Rank().report(3))
    (hint,) = checksums.hints(0)
    assert (hint.id, hint.complete) == (early.id, True)
    assert hint.sides == ((0, 1, 3), (2,))


def test_a_hint_lasts_for_a_while_and_is_the_same_object_until_it_changes() -> None:
    checksums = JobChecksums()
    hear(checksums, 0, Rank().report(3), 5)
    hear(checksums, 2, Rank(odd_at(2)).report(3), 5)
    before = checksums.hints(6)
    assert checksums.hints(HINT_NS) == before
    assert checksums.hints(HINT_NS)[0] is before[0]
    checksums.add_ops(before[0].id, 2, ())
    assert checksums.hints(HINT_NS)[0].ops == {2: ()}
    assert checksums.hints(HINT_NS + 6) == ()


def test_a_full_state_that_repeats_blocks_changes_nothing() -> None:
    checksums, rank, other = JobChecksums(), Rank(), Rank(odd_at(9))
    hear(checksums, 0, rank.report(70))
    hear(checksums, 0, encode_blocks(1, rank.run.recent))
    hear(checksums, 0, encode_blocks(1, rank.run.recent))
    hear(checksums, 1, other.report(70))
    (hint,) = checksums.hints(0)
    assert hint.sides == ((0,), (1,))


def test_after_a_gap_the_full_state_brings_the_missed_blocks() -> None:
    checksums, rank = JobChecksums(), Rank()
    hear(checksums, 0, rank.report(20))
    rank.report(900)
    rank.report(0)
    hear(checksums, 0, encode_blocks(1, rank.run.recent))
    other = Rank(odd_at(600))
    hear(checksums, 1, other.report(920))
    hear(checksums, 1, other.report(0))
    (hint,) = checksums.hints(0)
    assert hint.first <= 600 <= hint.last


def test_a_rank_out_of_step_gives_a_few_hints_only() -> None:
    checksums = JobChecksums()
    shifted = Rank(lambda n: usual(n + 1))
    one = Rank()
    for _ in range(50):
        hear(checksums, 0, one.report(64))
        hear(checksums, 1, shifted.report(64))
    assert len(checksums.hints(0)) == MAX_HINTS_PER_GROUP
    assert checksums.hints(0)[0].first == 1


@pytest.mark.parametrize(("pairs", "noticed"), [((3, MODULUS - 3), False), ((3, 5), True),
                                                ((3, UNKNOWN), False)])  # fmt: skip
def test_pairs_have_to_add_up_over_all_members(pairs: tuple[int, int], noticed: bool) -> None:
    checksums = JobChecksums()
    group = {1: wire.Group(1, "0", "", "gloo", "0-1")}
    for rank, mine in enumerate(pairs):
        assert checksums.hints(0) == ()
        checksums.add(rank, group, Rank(pairs=mine).report(64), 0)
    found = checksums.hints(0)
    assert bool(found) is noticed
    assert all(one.pairs and one.sides == ((0, 1),) for one in found)


def test_sums_of_other_rules_other_groups_and_relative_numbers_are_not_compared() -> None:
    checksums = JobChecksums()
    (one,) = Rank().report(64)
    (other,) = Rank(odd_at(2)).report(64)
    hear(checksums, 0, [one])
    hear(checksums, 1, [wire.BlockSums(1, other.first, 64, other.sums, b"", 2)])
    checksums.add(1, {1: wire.Group(1, "0", "", "gloo", "0-3", epoch=1)}, [other], 0)
    checksums.add(1, {1: wire.Group(1, "0", "", "gloo", "0-3", exact=False)}, [other], 0)
    checksums.add(1, {}, [other], 0)
    assert checksums.hints(0) == ()


class Jobs:
    """Jobs of two ranks each, with one op that differs."""

    def __init__(self) -> None:
        self.checksums = ChecksumComparisons()

    def report(self, job: int, rank: int, ops: int = 64) -> JobKey:
        said = wire.Job("node0", 29500 + job, 2, "run", 0, "n")
        identity = wire.Identity(7, 1, rank, rank, said)
        record = RankRecord("node0", HostClock(), 1, identity)
        record.apply(wire.RankUpdate(1, groups=tuple(GROUPS.values())), 0)
        self.checksums.add(record, Rank(odd_at(2) if rank else usual).report(ops), 0)
        return job_key(said)

    def with_hints(self, *jobs: JobKey) -> list[JobKey]:
        return [job for job in jobs if self.checksums.hints(job, 0)]


def test_jobs_do_not_mix() -> None:
    jobs = Jobs()
    assert jobs.with_hints(jobs.report(0, 0), jobs.report(1, 1)) == []


def test_jobs_beyond_the_limit_do_not_replace_each_other() -> None:
    jobs = Jobs()
    keys = [jobs.report(job, 0) for job in range(MAX_JOBS + 2)]
    for job in range(MAX_JOBS + 2):
        jobs.report(job, 1)
    assert jobs.with_hints(*keys) == keys[:MAX_JOBS]


def test_the_first_jobs_are_compared_and_ended_ones_make_room() -> None:
    jobs = Jobs()
    keys = [jobs.report(job, 0) for job in range(MAX_JOBS)]
    last = job_key(wire.Job("node0", 29500 + MAX_JOBS, 2, "run", 0, "n"))
    for known in ([last, *keys, last], [keys[3], last]):
        jobs.checksums.retain(known)
        for rank in (0, 1):
            jobs.report(MAX_JOBS, rank)
        assert jobs.with_hints(last)
    jobs.report(3, 1)
    assert jobs.with_hints(*keys) == [keys[3]]


def test_no_hint_gets_an_id_twice() -> None:
    jobs = Jobs()
    ids = []
    for _ in range(3):
        for job in (0, 1):
            key = jobs.report(job, 0)
            jobs.report(job, 1)
            ids += [one.id for one in jobs.checksums.hints(key, 0)]
        jobs.checksums.retain([])
    assert len(set(ids)) == len(ids) == 6


@given(st.lists(st.builds(
    wire.BlockSums,
    st.integers(0, 2), st.integers(-5, 2**64 - 1), st.sampled_from([-1, 0, 1, 8, 9, 512, 2**63]),
    st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 2),
)))  # fmt: skip
def test_invalid_blocks_are_ignored(blocks: list[wire.BlockSums]) -> None:
    checksums = JobChecksums()
    for rank in (0, 1, -7, 10**9):
        hear(checksums, rank, blocks)
    checksums.hints(0)


def test_a_silent_member_does_not_make_memory_grow() -> None:
    checksums = JobChecksums()
    ranks = [Rank() for _ in range(3)]
    for _ in range(400):
        for number, rank in enumerate(ranks):
            hear(checksums, number, rank.report(3))
    ((_, group),) = checksums._groups.items()
    assert len(group._blocks) <= 1024


@pytest.mark.parametrize("seed", range(5))
def test_few_blocks_stay_of_ops_that_all_members_have_passed(seed: int) -> None:
    """Some reports are lost, so that members report the same ops in other sizes."""
    chance = random.Random(seed)
    checksums, ranks = JobChecksums(), [Rank() for _ in range(4)]
    for _ in range(200):
        chunks = [chance.randint(1, 90) for _ in ranks]
        end = max(rank.run.end + ops for rank, ops in zip(ranks, chunks, strict=True))
        for number, (rank, ops) in enumerate(zip(ranks, chunks, strict=True)):
            blocks = [*rank.report(ops), *rank.report(end - rank.run.end)]
            hear(checksums, number, blocks if chance.random() < 0.8 else [])
    for _ in range(100):
        for number, rank in enumerate(ranks):
            hear(checksums, number, rank.report(10))
    ((_, group),) = checksums._groups.items()
    assert len(group._blocks) < 150


def test_memory_for_a_job_does_not_grow_with_its_groups() -> None:
    checksums = JobChecksums()
    for turn in range(4):
        blocks = [wire.BlockSums(1, 1 + turn * 100, 1, packed(range(100)), b"")]
        for number in range(512):
            checksums.add(0, {1: wire.Group(1, str(number), "tp", "gloo", "0-7")}, blocks, 0)
    counts = [len(group._blocks) for group in checksums._groups.values()]
    assert sum(counts) < 512 * 200
    assert min(counts) >= MAX_RECENT  # what a rank sends at once always finds room


def test_a_group_that_all_members_have_destroyed_begins_anew() -> None:
    checksums = JobChecksums()
    hear(checksums, 0, Rank(odd_at(3)).report(8))
    checksums.forget(0, [GROUP])
    hear(checksums, 1, Rank().report(8))
    assert checksums.hints(0) == ()
    hear(checksums, 0, Rank(odd_at(3)).report(8))
    assert len(checksums.hints(0)) == 1
    for rank in (0, 1):
        checksums.forget(rank, [GROUP])
    assert checksums.hints(0) == ()
