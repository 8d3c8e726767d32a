"""Blocks of what a rank issued, read from real rings."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.ringmaker import RingMaker
from frtop_probe import wire
from frtop_probe.agent import blocks
from frtop_probe.agent.blocks import GRACE_NS, Blocks
from frtop_probe.agent.histories import excerpt
from frtop_probe.agent.ringview import RingView
from frtop_probe.agent.runs import Run
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

FLOATS = [["float32", [1024], 1, "cpu"]]
SUM, MAX = 1, 5
Parts = dict[tuple[int, int], int]


class Teller:
    """A ring, and what an agent makes of it."""

    def __init__(self, folder: Path, rank: int = 0, shape: Shape = layout.SMALL) -> None:
        folder.mkdir(exist_ok=True)
        self.maker = RingMaker(folder, rank=rank, shape=shape, start_ticks=rank + 1)
        self.maker.usual()
        self.ring = Ring(self.maker.path)
        self.blocks = Blocks(RingView(self.ring))
        self.heard: list[wire.BlockSums] = []

    def tick(self, after_ns: int = 0) -> tuple[wire.BlockSums, ...]:
        self.ring.refresh()
        told = self.blocks.fresh(time.monotonic_ns() + after_ns)
        self.heard += told
        return told

    def issue(self, ops: int, **fields: Any) -> None:
        for _ in range(ops):
            self.reduce(self.maker.op(done=True, **fields))

    def reduce(self, sequence: int, code: int = SUM) -> None:
        """What the recorder's thread does a moment after an op; 0 takes it back."""
        at = self.maker._slot(sequence) + layout.SLOT_REDUCE
        self.maker.map[at] = code


@pytest.fixture
def teller(tmp_path: Path) -> Teller:
    return Teller(tmp_path)


def parts(told: Sequence[wire.BlockSums], group: int = 1) -> Parts:
    """Sums by first op and size."""
    found: Parts = {}
    for one in told:
        if one.group == group:
            for index, value in enumerate(unpacked(one.sums)):
                found[one.first + index * one.size, one.size] = value
    return found


def covered(told: Sequence[wire.BlockSums], group: int = 1) -> Iterator[int]:
    for first, size in parts(told, group):
        yield from range(first, first + size)


def total(told: Sequence[wire.BlockSums], last: int) -> int:
    """The sum over ops 1 to `last`, whatever blocks it was told in."""
    assert sorted(covered(told)) == list(range(1, last + 1))
    return sum(parts(told).values()) % MODULUS


def test_few_ops_are_told_one_by_one(teller: Teller) -> None:
    teller.issue(3)
    assert list(parts(teller.tick())) == [(1, 1), (2, 1), (3, 1)]


def test_nothing_new_is_nothing_told(teller: Teller) -> None:
    teller.issue(3)
    teller.tick()
    assert teller.tick() == ()


def test_many_ops_are_told_in_large_blocks(teller: Teller) -> None:
    teller.issue(500)
    assert list(parts(teller.tick())) == [(1 + 64 * n, 64) for n in range(7)]
    told = teller.tick()  # the rest, as nothing more comes
    assert list(parts(told)) == [(449 + 8 * n, 8) for n in range(6)] + [
        (497 + n, 1) for n in range(4)
    ]
    assert total(teller.heard, 500)


def test_a_thousand_ops_a_second_are_a_hundred_bytes(teller: Teller) -> None:
    sizes = []
    for _ in range(20):
        teller.issue(500)
        told = teller.tick()
        sizes.append(
            len(wire.encode(wire.Update("", "", 0, 0, 0, (wire.RankUpdate(1, blocks=told),))))
        )
    assert max(sizes) < 100


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 700), max_size=6), st.lists(st.integers(1, 700), max_size=6))
def test_the_same_ops_have_the_same_sum_however_they_are_cut(
    ours: list[int], theirs: list[int]
) -> None:
    ops = min(sum(ours), sum(theirs))
    sums = []
    for chunks in (ours, theirs):
        run, number, made = Run(1, 1), 1, []
        for chunk in chunks:
            for _ in range(chunk):
                if number <= ops:
                    run.take(number, (number % 7 + 1) * weight(number), 0)
                    number += 1
            made += run.cut()
        made += run.cut()
        assert [n for b in made for n in range(b.first, b.first + b.size)] == list(
            range(1, ops + 1)
        )
        assert all((b.first - 1) % b.size == 0 and b.size in SIZES for b in made)
        sums.append(sum(block.sum for block in made) % MODULUS)
    assert sums[0] == sums[1]


def test_one_odd_op_changes_the_sum_of_its_block_only(tmp_path: Path) -> None:
    one, other = Teller(tmp_path / "a"), Teller(tmp_path / "b", 1)
    for teller in (one, other):
        teller.issue(300)
    other.reduce(200, MAX)
    ours, theirs = parts(one.tick()), parts(other.tick())
    assert [key for key in ours if ours[key] != theirs[key]] == [(193, 64)]


@pytest.mark.parametrize("program", ["XYYX", "XXYY", "XYXY"])
def test_another_order_is_another_sum(tmp_path: Path, program: str) -> None:
    found = []
    for index, order in enumerate((program, program[::-1] if program != "XYYX" else "YXXY")):
        teller = Teller(tmp_path / str(index))
        teller.maker.side(Side.SIGNATURE, 2, {"kind": "barrier"})
        for letter in order * 16:
            teller.issue(1, signature=1 if letter == "X" else 2)
        found.append(parts(teller.tick()))
    assert found[0].keys() == found[1].keys()
    assert found[0] != found[1]


def test_an_op_is_waited_for_until_its_reduce_op_is_known(teller: Teller) -> None:
    teller.issue(5)
    teller.reduce(3, 0)
    assert list(covered(teller.tick())) == [1, 2]
    teller.reduce(3)
    assert list(covered(teller.tick())) == [3, 4, 5]


def test_an_op_that_stays_unknown_is_left_out(teller: Teller) -> None:
    teller.issue(5)
    teller.reduce(3, 0)
    teller.tick()
    assert list(covered(teller.tick(GRACE_NS))) == [4, 5]


def test_unknown_ops_of_a_fast_rank_are_not_waited_for(teller: Teller) -> None:
    teller.issue(10)
    teller.reduce(3, 0)
    teller.issue(layout.SMALL.slots // 2)
    teller.tick()
    assert 4 in covered(teller.heard)


def test_signatures_may_be_told_later_than_ops(teller: Teller) -> None:
    teller.issue(2, signature=9)
    assert teller.tick() == ()
    teller.maker.side(Side.SIGNATURE, 9, {"kind": "broadcast", "root": 0, "inputs": FLOATS})
    assert list(covered(teller.tick())) == [1, 2]


def test_groups_that_are_never_told_are_not_remembered(teller: Teller) -> None:
    for group in range(2, 100):
        teller.issue(2, group=group)
        assert teller.tick(GRACE_NS * 2) == ()
    assert not teller.blocks._runs
    assert not teller.blocks._hopeless
    teller.maker.group(99, name="late")
    teller.issue(3, group=99)
    assert sorted(parts(teller.tick(), 99)) == [(3, 1), (4, 1), (5, 1)]


def test_sends_steps_and_groups_that_are_not_exact_are_not_told(teller: Teller) -> None:
    teller.maker.group(2)
    teller.maker.side(Side.GROUP, 3, {"name": "3", "ranks": "0-7", "exact": False})
    teller.issue(4, group=3)
    teller.maker.op(group=2, flags=Flag.P2P)
    teller.issue(4)
    told = teller.tick()
    assert {one.group for one in told} == {1}
    assert list(covered(told)) == [1, 2, 3, 4]


def test_a_group_that_is_no_longer_exact_is_told_no_more(teller: Teller) -> None:
    teller.issue(4)
    assert teller.tick()
    teller.maker.side(Side.GROUP, 1, {"name": "0", "ranks": "0-7", "exact": False})
    teller.issue(4)
    assert teller.tick() == ()
    assert teller.blocks.last() == ()


def test_what_was_overwritten_unread_is_in_no_block(teller: Teller) -> None:
    slots = layout.SMALL.slots
    teller.issue(20)
    teller.tick()
    teller.issue(3 * slots)
    for _ in range(5):
        teller.tick()
    numbers = Counter(covered(teller.heard))
    assert set(numbers.values()) == {1}
    assert set(numbers) == {*range(1, 21), *range(21 + 2 * slots, 21 + 3 * slots)}


def test_ops_out_of_order_are_told_in_order(teller: Teller) -> None:
    run = Run(1, 1)
    for number in (1, 3, 2, 4):
        run.take(number, number, 0)
    assert [block.sum for block in run.cut()] == [1, 2, 3, 4]


def test_an_op_that_never_comes_is_a_gap_after_a_while() -> None:
    run = Run(1, 1)
    for number in (1, 2, 4, 5):
        run.take(number, number, 0)
    made = [block for _ in range(5) for block in run.cut()]
    assert [block.first for block in made] == [1, 2, 4, 5]


def test_a_slot_that_is_being_written_stops_the_reader_not_for_ever(teller: Teller) -> None:
    teller.issue(6)
    at = teller.maker._slot(4)
    whole = bytes(teller.maker.map[at : at + layout.SLOT_SIZE])
    teller.maker.map[at : at + layout.SLOT_SIZE] = bytes(layout.SLOT_SIZE)
    assert list(covered(teller.tick())) == [1, 2, 3]
    assert teller.tick() == ()
    teller.maker.map[at : at + layout.SLOT_SIZE] = whole
    assert list(covered(teller.tick())) == [4, 5, 6]
    teller.issue(6)
    at = teller.maker._slot(9)
    teller.maker.map[at : at + layout.SLOT_SIZE] = bytes(layout.SLOT_SIZE)
    for _ in range(9):
        teller.tick()
    assert sorted(covered(teller.heard)) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12]


def test_the_last_blocks_are_kept_in_few(teller: Teller) -> None:
    for chunk in (3, 500, 200, 7, 400, 1, 1):
        teller.issue(chunk)
        teller.tick()
    teller.tick()
    last = teller.blocks.last()
    assert sorted(covered(last)) == list(range(1, 1113))
    assert len(parts(last)) < 24
    assert total(last, 1112) == total(teller.heard, 1112)


def splits(teller: Teller, number: int, sent: list[int], taken: list[int]) -> None:
    rows = [["float32", [sum(sent)], 1, "cpu"]]
    entry = {"kind": "all_to_all_single", "inputs": rows, "outputs": rows,
             "in_splits": sent, "out_splits": taken}  # fmt: skip
    teller.maker.side(Side.SIGNATURE, number, entry)


@pytest.mark.parametrize(("taken", "whole"), [([3, 2], True), ([4, 2], False)])
def test_pairs_of_splits_add_up_over_the_group(
    tmp_path: Path, taken: list[int], whole: bool
) -> None:
    pairs: list[int] = []
    sums: list[bytes] = []
    for rank, (into, out) in enumerate([([1, 3], [1, 2]), ([2, 2], taken)]):
        teller = Teller(tmp_path / str(rank), rank)
        teller.maker.group(2, "0-1")
        splits(teller, 5, into, out)
        teller.issue(1, group=2, signature=5)
        (told,) = teller.tick()
        pairs += unpacked(told.pairs)
        sums.append(told.sums)
    assert (sum(pairs) % MODULUS == 0) is whole
    assert UNKNOWN not in pairs
    assert sums[0] == sums[1]


def test_splits_that_are_not_known_say_so(teller: Teller) -> None:
    splits(teller, 5, [1, 2], [1, 2])  # of two members, in a group of eight
    teller.issue(64, signature=5)
    (told,) = teller.tick()
    assert unpacked(told.pairs) == (UNKNOWN,)


def test_only_splits_have_the_members_counted(
    teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def unfold(ranks: str) -> tuple[int, ...]:
        asked.append(ranks)
        return (0, 1)

    monkeypatch.setattr(blocks, "unfold", unfold)
    teller.issue(3)
    assert list(covered(teller.tick())) == [1, 2, 3]
    assert asked == []
    splits(teller, 5, [1, 2], [1, 2])
    teller.issue(3, signature=5)
    teller.tick()
    assert asked == ["0-7"]


def test_ops_are_told_by_their_numbers(teller: Teller) -> None:
    teller.maker.group(2)
    teller.issue(5, group=2)
    teller.issue(layout.SMALL.slots - 20)
    found = excerpt(RingView(teller.ring), 2, 2, 4)
    assert [row.number for row in found.rows] == [2, 3, 4]
    assert found.signatures[0].kind == "all_reduce"
    teller.issue(18)
    assert [row.number for row in excerpt(RingView(teller.ring), 2, 2, 4).rows] == [4]


WRITER = """
import sys, time
from pathlib import Path
from typing import Any
sys.path.insert(0, sys.argv[2])
from agent.ringmaker import RingMaker
from frtop_probe.ring import layout
from frtop_probe.ring.layout import Side
maker = RingMaker(Path(sys.argv[1]))
maker.usual()
maker.side(Side.SIGNATURE, 2, {"kind": "barrier"})
print(maker.path, flush=True)
while maker.numbers.get(1, 0) < 150_000:
    maker.op(signature=1 + (maker.sequence % 3 == 0), done=True)
"""


def test_no_block_of_a_writer_that_laps_is_wrong(tmp_path: Path) -> None:
    """The ops of a known program, read while they are written as fast as can be."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    ring = Ring(Path(process.stdout.readline().strip()))
    view = RingView(ring)
    blocks = Blocks(view)
    told: list[wire.BlockSums] = []
    while process.poll() is None:
        ring.refresh()
        told += blocks.fresh(time.monotonic_ns())
    process.stdout.close()
    for _ in range(5):
        told += blocks.fresh(time.monotonic_ns())
    heard = parts(told)
    assert len(heard) > 100
    assert max(Counter(covered(told)).values()) == 1
    known = [view.signature(number, "sum") for number in (1, 2)]
    counts = [signature_digest(one, "gloo") or 0 for one in known if one is not None]
    for (first, size), value in heard.items():
        expected = sum(counts[(n - 1) % 3 == 0] * weight(n) for n in range(first, first + size))
        assert expected % MODULUS == value, (first, size)
