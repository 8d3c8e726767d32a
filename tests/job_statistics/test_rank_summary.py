"""What is told of one rank: rows, samples, steps."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec import structs

from frtop_probe import wire
from frtop_probe.history_columns import pack, unpack_column
from frtop_probe.statistics.call_columns import MOST_ROWS
from frtop_probe.statistics.calls import MAX_CALLS, buckets, quantile
from frtop_probe.statistics.op_bytes import op_bytes
from frtop_probe.statistics.rank_summary import Window
from frtop_probe.statistics.samples import is_chosen
from frtop_probe.statistics.steps import StepEnd, overlaps
from job_statistics.ranks import MEBI, MS, S, answer, calls_of, op

WINDOW = Window(0, 100 * S, calls=True, samples=64, steps=100)
PART = (MEBI,)
ALL = (wire.TensorSpec("float32", (4, 262_144)),)
MIB = 1 << 20


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "expected"),
    [
        ("all_reduce", PART, None, MIB),
        ("broadcast", PART, None, MIB),
        ("all_gather_into_tensor", PART, ALL, 4 * MIB),
        ("all_gather", PART, None, 4 * MIB),
        ("reduce_scatter_tensor", ALL, PART, 4 * MIB),
        ("reduce_scatter", None, PART, 4 * MIB),
        ("all_to_all_single", ALL, ALL, 4 * MIB),
        ("gather", PART, (), 4 * MIB),
        ("scatter", (), PART, 4 * MIB),
        ("recv", None, PART, MIB),
        ("barrier", PART, None, 0),
        ("all_reduce", None, None, None),
    ],
)
def test_bytes_are_those_of_nccl_tests(
    kind: str,
    inputs: tuple[wire.TensorSpec, ...] | None,
    outputs: tuple[wire.TensorSpec, ...] | None,
    expected: int | None,
) -> None:
    signature = wire.Signature(kind, inputs=inputs, outputs=outputs)
    assert op_bytes(signature, 4) == expected


def test_quantiles_are_within_a_bucket_of_the_truth() -> None:
    chance = random.Random(3)
    durations = sorted(round(chance.lognormvariate(14, 1.5)) + 1 for _ in range(5000))
    found = Counter(buckets(durations))
    for share in (0.1, 0.5, 0.95):
        truth = durations[round(share * 5000)]
        guess = quantile(found, share, durations[-1])
        assert guess is not None
        assert abs(guess - truth) < 0.06 * truth


def test_ops_are_counted_by_how_sure_their_end_is() -> None:
    ops = [
        op(1, 1 * S, 5 * MS, sync=True),
        op(2, 2 * S, 7 * MS, waited_ns=3 * MS),
        op(3, 3 * S, 9 * MS, waited_ns=3 * MS, late=True),
        op(4, 4 * S, 9 * MS, tracked=False),
        op(5, 5 * S),
        op(6, 100 * S, 1),  # after the window
    ]
    found = answer(0, ops, WINDOW).statistics
    (row,) = (one for one in calls_of(found) if one.count)
    assert (row.count, row.timed, row.late, row.pending) == (5, 2, 1, 1)
    assert (row.timed_ns, row.max_ns, row.waited_ns) == (12 * MS, 7 * MS, 5 * MS + 3 * MS)
    assert (row.total_bytes, row.size_class) == (5 * MIB, 21)
    (sampled,) = found.samples
    assert unpack_column(sampled.took_ns, 5) == [5 * MS, 7 * MS, -9 * MS, -1, 0]


def test_samples_are_spread_over_all_lines() -> None:
    lines = [wire.Site("/srv/train.py", n, "train") for n in range(8)]
    ops = [op(n, n * MS, MS // 2, site=lines[n % 8]) for n in range(1, 4001)]
    (sampled,) = answer(0, ops, WINDOW).statistics.samples
    numbers = unpack_column(sampled.number, sampled.count)
    assert sampled.stride in (64, 128)
    assert numbers == [n for n in range(1, 4001) if is_chosen(n, sampled.stride)]
    assert 16 < len(numbers) <= 64
    assert {n % 8 for n in numbers} == set(range(8))
    for period in (2, 3, 6, 7, 8):
        found = [sum(n % period == r for n in numbers) for r in range(period)]
        assert min(found) >= 1


def test_ranks_that_are_not_equally_far_tell_of_the_same_ops() -> None:
    several = [answer(r, [op(n, n * MS, 1) for n in range(1, last)], WINDOW).statistics.samples[0]
               for r, last in ((0, 500), (1, 1100))]  # fmt: skip
    first, second = (set(unpack_column(one.number, one.count)) for one in several)
    assert {number for number in second if number < 500} <= first


def test_samples_alone_name_their_calls() -> None:
    window = Window(0, 100 * S, calls=False, samples=8)
    found = answer(0, [op(1, S, MS)], window).statistics
    assert [(one.kind, one.count) for one in calls_of(found)] == [("all_reduce", 0)]


def test_rows_are_bounded() -> None:
    ops = []
    for n in range(1, 3 * MAX_CALLS):
        line = wire.Site("/srv/train.py", n, "train")
        ops.append(op(n, n * MS, MS, site=line))
    found = answer(0, ops, WINDOW).statistics
    assert found.rows is not None
    assert len(found.rows.count) == MAX_CALLS + 1 <= MOST_ROWS
    assert sum(found.rows.count) == len(ops)
    assert "too many different ops" in found.note


def test_a_step_is_split() -> None:
    ops = [
        op(1, 1000 * MS, 100 * MS, sync=True),
        op(2, 1300 * MS, 300 * MS),
        op(3, 1500 * MS, 200 * MS, waited_ns=50 * MS),
        op(4, 1950 * MS, 150 * MS),  # 100 ms of it are of the next step
    ]
    steps = [StepEnd(7, 900 * MS), StepEnd(8, 2000 * MS, samples=32), StepEnd(9, 2500 * MS)]
    found = answer(0, ops, WINDOW, steps=steps).steps()
    assert [
        (one.number, one.took_ns, one.blocked_ns, one.pending_ns, one.samples) for one in found
    ] == [(8, 1100 * MS, 150 * MS, 550 * MS, 32), (9, 500 * MS, 0, 100 * MS, None)]
    assert [one.data_ns for one in found] == [None, None]


@pytest.mark.parametrize(("unseen", "bubbles"), [(1, [80 * MS, 0]), (3, [None, None])])
def test_a_bubble_is_the_time_in_which_a_rank_waits_for_messages(
    unseen: int, bubbles: list[int | None]
) -> None:
    ops = [
        op(1, 1000 * MS, 100 * MS, sync=True),
        op(2, 1200 * MS, 50 * MS, sync=True, p2p=True),
        op(3, 1220 * MS, 60 * MS, waited_ns=60 * MS, p2p=True),  # 30 ms of it with the other one
        *(op(4, 1300 * MS, 9 * MS, p2p=True, tracked=False) for _ in range(unseen)),
    ]
    steps = [StepEnd(7, 900 * MS), StepEnd(8, 2000 * MS), StepEnd(9, 2500 * MS)]
    assert [one.bubble_ns for one in answer(0, ops, WINDOW, steps=steps).steps()] == bubbles


def test_overlaps_count_no_time_twice() -> None:
    bounds = [(0, 10), (10, 20), (25, 30)]
    assert overlaps(bounds, [(5, 12), (8, 11), (28, 99), (19, 26), (2, 3)]) == [6, 3, 3]
    assert overlaps(bounds, []) == [0, 0, 0]


@pytest.mark.parametrize(("forwards", "known"), [((0, 0), False), ((0, 9), True)])
def test_a_forward_that_nobody_records_takes_no_time_that_is_known(
    forwards: tuple[int, int], known: bool
) -> None:
    """With phases on, a program may have backwards only: it calls no module."""
    found = answer(0, [op(1, S, MS)], WINDOW, steps=[StepEnd(n, n * S) for n in (1, 2, 3)])
    steps = found.statistics.steps
    assert steps is not None
    phases = structs.replace(
        steps, phases=True, forward_ns=pack(forwards), backward_ns=pack((5, 5))
    )
    statistics = structs.replace(found.statistics, steps=phases)
    told = found._replace(statistics=statistics).steps()
    assert [one.forward_ns for one in told] == ([*forwards] if known else [None, None])
    assert [one.backward_ns for one in told] == [5, 5]


def test_damaged_columns_are_no_steps() -> None:
    ops = [op(1, S, MS)]
    good = answer(0, ops, WINDOW, steps=[StepEnd(1, S), StepEnd(2, 2 * S)])
    steps = good.statistics.steps
    assert steps is not None
    bad = wire.StepTimes(*(wire.HistoryColumn(0),) * 10, count=2**60)
    damaged = good._replace(
        statistics=wire.RankStatistics(0, 0, steps=bad, samples=good.statistics.samples)
    )
    assert damaged.steps() == []
