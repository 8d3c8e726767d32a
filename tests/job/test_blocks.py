"""What members of a group told of their ops, compared as it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frtop_probe import wire
from frtop_probe.agent.block_builder import MAX_RECENT, BlockBuilder, encode_blocks
from frtop_probe.sums import MODULUS, UNKNOWN, packed, weight
from frtop_tui.job.blocks import KEPT_NS, MOST_IN_GROUP, MOST_JOBS, Ledger, Ledgers
from frtop_tui.job.clock import HostClock
from frtop_tui.job.naming import JobKey, job_key
from frtop_tui.job.record import RankRecord

GROUP = wire.Group(1, "0", "default_pg", "gloo", "0-3")
GROUPS = {1: GROUP}
Program = Callable[[int], int]


def usual(number: int) -> int:
    return 1000 + number % 7


class Rank:
    """Issues ops and tells them as an agent would."""

    def __init__(self, program: Program = usual, pairs: int = 0) -> None:
        self._program = program
        self._pairs = pairs
        self.run = BlockBuilder(1, 1)

    def tell(self, ops: int) -> list[wire.BlockSums]:
        for number in range(self.run.end, self.run.end + ops):
            self.run.add(number, self._program(number) * weight(number), self._pairs)
        return encode_blocks(1, self.run.cut())


def hear(ledger: Ledger, rank: int, blocks: Iterable[wire.BlockSums], now_ns: int = 0) -> None:
    ledger.take(rank, GROUPS, blocks, now_ns)


def odd_at(number: int) -> Program:
    return lambda n: 5 if n == number else usual(n)


cuts = st.lists(st.integers(1, 700), min_size=1, max_size=4)


def play(ledger: Ledger, ranks: Sequence[Rank], chunks: Sequence[Sequence[int]]) -> None:
    """All ranks issue as many ops in the end, in ticks of their own; then all is quiet."""
    ops = max(map(sum, chunks))
    for turn in range(max(map(len, chunks))):
        for number, (rank, mine) in enumerate(zip(ranks, chunks, strict=True)):
            if turn < len(mine):
                hear(ledger, number, rank.tell(mine[turn]))
    for number, rank in enumerate(ranks):
        hear(ledger, number, rank.tell(ops + 1 - rank.run.end))
        hear(ledger, number, rank.tell(0))


@settings(max_examples=40, deadline=None)
@given(st.lists(cuts, min_size=4, max_size=4))
def test_the_same_ops_never_part(chunks: list[list[int]]) -> None:
    ledger = Ledger()
    play(ledger, [Rank() for _ in range(4)], chunks)
    assert ledger.partings(0) == ()


@settings(max_examples=40, deadline=None)
@given(st.lists(cuts, min_size=4, max_size=4), st.data())
def test_one_odd_op_is_noticed_and_its_rank_is_the_minority(
    chunks: list[list[int]], data: st.DataObject
) -> None:
    ops = max(map(sum, chunks)) // 512 * 512  # what is left open at the end is not told alike
    if not ops:
        return
    odd = data.draw(st.integers(1, ops))
    ledger = Ledger()
    play(ledger, [Rank(odd_at(odd) if n == 2 else usual) for n in range(4)], chunks)
    (parting,) = ledger.partings(0)
    assert parting.first <= odd <= parting.last
    assert {2} in map(set, parting.sides)


def test_all_sides_are_known_once_all_have_told() -> None:
    ledger = Ledger()
    hear(ledger, 0, Rank().tell(3))
    hear(ledger, 2, Rank(odd_at(2)).tell(3))
    (early,) = ledger.partings(0)
    assert (early.first, early.last, early.complete) == (2, 2, False)
    for rank in (1, 3):
        hear(ledger, rank, Rank().tell(3))
    (parting,) = ledger.partings(0)
    assert (parting.id, parting.complete) == (early.id, True)
    assert parting.sides == ((0, 1, 3), (2,))


def test_it_is_shown_for_a_while_and_is_the_same_until_something_comes() -> None:
    ledger = Ledger()
    hear(ledger, 0, Rank().tell(3), 5)
    hear(ledger, 2, Rank(odd_at(2)).tell(3), 5)
    before = ledger.partings(6)
    assert ledger.partings(KEPT_NS) == before
    assert ledger.partings(KEPT_NS)[0] is before[0]
    ledger.tell(before[0].id, 2, ())
    assert ledger.partings(KEPT_NS)[0].ops == {2: ()}
    assert ledger.partings(KEPT_NS + 6) == ()


def test_a_full_state_repeats_what_is_known() -> None:
    ledger, rank, other = Ledger(), Rank(), Rank(odd_at(9))
    hear(ledger, 0, rank.tell(70))
    hear(ledger, 0, encode_blocks(1, rank.run.recent))
    hear(ledger, 0, encode_blocks(1, rank.run.recent))
    hear(ledger, 1, other.tell(70))
    (parting,) = ledger.partings(0)
    assert parting.sides == ((0,), (1,))


def test_after_a_gap_the_full_state_tells_what_was_missed() -> None:
    ledger, rank = Ledger(), Rank()
    hear(ledger, 0, rank.tell(20))
    rank.tell(900)
    rank.tell(0)
    hear(ledger, 0, encode_blocks(1, rank.run.recent))
    other = Rank(odd_at(600))
    hear(ledger, 1, other.tell(920))
    hear(ledger, 1, other.tell(0))
    (parting,) = ledger.partings(0)
    assert parting.first <= 600 <= parting.last


def test_who_is_out_of_step_is_noticed_a_few_times_only() -> None:
    ledger = Ledger()
    shifted = Rank(lambda n: usual(n + 1))
    one = Rank()
    for _ in range(50):
        hear(ledger, 0, one.tell(64))
        hear(ledger, 1, shifted.tell(64))
    assert len(ledger.partings(0)) == MOST_IN_GROUP
    assert ledger.partings(0)[0].first == 1


@pytest.mark.parametrize(("pairs", "noticed"), [((3, MODULUS - 3), False), ((3, 5), True),
                                                ((3, UNKNOWN), False)])  # fmt: skip
def test_pairs_have_to_add_up_over_all_members(pairs: tuple[int, int], noticed: bool) -> None:
    ledger = Ledger()
    group = {1: wire.Group(1, "0", "", "gloo", "0-1")}
    for rank, mine in enumerate(pairs):
        assert ledger.partings(0) == ()
        ledger.take(rank, group, Rank(pairs=mine).tell(64), 0)
    found = ledger.partings(0)
    assert bool(found) is noticed
    assert all(one.pairs and one.sides == ((0, 1),) for one in found)


def test_sums_of_other_rules_other_groups_and_relative_numbers_are_not_compared() -> None:
    ledger = Ledger()
    (one,) = Rank().tell(64)
    (other,) = Rank(odd_at(2)).tell(64)
    hear(ledger, 0, [one])
    hear(ledger, 1, [wire.BlockSums(1, other.first, 64, other.sums, b"", 2)])
    ledger.take(1, {1: wire.Group(1, "0", "", "gloo", "0-3", epoch=1)}, [other], 0)
    ledger.take(1, {1: wire.Group(1, "0", "", "gloo", "0-3", exact=False)}, [other], 0)
    ledger.take(1, {}, [other], 0)
    assert ledger.partings(0) == ()


class Jobs:
    """Jobs of two ranks each that all issue other ops in one place."""

    def __init__(self) -> None:
        self.ledgers = Ledgers()

    def tell(self, job: int, rank: int, ops: int = 64) -> JobKey:
        said = wire.Job("node0", 29500 + job, 2, "run", 0, "n")
        identity = wire.Identity(7, 1, rank, rank, said)
        record = RankRecord("node0", HostClock(), 1, identity, groups=GROUPS)
        self.ledgers.take(record, Rank(odd_at(2) if rank else usual).tell(ops), 0)
        return job_key(said)

    def parted(self, *jobs: JobKey) -> list[JobKey]:
        return [job for job in jobs if self.ledgers.partings(job, 0)]


def test_jobs_do_not_mix() -> None:
    jobs = Jobs()
    assert jobs.parted(jobs.tell(0, 0), jobs.tell(1, 1)) == []


def test_more_jobs_than_are_compared_do_not_throw_each_other_out() -> None:
    jobs = Jobs()
    keys = [jobs.tell(job, 0) for job in range(MOST_JOBS + 2)]
    for job in range(MOST_JOBS + 2):
        jobs.tell(job, 1)
    assert jobs.parted(*keys) == keys[:MOST_JOBS]


def test_the_first_jobs_are_compared_and_those_that_are_gone_make_room() -> None:
    jobs = Jobs()
    keys = [jobs.tell(job, 0) for job in range(MOST_JOBS)]
    last = job_key(wire.Job("node0", 29500 + MOST_JOBS, 2, "run", 0, "n"))
    for known in ([last, *keys, last], [keys[3], last]):
        jobs.ledgers.keep(known)
        for rank in (0, 1):
            jobs.tell(MOST_JOBS, rank)
        assert jobs.parted(last)
    jobs.tell(3, 1)
    assert jobs.parted(*keys) == [keys[3]]


def test_no_parting_has_the_id_of_one_before() -> None:
    jobs = Jobs()
    ids = []
    for _ in range(3):
        for job in (0, 1):
            key = jobs.tell(job, 0)
            jobs.tell(job, 1)
            ids += [one.id for one in jobs.ledgers.partings(key, 0)]
        jobs.ledgers.keep([])
    assert len(set(ids)) == len(ids) == 6


@settings(max_examples=100, deadline=None)
@given(st.lists(st.builds(
    wire.BlockSums,
    st.integers(0, 2), st.integers(-5, 2**64 - 1), st.sampled_from([-1, 0, 1, 8, 9, 512, 2**63]),
    st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 2),
)))  # fmt: skip
def test_nonsense_is_left_out(blocks: list[wire.BlockSums]) -> None:
    ledger = Ledger()
    for rank in (0, 1, -7, 10**9):
        hear(ledger, rank, blocks)
    ledger.partings(0)


def test_a_member_that_is_not_heard_does_not_make_it_grow() -> None:
    ledger = Ledger()
    ranks = [Rank() for _ in range(3)]
    for _ in range(400):
        for number, rank in enumerate(ranks):
            hear(ledger, number, rank.tell(3))
    ((_, group),) = ledger._groups.items()
    assert len(group._blocks) <= 1024


def test_what_is_kept_of_a_job_does_not_grow_with_its_groups() -> None:
    ledger = Ledger()
    for turn in range(4):
        blocks = [wire.BlockSums(1, 1 + turn * 100, 1, packed(range(100)), b"")]
        for number in range(512):
            ledger.take(0, {1: wire.Group(1, str(number), "tp", "gloo", "0-7")}, blocks, 0)
    kept = [len(group._blocks) for group in ledger._groups.values()]
    assert sum(kept) < 512 * 200
    assert min(kept) >= MAX_RECENT  # what a rank tells at once finds room in any case


def test_sixteen_thousand_ranks_are_compared_as_they_tell() -> None:
    world = 16_384
    groups = {1: wire.Group(1, "0", "", "nccl", f"0-{world - 1}")}
    tick = [
        wire.BlockSums(1, 1 + 512 * n, 64, packed(range(8 * n, 8 * n + 8)), b"") for n in range(4)
    ]
    ledger = Ledger()
    spent = 0.0
    for told_now in tick:
        odd = wire.BlockSums(1, told_now.first, 64, packed([9] * 8), b"")
        begin = time.process_time()
        for rank in range(world):
            last = rank == 9_999 and told_now is tick[-1]
            ledger.take(rank, groups, (odd if last else told_now,), 0)
        spent += time.process_time() - begin
    print(f"\n{world:,} ranks at 1,000 ops/s: {spent / 4:.3f} s of CPU for each tick of 0.5 s")
    partings = ledger.partings(0)
    assert partings
    assert all(set(one.sides[1]) == {9_999} for one in partings)
