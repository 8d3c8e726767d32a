"""Sums over blocks of a rank's ops, read from real rings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.ring_builder import RingBuilder
from frtop_probe import wire
from frtop_probe.agent import ring_view
from frtop_probe.agent.checksum_blocks import GRACE_NS, BlockBuilder, BlockReader
from frtop_probe.agent.histories import excerpt
from frtop_probe.agent.ring_view import RingView
from frtop_probe.consistency.checksums import (
    MODULUS,
    SIZES,
    UNKNOWN,
    signature_digest,
    unpacked,
    weight,
)
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Flag, Shape, Side
from frtop_probe.ring.reader import Ring
from history_rows import rows_of

SUM, MAX = 1, 5
SumsByBlock = dict[tuple[int, int], int]


class RankRing:
    """A rank's ring, and the blocks that an agent reads from it."""

    def __init__(self, folder: Path, rank: int = 0, shape: Shape = layout.SMALL) -> None:
        folder.mkdir(exist_ok=True)
        self.builder = RingBuilder(folder, rank=rank, shape=shape, start_ticks=rank + 1)
        self.builder.standard_tables()
        self.ring = Ring(self.builder.path)
        self.blocks = BlockReader(RingView(self.ring))
        self.received: list[wire.BlockSums] = []

    def tick(self, after_ns: int = 0) -> tuple[wire.BlockSums, ...]:
        self.ring.refresh()
        sent = self.blocks.fresh(time.monotonic_ns() + after_ns)
        self.received += sent
        return sent

    def issue(self, ops: int, **fields: Any) -> None:
        for _ in range(ops):
            self.reduce(self.builder.op(done=True, **fields))

    def reduce(self, sequence: int, code: int = SUM) -> None:
        """Writes the decoded reduce op, as the recorder's thread does after an op; 0 removes it."""
        at = self.builder._slot(sequence) + layout.SLOT_REDUCE
        self.builder.map[at] = code


@pytest.fixture
def rank_ring(tmp_path: Path) -> RankRing:
    return RankRing(tmp_path)


def sums_by_block(sent: Sequence[wire.BlockSums], group: int = 1) -> SumsByBlock:
    """The sums by (first op, size)."""
    found: SumsByBlock = {}
    for one in sent:
        if one.group == group:
            for index, value in enumerate(unpacked(one.sums)):
                found[one.first + index * one.size, one.size] = value
    return found


def covered(sent: Sequence[wire.BlockSums], group: int = 1) -> Iterator[int]:
    for first, size in sums_by_block(sent, group):
        yield from range(first, first + size)


def total_sum(sent: Sequence[wire.BlockSums], last: int) -> int:
    """The sum over ops 1 to `last`, in whatever blocks it was sent."""
    assert sorted(covered(sent)) == list(range(1, last + 1))
    return sum(sums_by_block(sent).values()) % MODULUS


def test_few_ops_are_sent_one_by_one_and_once(rank_ring: RankRing) -> None:
    rank_ring.issue(3)
    assert list(sums_by_block(rank_ring.tick())) == [(1, 1), (2, 1), (3, 1)]
    assert rank_ring.tick() == ()


def test_many_ops_are_sent_in_large_blocks(rank_ring: RankRing) -> None:
    rank_ring.issue(500)
    assert list(sums_by_block(rank_ring.tick())) == [(1 + 64 * n, 64) for n in range(7)]
    sent = rank_ring.tick()  # the rest, since no more ops came
    assert list(sums_by_block(sent)) == [(449 + 8 * n, 8) for n in range(6)] + [
        (497 + n, 1) for n in range(4)
    ]
    assert total_sum(rank_ring.received, 500)


def test_a_thousand_ops_per_second_take_a_hundred_bytes(rank_ring: RankRing) -> None:
    sizes = []
    for _ in range(20):
        rank_ring.issue(500)
        sent = rank_ring.tick()
        sizes.append(
            len(wire.encode(wire.Update("", "", 0, 0, 0, (wire.RankUpdate(1, blocks=sent),))))
        )
    assert max(sizes) < 100


@given(st.lists(st.integers(1, 700), max_size=6), st.lists(st.integers(1, 700), max_size=6))
def test_the_same_ops_have_the_same_sum_in_any_blocks(ours: list[int], theirs: list[int]) -> None:
    ops = min(sum(ours), sum(theirs))
    sums = []
    for chunks in (ours, theirs):
        builder_of_group, number, made = BlockBuilder(1, 1), 1, []
        for chunk in chunks:
            for _ in range(chunk):
                if number <= ops:
                    builder_of_group.add(number, (number % 7 + 1) * weight(number), 0)
                    number += 1
            made += builder_of_group.cut()
        made += builder_of_group.cut()
        assert [n for b in made for n in range(b.first, b.first + b.size)] == list(
            range(1, ops + 1)
        )
        assert all((b.first - 1) % b.size == 0 and b.size in SIZES for b in made)
        sums.append(sum(block.sum for block in made) % MODULUS)
    assert sums[0] == sums[1]


def test_a_different_op_changes_only_its_blocks_sum(tmp_path: Path) -> None:
    one, other = RankRing(tmp_path / "a"), RankRing(tmp_path / "b", 1)
    for rank_ring in (one, other):
        rank_ring.issue(300)
    other.reduce(200, MAX)
    ours, theirs = sums_by_block(one.tick()), sums_by_block(other.tick())
    assert [key for key in ours if ours[key] != theirs[key]] == [(193, 64)]


@pytest.mark.parametrize("program", ["XYYX", "XXYY", "XYXY"])
def test_another_order_gives_another_sum(tmp_path: Path, program: str) -> None:
    found = []
    for index, order in enumerate((program, program[::-1] if program != "XYYX" else "YXXY")):
        rank_ring = RankRing(tmp_path / str(index))
        rank_ring.builder.add_signature(2, "barrier")
        for letter in order * 16:
            rank_ring.issue(1, signature=1 if letter == "X" else 2)
        found.append(sums_by_block(rank_ring.tick()))
    assert found[0].keys() == found[1].keys()
    assert found[0] != found[1]


def test_an_op_waits_for_its_reduce_op_for_a_while(rank_ring: RankRing) -> None:
    rank_ring.issue(5)
    rank_ring.reduce(3, 0)
    assert list(covered(rank_ring.tick())) == [1, 2]
    rank_ring.reduce(3)
    assert list(covered(rank_ring.tick())) == [3, 4, 5]
    rank_ring.issue(3)
    rank_ring.reduce(6, 0)
    assert list(covered(rank_ring.tick())) == []
    assert list(covered(rank_ring.tick(GRACE_NS))) == [7, 8]


def test_unknown_ops_do_not_delay_a_fast_rank(rank_ring: RankRing) -> None:
    rank_ring.issue(10)
    rank_ring.reduce(3, 0)
    rank_ring.issue(layout.SMALL.slots // 2)
    rank_ring.tick()
    assert 4 in covered(rank_ring.received)


def test_signatures_may_come_later_than_ops(rank_ring: RankRing) -> None:
    rank_ring.issue(2, signature=9)
    assert rank_ring.tick() == ()
    rank_ring.builder.add_signature(9, "barrier")
    assert list(covered(rank_ring.tick())) == [1, 2]


def test_unknown_groups_are_not_remembered(rank_ring: RankRing) -> None:
    for group in range(2, 100):
        rank_ring.issue(2, group=group)
        assert rank_ring.tick(GRACE_NS * 2) == ()
    assert not rank_ring.blocks._builders
    assert not rank_ring.blocks._given_up_values
    rank_ring.builder.add_group(99, name="late")
    rank_ring.issue(3, group=99)
    assert sorted(sums_by_block(rank_ring.tick(), 99)) == [(3, 1), (4, 1), (5, 1)]


def test_sends_and_inexact_groups_are_not_sent(rank_ring: RankRing) -> None:
    rank_ring.builder.add_group(2)
    rank_ring.builder.add_entry(Side.GROUP, 3, {"name": "3", "ranks": "0-7", "exact": False})
    rank_ring.issue(4, group=3)
    rank_ring.builder.op(group=2, flags=Flag.P2P)
    rank_ring.issue(4)
    sent = rank_ring.tick()
    assert {one.group for one in sent} == {1}
    assert list(covered(sent)) == [1, 2, 3, 4]


def test_a_group_that_becomes_inexact_is_no_longer_sent(rank_ring: RankRing) -> None:
    rank_ring.issue(4)
    assert rank_ring.tick()
    rank_ring.builder.add_entry(Side.GROUP, 1, {"name": "0", "ranks": "0-7", "exact": False})
    rank_ring.issue(4)
    assert rank_ring.tick() == ()
    assert rank_ring.blocks.recent() == ()


def test_overwritten_ops_are_in_no_block(rank_ring: RankRing) -> None:
    slots = layout.SMALL.slots
    rank_ring.issue(20)
    rank_ring.tick()
    rank_ring.issue(3 * slots)
    for _ in range(5):
        rank_ring.tick()
    numbers = Counter(covered(rank_ring.received))
    assert set(numbers.values()) == {1}
    assert set(numbers) == {*range(1, 21), *range(21 + 2 * slots, 21 + 3 * slots)}


@pytest.mark.parametrize(("added", "sent"), [
    ((1, 3, 2, 4), [1, 2, 3, 4]),
    ((1, 2, 4, 5), [1, 2, 4, 5]),  # what is missing becomes a gap
])  # fmt: skip
def test_ops_are_sent_in_order(added: tuple[int, ...], sent: list[int]) -> None:
    builder_of_group = BlockBuilder(1, 1)
    for number in added:
        builder_of_group.add(number, number, 0)
    made = [block for _ in range(5) for block in builder_of_group.cut()]
    assert [block.first for block in made] == [block.sum for block in made] == sent


def test_an_unwritten_slot_delays_the_reader_only_for_some_ticks(rank_ring: RankRing) -> None:
    rank_ring.issue(6)
    at = rank_ring.builder._slot(4)
    valid = bytes(rank_ring.builder.map[at : at + layout.SLOT_SIZE])
    rank_ring.builder.map[at : at + layout.SLOT_SIZE] = bytes(layout.SLOT_SIZE)
    assert list(covered(rank_ring.tick())) == [1, 2, 3]
    assert rank_ring.tick() == ()
    rank_ring.builder.map[at : at + layout.SLOT_SIZE] = valid
    assert list(covered(rank_ring.tick())) == [4, 5, 6]
    rank_ring.issue(6)
    at = rank_ring.builder._slot(9)
    rank_ring.builder.map[at : at + layout.SLOT_SIZE] = bytes(layout.SLOT_SIZE)
    for _ in range(9):
        rank_ring.tick()
    assert sorted(covered(rank_ring.received)) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12]


def test_recent_blocks_are_merged_into_few(rank_ring: RankRing) -> None:
    for chunk in (3, 500, 200, 7, 400, 1, 1):
        rank_ring.issue(chunk)
        rank_ring.tick()
    rank_ring.tick()
    last = rank_ring.blocks.recent()
    assert sorted(covered(last)) == list(range(1, 1113))
    assert len(sums_by_block(last)) < 24
    assert total_sum(last, 1112) == total_sum(rank_ring.received, 1112)


def splits(rank_ring: RankRing, number: int, sent: list[int], taken: list[int]) -> None:
    size = [sum(sent)]
    rank_ring.builder.add_signature(
        number, "all_to_all_single", inputs=size, outputs=size, splits=(sent, taken)
    )


@pytest.mark.parametrize(("taken", "valid"), [([3, 2], True), ([4, 2], False)])
def test_sums_over_split_pairs_cancel_when_they_agree(
    tmp_path: Path, taken: list[int], valid: bool
) -> None:
    pairs: list[int] = []
    sums: list[bytes] = []
    for rank, (into, out) in enumerate([([1, 3], [1, 2]), ([2, 2], taken)]):
        rank_ring = RankRing(tmp_path / str(rank), rank)
        rank_ring.builder.add_group(2, "0-1")
        splits(rank_ring, 5, into, out)
        rank_ring.issue(1, group=2, signature=5)
        (sent,) = rank_ring.tick()
        pairs += unpacked(sent.pairs)
        sums.append(sent.sums)
    assert (sum(pairs) % MODULUS == 0) is valid
    assert UNKNOWN not in pairs
    assert sums[0] == sums[1]


def test_unknown_splits_give_an_unknown_sum(rank_ring: RankRing) -> None:
    splits(rank_ring, 5, [1, 2], [1, 2])  # splits for two members, in a group of eight
    rank_ring.issue(64, signature=5)
    (sent,) = rank_ring.tick()
    assert unpacked(sent.pairs) == (UNKNOWN,)


def test_only_splits_need_the_members(rank_ring: RankRing, monkeypatch: pytest.MonkeyPatch) -> None:
    unfolded: list[str] = []

    def unfold(ranks: str) -> tuple[int, ...]:
        unfolded.append(ranks)
        return (0, 1)

    monkeypatch.setattr(ring_view, "unfold", unfold)
    rank_ring.issue(3)
    assert list(covered(rank_ring.tick())) == [1, 2, 3]
    assert unfolded == []
    splits(rank_ring, 5, [1, 2], [1, 2])
    rank_ring.issue(3, signature=5)
    rank_ring.tick()
    assert unfolded == ["0-7"]


def test_an_excerpt_has_the_ops_with_the_given_numbers(rank_ring: RankRing) -> None:
    rank_ring.builder.add_group(2)
    rank_ring.issue(5, group=2)
    rank_ring.issue(layout.SMALL.slots - 20)
    found = asyncio.run(excerpt(RingView(rank_ring.ring), 2, 2, 4))
    assert [row.number for row in rows_of(found)] == [2, 3, 4]
    assert found.signatures[0].kind == "all_reduce"
    rank_ring.issue(18)
    found = asyncio.run(excerpt(RingView(rank_ring.ring), 2, 2, 4))
    assert [row.number for row in rows_of(found)] == [4]


WRITER = """
import sys, time
from pathlib import Path
from typing import Any
sys.path.insert(0, sys.argv[2])
from agent.ring_builder import RingBuilder
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Side
builder = RingBuilder(Path(sys.argv[1]))
builder.standard_tables()
builder.add_signature(2, "barrier")
print(builder.path, flush=True)
while builder.numbers.get(1, 0) < 50_000:
    builder.op(signature=1 + (builder.sequence % 3 == 0), done=True)
"""


def test_no_block_is_wrong_when_the_writer_overtakes_the_reader(tmp_path: Path) -> None:
    """Reads the ops of a known program while they are written at full speed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    ring = Ring(Path(process.stdout.readline().strip()))
    view = RingView(ring)
    blocks = BlockReader(view)
    sent: list[wire.BlockSums] = []
    while process.poll() is None:
        ring.refresh()
        sent += blocks.fresh(time.monotonic_ns())
    process.stdout.close()
    for _ in range(5):
        sent += blocks.fresh(time.monotonic_ns())
    received = sums_by_block(sent)
    assert len(received) > 100
    assert max(Counter(covered(sent)).values()) == 1
    keys = {row.key for row in ring.events(0, 9)[0]}
    known = [view.signature(key, "sum") for key in sorted(keys, key=lambda key: key.form)]
    counts = [signature_digest(one, "gloo") or 0 for one in known if one is not None]
    for (first, size), value in received.items():
        expected = sum(counts[(n - 1) % 3 == 0] * weight(n) for n in range(first, first + size))
        assert expected % MODULUS == value, (first, size)
