"""Sampled stacks: as py-spy writes them, as a tree over ranks, and in other programs' formats."""

from __future__ import annotations

import json

import pytest

from frtop_probe import wire
from frtop_probe.features.flame.at_host import parse
from frtop_probe.features.flame.messages import SampleStacks
from frtop_tui.features.flame.follow import frames_of
from frtop_tui.features.flame.words import (
    RECORDER,
    RankSamples,
    SampledStacks,
    flame_rows,
    flame_tree,
    folded_stacks,
    frame_parts,
    recorder_share,
    speedscope,
)
from screens import scenes
from screens.driving import driven

MAIN = ("MainThread", "main (/srv/train.py:3)")
LOAD, STEP = "load (/srv/data.py:9)", "step (/srv/train.py:7)"


def samples(rank: int, loading: int, stepping: int) -> RankSamples:
    stacks = (((*MAIN, LOAD), loading), ((*MAIN, STEP), stepping), (("frtop",), 1000))
    return RankSamples(rank, tuple(one for one in stacks if one[1]), 10.0, 100)


def test_what_py_spy_writes_is_read_and_anything_else_is_not() -> None:
    found, missed = parse(
        "py-spy> Sampling process 100 times a second\n"
        "thread (10154): MainThread;main (/srv/train.py:3) 146\n"
        "thread (10154): MainThread;main (/srv/train.py:3) 4\n"
        "no count\n x 99999999999999\n\n"
        "py-spy> Wrote raw flamegraph data to '/dev/stdout'. Samples: 150 Errors: 3\n"
    )
    assert missed == 3
    assert dict(found) == {"thread (10154): MainThread;main (/srv/train.py:3)": 150}
    assert frames_of("thread (0x7F12AB): my worker;a (b:1)") == ("my worker", "a (b:1)")
    assert frames_of("thread (0x7F12AB);a (b:1)") == ("thread without a name", "a (b:1)")


def test_ranks_are_merged_and_what_differs_is_marked() -> None:
    ranks = [samples(rank, 100, 900) for rank in range(7)] + [samples(7, 800, 200)]
    roots, totals = flame_tree(ranks)
    assert totals == dict.fromkeys(range(8), 1000)
    assert [node.name for node in roots] == ["MainThread", "frtop"]
    rows = {row.node.name: row for row in flame_rows(roots, totals, set())}
    assert rows["MainThread"].share == 1.0
    assert rows[LOAD].share == (7 * 100 + 800) / 8000
    assert rows[LOAD].differs == "rank 7: 80 %, usually 10 %"
    assert rows["MainThread"].differs == ""
    closed = flame_rows(roots, totals, {("MainThread",)})
    assert [row.node.name for row in closed] == ["MainThread", "frtop"]


def test_ranks_that_do_the_same_are_not_called_different() -> None:
    ranks = [samples(rank, 100 + rank, 900 - rank) for rank in range(8)]
    rows = flame_rows(*flame_tree(ranks), set())
    assert not any(row.differs for row in rows)
    assert flame_rows(*flame_tree([]), set()) == []


def test_the_time_that_a_frame_takes_itself_is_a_row_below_it() -> None:
    """A sleep is a call of C: it has no frame of its own."""
    outer = ("MainThread", "step (/srv/train.py:9)")
    ranks = [
        RankSamples(rank, ((outer, own), ((*outer, LOAD), 1000 - own)), 10.0, 100)
        for rank, own in ((0, 20), (1, 20), (2, 20), (3, 960))
    ]
    rows = flame_rows(*flame_tree(ranks), set())
    assert [row.node.name for row in rows[1:]] == [outer[1], LOAD, "(itself)"]
    assert (rows[-1].share, rows[-1].folded) == (0.255, None)
    assert rows[-1].differs == "rank 3: 96 %, usually 2 %"


def test_threads_of_one_name_leave_the_main_thread_whole() -> None:
    """A process has one feeder thread for each queue, all of one name."""
    feeds = (("QueueFeederThread", "_feed (queues.py:231)"), 2000)
    ranks = [RankSamples(2, ((MAIN, 1000), feeds, (("frtop",), 1000)), 10.0, 100)]
    roots, totals = flame_tree(ranks)
    assert totals == {2: 1000}
    assert [node.name for node in roots] == ["MainThread", "QueueFeederThread", "frtop"]
    assert {row.share for row in flame_rows(roots, totals, set())} == {1.0}


PROBE = "/opt/venv/lib/python3.12/site-packages/frtop_probe"
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"


def test_the_tree_is_as_it_would_be_without_frtop_and_counts_its_time() -> None:
    reduce, kernel = f"all_reduce ({TORCH}:2990)", f"kernel ({PROBE}/recorder/ops/kernel.py:88)"
    step = f"_engine_run_backward ({PROBE}/recorder/phases.py:40)"
    write = f"begin ({PROBE}/recorder/writer.py:31)"
    lock = "__enter__ (/usr/lib/python3.12/threading.py:293)"
    stacks = (
        ((*MAIN, reduce, kernel), 900),  # in what the wrapper calls, which is C++
        ((*MAIN, step, STEP), 70),
        ((*MAIN, reduce, kernel, write), 20),
        ((*MAIN, reduce, kernel, write, lock), 10),
        (("frtop", f"_beat ({PROBE}/recorder/thread.py:51)"), 1000),
    )
    ranks = [RankSamples(0, stacks, 10.0, 100)]
    roots, totals = flame_tree(ranks)
    rows = {row.node.path[1:]: row for row in flame_rows(roots, totals, set())}
    assert set(rows) == {(), MAIN[1:], (*MAIN[1:], reduce), (*MAIN[1:], reduce, RECORDER),
                         (*MAIN[1:], STEP), (*MAIN[1:], reduce, "(itself)")}  # fmt: skip
    assert rows[(*MAIN[1:], reduce)].share == 0.93
    assert rows[(*MAIN[1:], reduce, RECORDER)].share == 0.03
    assert recorder_share(roots, totals) == 0.03
    opened = flame_rows(roots, totals, {(*MAIN, reduce, RECORDER), ("frtop",)})
    paths = {row.node.path for row in opened}
    assert {(*MAIN, reduce, RECORDER, write), ("frtop", stacks[4][0][1])} <= paths
    assert any(PROBE in line for line in folded_stacks(ranks))  # files have all frames


def test_a_stack_of_wrappers_alone_is_shown_as_it_is() -> None:
    """Of py-spy without names of threads; agents of other builds may send it."""
    wrapper = "wait (/site-packages/frtop_probe/recorder/ops/waits.py:93)"
    roots, _ = flame_tree([RankSamples(0, (((wrapper,), 5), ((), 1)), 10.0, 100)])
    assert [node.name for node in roots] == [wrapper]


def test_other_programs_get_what_they_read() -> None:
    ranks = [samples(0, 100, 900), samples(1, 0, 1000)]
    assert f"rank 0;{';'.join(MAIN)};{LOAD} 100" in set(folded_stacks(ranks))
    document = json.loads(speedscope(ranks, "train.py"))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    main = next(one for one in document["profiles"] if one["name"] == "rank 0: MainThread")
    assert [names[index] for index in main["samples"][0]] == ["main", "load"]
    assert main["weights"] == [1.0, 9.0]
    assert main["endValue"] == 10.0
    assert frame_parts(LOAD) == ("load", "/srv/data.py", 9)
    assert frame_parts("<built-in>") == ("<built-in>", "", 0)


def test_sampling_only_looks_and_takes_a_number() -> None:
    assert not SampleStacks.acts
    with pytest.raises(wire.WireError):
        wire.decode_request(wire.encode(SampleStacks(1, 1, float("nan"))))


async def test_sampled_stacks_are_a_tree_that_folds() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        app.app.marked.update((0, 1))
        await app.press("r")
        assert app.source.orders["flame"] == [(0, 1)]
        await app.sees("nothing stops: py-spy reads")
        stacks = ((("MainThread", "main (/srv/train.py:3)", "load (/srv/data.py:9)"), 990),)
        app.source.given["flame"] = SampledStacks(
            (RankSamples(0, stacks, 10.0, 100), RankSamples(1, text="py-spy: refused"))
        )
        app.app.tick()
        await app.sees("load  data.py:9", "100.0%", "rank 1: py-spy: refused")
        await app.press("enter")
        assert "load  data.py:9" not in app.text()
        await app.press("r")
        assert app.source.orders["flame"] == [(0, 1), (0, 1)]
