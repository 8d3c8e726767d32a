"""Answers of ranks and hosts become the statistics of a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.statistics.call_columns import (
    LAST_BUCKET,
    MOST_COUNT,
    MOST_RANKS,
    CallFields,
    added_up,
    fit,
    pack_calls,
)
from frtop_probe.statistics.calls import quantile
from frtop_probe.statistics.rank_summary import Window
from frtop_probe.statistics.steps import StepEnd
from frtop_tui.job.naming import GroupKey, without_number
from frtop_tui.job.statistics import CallRow, JobStatistics, SampledGroup, SampledOp
from frtop_tui.statistics import by_group
from frtop_tui.statistics import merger as merger_module
from frtop_tui.statistics.answers import RankAnswer
from frtop_tui.statistics.by_group import LOOKED_AT, SampledByGroup
from frtop_tui.statistics.comparison import Measured, compare, measured
from frtop_tui.statistics.last_to_arrive import last_to_arrive
from frtop_tui.statistics.merger import DAMAGED, StatisticsMerger
from frtop_tui.statistics.orders import ORDERS, ordered, share_of_step
from frtop_tui.statistics.wanted import MOST_TIMES, StatisticsWanted, joint_wanted, samples_for
from job_statistics.ranks import LINE, MS, S, answer, group, op

WINDOW = Window(0, 10 * S, calls=True, samples=64, steps=100)
ONE_HOST = {"node0": 400_000}


def merged(skew_ns: int = 20 * MS, transfer_ns: int = 5 * MS, ops: int = 50) -> StatisticsMerger:
    """Four ranks of one host; rank 2 comes last to all ops."""
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    for rank in range(4):
        late = skew_ns if rank == 2 else 0
        took = skew_ns - late + transfer_ns
        mine = [op(n, n * 100 * MS + late, took, sync=True) for n in range(1, ops + 1)]
        merger.add(0, answer(rank, mine, WINDOW))
    return merger


def built(
    merger: StatisticsMerger, ranks: int = 4, errors: Mapping[str, int | None] = ONE_HOST
) -> JobStatistics:
    found = merger.build(errors, range(ranks))
    assert found is not None
    return found


def test_skew_is_apart_from_transfer() -> None:
    found = built(merged(), 5)
    (row,) = found.calls
    assert (row.count, row.ranks, row.sampled) == (200, (0, 1, 2, 3), 50)
    assert (row.skew_ns, row.transfer_ns) == (20 * MS, 5 * MS)
    assert row.last == ((2, 50),)
    assert row.rate == pytest.approx(20.0)
    # 1 MiB in 5 ms; all_reduce of 4 ranks: 2 * 3/4
    assert row.algorithm_bandwidth == pytest.approx((1 << 20) / 0.005)
    assert row.bus_bandwidth == pytest.approx(1.5 * (1 << 20) / 0.005)
    assert share_of_step(row) == pytest.approx(50 * (3 * 25 + 5) / 4 / 10_000)
    assert (found.missing, found.clock_error_ns, found.from_ns) == ((4,), 0, 0)


def test_within_the_error_of_clocks_nobody_comes_last() -> None:
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    for rank in range(4):
        late = MS // 2 if rank == 2 else 0
        mine = [op(n, n * 100 * MS + late - rank // 2 * S, 6 * MS - late) for n in range(11, 60)]
        host = f"node{rank // 2}"
        merger.add(0, answer(rank, mine, WINDOW, host=host, clock_ns=rank // 2 * S))
    for error, last, bandwidth in ((300_000, (), False), (100_000, ((2, 49),), True)):
        found = built(merger, errors={"node0": error, "node1": error})
        (row,) = found.calls
        assert found.clock_error_ns == 2 * error
        assert (row.skew_ns, row.last) == (MS // 2, last)
        assert (row.bus_bandwidth is not None) is bandwidth
        assert found.groups[0].arrivals[0].error_ns == 2 * error
    unknown = built(merger, errors={"node0": 1, "node1": None})
    assert (unknown.clock_error_ns, unknown.calls[0].last) == (None, ())


def test_slices_make_one_window_and_are_forgotten() -> None:
    merger = StatisticsMerger()
    for number in range(3):
        since, until = number * 10 * S, (number + 1) * 10 * S
        merger.begin(number, since, until)
        window = Window(since, until, calls=True, samples=64, steps=100)
        for rank in range(4):
            # An op that one rank issues in this slice and another one in the next is one op.
            late = 50 * MS if rank == 3 else 0
            mine = [op(n, n * 200 * MS - MS + late, 60 * MS - late) for n in range(1, 150)]
            steps = [StepEnd(n, n * 200 * MS) for n in range(150)]
            merger.add(number, answer(rank, mine, window, steps=steps))
    found = built(merger)
    assert (found.since_ns, found.until_ns, found.from_ns) == (0, 30 * S, 0)
    (row,) = found.calls
    assert row.count == 4 * 149
    numbers = [one.number for one in found.groups[0].arrivals if one.complete]
    assert numbers == list(range(1, 150))
    assert [one.number for one in found.steps[1]] == list(range(1, 150))
    merger.forget(20 * S)
    later = built(merger)
    assert later.since_ns == 20 * S
    assert later.calls[0].count == 4 * 49 + 1  # rank 3 issued op 100 after the border
    assert min(later.steps[0], key=lambda one: one.number).number == 100


def test_groups_and_ranks_that_came_and_went_are_forgotten() -> None:
    merger = StatisticsMerger()
    for number in range(40):
        since, until = number * 10 * S, (number + 1) * 10 * S
        merger.begin(number, since, until)
        made = wire.Group(7, str(number), "made again", "gloo", "0-3")
        for rank in (number, number + 1):
            mine = [op(1, since + S, MS, of=7)]
            told = answer(rank, mine, Window(since, until, calls=True), groups=(made,))
            merger.add(number, told)
        merger.forget(since - 20 * S)
        assert len(merger._alike._known) + len(merger._alike._earlier) <= 2
        for sums in merger._rows.values():
            assert len(sums.groups) <= 3
            assert len(sums.ranks) <= 4
    (row,) = built(merger).calls
    assert [one.name for one in row.groups] == ["37", "38", "39"]
    assert row.ranks == (37, 38, 39, 40)


def test_a_row_of_a_shorter_window_has_only_the_ranks_and_groups_of_that_window() -> None:
    merger = StatisticsMerger()
    for number, ranks in enumerate(((0, 1, 2, 3), (2, 3))):
        begin = number * 10 * S
        merger.begin(number, begin, begin + 10 * S)
        for rank in ranks:
            pair = group(1, "0-1", "tp:0") if rank < 2 else group(1, "2-3", "tp:1")
            mine = [op(number + 1, begin + S, MS)]
            window = WINDOW._replace(since_ns=begin, until_ns=begin + 10 * S)
            merger.add(number, answer(rank, mine, window, groups=(pair,)))
    both, last = (merger.build(ONE_HOST, range(4), since) for since in (0, 10 * S))
    assert both is not None
    assert last is not None
    rows = [(one.count, one.ranks, len(one.groups)) for one in (both.calls[0], last.calls[0])]
    assert rows == [(6, (0, 1, 2, 3), 2), (2, (2, 3), 1)]
    assert last.calls[0].rate == pytest.approx(0.2)


def test_a_rank_is_in_the_window_of_its_newest_slice_whenever_its_rows_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merger_module, "MOST_RANKS", 2)
    merger = StatisticsMerger()
    for number in range(2):
        merger.begin(number, number * 10 * S, (number + 1) * 10 * S)
        window = Window(number * 10 * S, (number + 1) * 10 * S)
        for rank in range(number + 1):
            merger.add(number, answer(rank, [op(1, number * 10 * S + S, MS)], window))
    found = merger.build(ONE_HOST, range(2), 10 * S)
    assert found is not None
    assert found.calls[0].ranks == (0, 1)


@pytest.mark.parametrize("figure", [2**62, -(2**62)])
def test_what_a_host_claims_adds_up_to_no_more_than_a_capture_can_hold(figure: int) -> None:
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    true = answer(0, [op(1, S, MS), op(2, 2 * S, MS)], WINDOW)
    rows = true.statistics.rows
    assert rows is not None
    names = ("count", "total_bytes", "timed", "timed_ns", "max_ns", "late", "pending", "waited_ns")
    claimed = dict.fromkeys(names, (figure,) * len(rows.kind))
    modules = (wire.ModuleStatistics(1, "all_reduce", figure, figure),)
    said = replace(true.statistics, lost=figure, rows=replace(rows, **claimed), modules=modules)
    for rank in range(9):
        merger.add(0, true._replace(rank=rank, statistics=said, issuers=(wire.Issuer("forward"),)))
    found = built(merger, 9)
    assert msgspec.msgpack.encode(found)
    counts = [*(row.count for row in found.calls), *(row.count for row in found.modules)]
    assert counts == [2**62] * 2 * (figure > 0)


@pytest.mark.parametrize(
    "damage",
    [
        {"size_class": (-1,)},
        {"size_class": (2**62,)},
        {"first_bucket": -1},
        {"first_bucket": LAST_BUCKET + 1},
        {"first_bucket": 2**62},
        {"durations": bytes(LAST_BUCKET)},
        {"width": 2},
        {"width": 0},
        {"width": -1},
        {"width": 2**62},
        {"width": 8, "durations": bytes(8)},
        {"group": (1, 1), "kind": ("a", "b"), "durations": bytes(3)},
        {"count": (2, 2)},
        {"kind": ()},
    ],
    ids=str,
)
def test_rows_that_do_not_fit_together_are_left_out(damage: dict[str, Any]) -> None:
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    true = answer(0, [op(1, S, MS), op(2, 2 * S, MS)], WINDOW)
    assert true.statistics.rows is not None
    rows = replace(true.statistics.rows, **damage)
    merger.add(0, true)
    merger.add(0, true._replace(rank=1, statistics=replace(true.statistics, rows=rows)))
    found = built(merger, 2)
    assert (found.calls[0].count, found.calls[0].ranks, found.notes) == (2, (0,), (DAMAGED,))


SITES = (LINE, replace(LINE, line=50))
GROUPS = {1: group(1, "0-3", "tp:0"), 2: group(2, "0-7", "dp")}
FIGURE = st.integers(0, 2**57)
FIGURES = st.tuples(
    st.integers(1, 2**57), *[FIGURE] * 7, st.dictionaries(
        st.integers(0, LAST_BUCKET), st.integers(1, 300) | st.integers(1, MOST_COUNT), max_size=5
    ),
)  # fmt: skip
NONE = st.just((*[0] * 8, {}))
KEYS = st.lists(
    st.tuples(
        st.sampled_from(["all_reduce", "broadcast"]), st.integers(1, 3), st.integers(0, 3),
        st.integers(0, 1), st.booleans(), st.booleans(),
    ),
    max_size=4,
)  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> list[list[CallFields]]:
    """The rows of some ranks, many of which have the same rows in the same order."""
    orders = draw(st.lists(KEYS, min_size=1, max_size=2))
    told = []
    for _ in range(draw(st.integers(0, 5))):
        keys = draw(st.sampled_from(orders))
        told.append([(*key, *draw(FIGURES | FIGURES | NONE)) for key in keys])
    return told


def expected(told: list[list[CallFields]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The figures of each row of a job, added up one by one."""
    by_key: defaultdict[tuple[Any, ...], list[tuple[int, CallFields]]] = defaultdict(list)
    for rank, rows in enumerate(told):
        for row in rows:
            kind, of, site, size_class, *flags = row[:6]
            members, line = (0, 4, 8, 0)[of], (None, *SITES, None)[site]
            if row[6]:
                by_key[(kind, members, line, size_class, *flags)].append((rank, row))
    found = {}
    for key, several in by_key.items():
        figures = list(zip(*(row[6:14] for _, row in several), strict=True))
        sums, max_ns = [sum(one) for one in figures], max(figures[4])
        durations: Counter[int] = Counter()
        for _, row in several:
            durations.update(row[14])
        quantiles = [quantile(durations, share, max_ns) for share in (0.5, 0.95)]
        ranks = tuple(sorted({rank for rank, _ in several}))
        found[key] = *sums[:4], max_ns or None, *sums[5:], *quantiles, ranks
    return found


@given(jobs())
def test_rows_by_field_add_up_to_the_same(told: list[list[CallFields]]) -> None:
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    for rank, rows in enumerate(told):
        sent = wire.RankStatistics(rank, 0, pack_calls(rows))
        again = wire.decode_response(wire.encode(wire.StatisticsResponse(1, "", 0, 1, (sent,))))
        assert isinstance(again, wire.StatisticsResponse)
        merger.add(0, RankAnswer(rank, "node0", 0, GROUPS, again.ranks[0], SITES))
    found = merger.build(ONE_HOST, ())
    assert found is not None
    assert found.notes == ()
    assert {
        (row.kind, row.members, row.site, row.size.bit_length() // 2, row.p2p, row.on_device): (
            row.count, row.bytes, row.timed, row.total_ns, row.max_ns, row.late, row.pending,
            row.waited_ns, row.p50_ns, row.p95_ns, row.ranks,
        )
        for row in found.calls
    } == expected(told)  # fmt: skip


@pytest.mark.parametrize("most", [2**8 - 1, 2**16 - 1, MOST_COUNT])
def test_as_many_ranks_as_are_added_up_at_once_overflow_no_count(most: int) -> None:
    rows: list[CallFields] = [
        ("all_reduce", 1, 1, n, False, False, 1, 0, 0, 0, 0, 0, 0, 0, dict.fromkeys(range(9), most))
        for n in range(3)
    ]
    calls = pack_calls(rows)
    assert calls is not None
    first, counts = added_up([calls] * MOST_RANKS)
    assert (first, counts) == (0, (MOST_RANKS * most,) * 27)
    later = replace(calls, first_bucket=7)
    assert fit(later)
    first, counts = added_up([later, calls])
    assert (first, counts) == (0, (most,) * 21 + (2 * most,) * 6 + (most,) * 21)


def test_what_was_pending_in_an_older_slice_is_pending_no_more() -> None:
    merger = StatisticsMerger()
    for number in range(2):
        merger.begin(number, number * 10 * S, (number + 1) * 10 * S)
        window = Window(number * 10 * S, (number + 1) * 10 * S)
        merger.add(number, answer(0, [op(number + 1, number * 10 * S + 9 * S)], window))
    found = built(merger, 1)
    assert (found.calls[0].count, found.calls[0].pending) == (2, 1)


def test_groups_that_are_alike_are_one_row() -> None:
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    for rank in range(4):
        mine = group(1, "0-1" if rank < 2 else "2-3", "tp")
        ops = [op(n, n * MS * 10, MS) for n in range(1, 9)]
        merger.add(0, answer(rank, ops, WINDOW, groups=(mine,)))
    found = built(merger)
    (row,) = found.calls
    assert [key.ranks for key in row.groups] == ["0-1", "2-3"]
    assert len(found.groups) == 2


def test_only_wanted_ranks_are_counted_and_all_arrive() -> None:
    merger = StatisticsMerger(ranks=[1])
    merger.begin(0, 0, 10 * S)
    for rank in range(4):
        merger.add(0, answer(rank, [op(1, S, MS)], WINDOW))
    found = built(merger)
    assert (found.calls[0].ranks, found.calls[0].sampled) == ((1,), 1)


def test_numbers_of_unaligned_groups_are_not_joined() -> None:
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    inexact = wire.Group(1, "dp", "dp", "gloo", "0-3", exact=False)
    for rank in range(4):
        merger.add(0, answer(rank, [op(1, S, MS)], WINDOW, groups=(inexact,)))
    found = built(merger)
    assert found.groups == ()
    assert found.calls[0].skew_ns is None


@pytest.mark.parametrize("order", [*ORDERS, "line"])
def test_every_order_sorts_rows_without_figures(order: str) -> None:
    merger = merged()
    merger.add(0, answer(7, [op(1, S, p2p=True)], WINDOW))
    found = built(merger, 8)
    rows = ordered(found.calls, order)
    assert len(rows) == 2
    if order != "line":
        assert not rows[0].p2p


def test_a_comparison_names_what_is_beyond_the_noise() -> None:
    before, after = built(merged()), built(merged(skew_ns=60 * MS))
    (line,) = compare(before, after).lines
    assert (line.duration.change, line.skew.change) == ("slower", "slower")
    (same,) = compare(before, before).lines
    assert (same.duration.change, same.skew.change) == ("same", "same")
    few = built(merged(ops=3))
    assert compare(few, few).lines[0].skew.change == "unknown"
    nothing = replace(before, calls=(), groups=())
    assert compare(before, nothing).lines[0].duration.change == "gone"
    assert compare(nothing, before).lines[0].duration.change == "new"
    assert compare(few, nothing).lines[0].duration.change == "unknown"  # of the start, perhaps


def test_what_is_asked_for_is_bounded_at_any_size() -> None:
    for ranks, slices in ((8, 12), (64, 12), (4096, 12), (4096, 1), (10_000, 1)):
        samples = samples_for([3] * ranks, slices)
        assert samples == 1 or samples * 3 * ranks * slices <= MOST_TIMES
    assert joint_wanted([]) is None
    narrow = StatisticsWanted(30.0, calls=True, ranks=frozenset({1}))
    assert joint_wanted([narrow, StatisticsWanted()]) == StatisticsWanted(
        60.0, calls=True, ranks=frozenset({1})
    )


def told(groups_of: dict[int, tuple[str, ...]], late: int) -> StatisticsMerger:
    """Sixteen ranks with groups of four; `late` comes 20 ms late to its own.

    Args:
        groups_of: by rank, the descriptions of the groups it is in; all have the members of the
            first.
        late: the rank.
    """
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    for rank, names in groups_of.items():
        base = rank // 4 * 4
        by = 20 * MS if rank == late else 0
        mine = [
            op(n, n * 100 * MS + by, 25 * MS - by, of=of, sync=True)
            for of in range(1, len(names) + 1)
            for n in range(1, 51)
        ]
        groups = [
            wire.Group(of, f"{name}-{base}", name, "gloo", f"{base}-{base + 3}")
            for of, name in enumerate(names, 1)
        ]
        merger.add(0, answer(rank, mine, WINDOW, groups=groups, host=f"node{rank // 4}"))
    return merger


NO_CLOCKS = {f"node{n}": 300 * MS for n in range(4)}


def test_groups_whose_descriptions_differ_in_their_number_are_alike() -> None:
    found = built(told({rank: (f"tp:{rank // 4}",) for rank in range(16)}, late=9), 16, NO_CLOCKS)
    (row,) = found.calls
    assert len(row.groups) == 4
    assert (row.skew_ns, row.mean_skew_ns) == (0, 5 * MS)
    assert ORDERS["waiting"](row) == 5 * MS * row.count, "one late group of four counts"
    sampled = SampledByGroup(found)
    each = sampled.groups_of(row)
    assert [one.key.name for one in sampled.groups_apart(row)] == ["tp:2-8"]
    assert each[0].row.last == ((9, 50),)
    assert sum(one.waited_ns for one in each) == ORDERS["waiting"](row)


@pytest.mark.parametrize(("ms", "apart"), [(3, ["tp:2"]), (1.2, [])])
def test_a_group_whose_data_moves_longer_than_that_of_similar_groups_is_apart(
    ms: float, apart: list[str]
) -> None:
    def ops(took_ms: float) -> tuple[SampledOp, ...]:
        took = round(took_ms * MS)
        return tuple(
            SampledOp(n, {0: n * S, 1: n * S + n}, True, error_ns=0, transfer_ns=took + n * 1000)
            for n in range(20)
        )

    keys = [GroupKey(f"tp:{n}", f"{n}") for n in range(4)]
    groups = [SampledGroup(key, (0, 1), ops(ms if n == 2 else 1)) for n, key in enumerate(keys)]
    found = JobStatistics(0, S, 0, groups=tuple(groups))
    row = CallRow("", tuple(keys), None, 0, (0, 1), count=80)
    assert [one.key.name for one in SampledByGroup(found).groups_apart(row)] == apart


def test_few_of_many_groups_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 1,280 groups with the others would hold up a screen for seconds."""
    compared: list[int] = []

    def counted(before: Sequence[int], after: Sequence[int]) -> Measured:
        compared.append(len(before) + len(after))
        return measured(before, after)

    monkeypatch.setattr(by_group, "measured", counted)
    ops = (SampledOp(1, {0: 0, 1: 9 * MS}, complete=True, error_ns=0),) * 8
    keys = [GroupKey(f"tp:{n}", f"{n}") for n in range(600)]
    found = JobStatistics(0, S, 0, groups=tuple(SampledGroup(key, (0, 1), ops) for key in keys))
    row = CallRow("", tuple(keys), None, 0, (0, 1), count=8)
    sampled = SampledByGroup(found)
    assert len(sampled.groups_of(row)) == 600
    assert not compared
    assert sampled.groups_apart(row) == []
    assert len(compared) == LOOKED_AT
    assert max(compared) < 1000


def test_clocks_of_other_hosts_do_not_matter_to_groups_on_one_host() -> None:
    found = built(told({rank: (f"tp:{rank // 4}",) for rank in range(16)}, late=9), 16, NO_CLOCKS)
    assert found.clock_error_ns == 600 * MS
    assert found.calls[0].bus_bandwidth is not None


def test_two_groups_of_one_rank_are_not_alike() -> None:
    names = ("mesh_dim_0", "mesh_dim_1")
    found = built(told(dict.fromkeys(range(16), names), late=9), 16, NO_CLOCKS)
    assert sorted(len(row.groups) for row in found.calls) == [4, 4]


@pytest.mark.parametrize(
    ("label", "stem"),
    [("tp:3", "tp"), ("dp_12", "dp"), ("tp[3]", "tp"), ("tp", "tp"), ("7", "7"), ("", "")],
)
def test_a_label_without_its_number(label: str, stem: str) -> None:
    assert without_number(label) == stem


def sized(kind: str, elements: int) -> wire.Signature:
    return wire.Signature(kind, inputs=(wire.TensorSpec("float32", (elements,)),))


def with_sizes(*elements: Callable[[int], int], site: Callable[[int], wire.Site]) -> JobStatistics:
    """Four ranks, the last of which comes last to all ops.

    Args:
        elements: by rank, how many an op has by its number.
        site: by rank, the line that issues it.
    """
    merger = StatisticsMerger()
    merger.begin(0, 0, 10 * S)
    for rank, count in enumerate(elements):
        late = 20 * MS * (rank == 3)
        mine = [
            op(n, n * 100 * MS + late, 25 * MS - late, sync=True, site=site(rank),
               signature=sized("all_to_all_single", count(n)))
            for n in range(1, 41)
        ]  # fmt: skip
        merger.add(0, answer(rank, mine, WINDOW))
    return built(merger)


def test_ops_whose_sizes_vary_are_one_row_of_a_table() -> None:
    several = [4 ** (n % 6) for n in range(41)]
    found = with_sizes(*(several.__getitem__,) * 4, site=lambda _: LINE)
    assert len(found.calls) == 6
    assert all(row.in_varying for row in found.calls)
    (row,) = found.rows
    assert (row.count, row.sampled, row.sizes) == (160, 40, (4, 4 * 4**5))
    assert (row.skew_ns, row.max_ns) == (20 * MS, 25 * MS)
    assert last_to_arrive([row]).words == "rank 3: 100 %"
    assert SampledByGroup(found).groups_of(row)[0].row.sampled == 40


def test_few_sizes_of_a_line_that_all_ranks_share_keep_their_rows() -> None:
    found = with_sizes(*(lambda n: 4 ** (n % 4),) * 4, site=lambda _: LINE)
    assert (len(found.rows), found.varying) == (4, ())


def test_an_op_to_which_ranks_give_different_sizes_is_one_row() -> None:
    """It was in a row of each size, so nobody was known to be in the one and late in the other."""
    found = with_sizes(*(lambda _: 4096,) * 3, lambda _: 16, site=lambda _: LINE)
    (row,) = found.rows
    assert (row.count, row.sampled, row.ranks) == (160, 40, (0, 1, 2, 3))
    assert last_to_arrive([row]).words == "rank 3: 100 %"
    assert [last_to_arrive([one]).rank for one in found.calls] == [3, 3]


def test_who_comes_last_from_another_line_is_named() -> None:
    """As where one rank saves and the others wait: the same op, from two lines."""
    lines = [replace(LINE, line=50 if rank == 0 else 60) for rank in range(4)]
    found = with_sizes(*(lambda _: 64,) * 4, site=lambda rank: lines[rank])
    assert sorted(row.ranks for row in found.rows) == [(0,), (1, 2, 3)]
    assert {last_to_arrive([row]).words for row in found.rows} == {"rank 3: 100 %"}
