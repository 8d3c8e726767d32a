"""`:record` shows what ranks record; a second press changes it. `a` notes something."""

from __future__ import annotations

from msgspec.structs import replace

from features.tensor_checks.sampled_ranks import recorded_now
from frtop_probe.features.tensor_checks.messages import NumberSample, NumberState
from frtop_probe.ring import layout
from frtop_probe.wire.recording import RecordedNow
from frtop_tui.features.tensor_checks.comparison import BadNumbers, Findings
from frtop_tui.features.tensor_checks.consent import LONGER
from frtop_tui.features.tensor_checks.orders import NOTHING, JobNumbers, RankControl, RecordOrder
from frtop_tui.features.tensor_checks.samples import RankSample
from frtop_tui.features.tensor_checks.view import READ_NS, SAMPLED
from screens import answer_scenes, scenes
from screens.driving import driven

ALL = tuple(range(64))


async def test_the_cost_is_shown_before_ranks_sample() -> None:
    frame = scenes.hung()
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        await app.sees(
            "what ranks record",
            "orders go to ranks 0-63 of llama-70b",
            "S numbers",
            "S shows the cost",
        )
        assert app.source.orders["tensor_checks"] == [RecordOrder(ALL)]
        app.source.given["tensor_checks"] = JobNumbers(
            {0: RankControl(RecordedNow(slots=8192, ring_bytes=2_405_632))}, {}, {}
        )
        await app.press("S")
        await app.sees("S again: sample now", "the last 8,192 ops, 2.41 MB", "MiB")
        await app.sees("the job hangs: while no op is issued, there is nothing to sample")
        await app.press("S")  # held down: nobody has read the cost
        assert (
            app.source.orders["tensor_checks"] == [RecordOrder(ALL)] * 2
        )  # others may have begun meanwhile
        await app.give(replace(frame, now_ns=frame.now_ns + READ_NS))
        await app.press("S")
        assert app.source.orders["tensor_checks"][2:] == [RecordOrder(ALL, SAMPLED)]
        await app.press("x")
        assert app.source.orders["tensor_checks"][-1] == RecordOrder(ALL, NOTHING)


async def test_who_samples_already_and_who_replaced_or_ended_whose_is_named() -> None:
    frame = scenes.healthy()
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        theirs = NumberState(True, 1, 90, 40, watch=3, by="mo@node4 PID 17")
        app.source.given["tensor_checks"] = JobNumbers(
            {n: RankControl(recorded_now(theirs)) for n in range(3)}, {}, {}
        )
        await app.press("S")
        await app.sees("S again: sample now", "ranks 0-2 sample already, for mo@node4 PID 17")
        assert "the job hangs" not in app.text()
        app.source.given["tensor_checks"] = replaced()
        await app.press("escape", "1", "colon", *"record", "enter")
        await app.sees("its sampling was replaced by one for ada@node4 PID 18 (ranks 0-1)")
        await app.sees("off (ranks 2-3)", "rank 3: its sampling was ended by mo@node4 PID 17")


def replaced() -> JobNumbers:
    recorded = {n: RankControl(recorded_now(NumberState(True, 1))) for n in range(4)}
    return JobNumbers(
        recorded, {n: NumberState() for n in range(4)},
        {3: "its sampling was ended by mo@node4 PID 17"},
        gone=dict.fromkeys(range(2), "its sampling was replaced by one for ada@node4 PID 18"),
    )  # fmt: skip


async def test_a_finding_is_on_the_overview() -> None:
    sample = NumberSample(
        1, 1, 41, "all_reduce", "input", "issue", 7, 1, 0, "float32", 8, 32, 32, nans=3
    )  # fmt: skip
    bad = BadNumbers(2, RankSample(2, sample, ("0", "0-3", 0)), "NaN", ())
    found = JobNumbers({}, {}, {}, found=Findings(bad=(bad,)))
    async with driven(scenes.healthy(), size=(80, 24)) as app:
        app.source.given["tensor_checks"] = found
        await app.sees("numbers  rank 2: 3 NaN in its input of all_reduce #41", ":record")


async def test_a_small_terminal_shows_keys_findings_and_the_cost_that_matters() -> None:
    frame = scenes.hung()
    state = NumberState(every=1, ops_left=9, seconds_left=5, samples=3)
    async with driven(frame, size=(80, 24)) as app:
        await app.press("colon", *"record", "enter")
        app.source.given["tensor_checks"] = JobNumbers(
            {0: RankControl(RecordedNow(slots=8192, ring_bytes=2_405_632))}, {0: state}, {}
        )
        app.app.tick()
        await app.sees("numbers: ", "M modules  ", " S sample  x stop  f phases  i call sites  M m")
        assert app.text().index("numbers: ") < app.text().index("recorded now")
        await app.press("S")
        await app.sees("S again: sample now", "waits for a copy", "a low-priority thread")


async def test_a_second_press_switches_phases_on_or_makes_rings_longer() -> None:
    frame = scenes.hung()
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        app.source.given["tensor_checks"] = JobNumbers(
            {n: RankControl(RecordedNow({"phases": n == 0})) for n in (0, 1)}, {}, {}
        )
        await app.sees("on: 4 us each on the host (rank 0)")
        await app.press("f")
        await app.sees("f again: switch phases on; any other key: cancel")
        await app.give(replace(frame, now_ns=frame.now_ns + READ_NS))
        await app.press("f")
        assert app.source.orders["tensor_checks"][-1] == RecordOrder(ALL, switches={"phases": True})

        now = RecordedNow(
            slots=8192, ring_bytes=2_405_632, longer_slots=65_536, longer_bytes=5_767_168
        )
        app.source.given["tensor_checks"] = JobNumbers({0: RankControl(now)}, {}, {})
        await app.sees("the last 8,192 ops, 2.41 MB; up to 65,536 ops for 5.77 MB more")
        await app.press("K")
        await app.sees("K again: keep more ops from now on", "5.8 MB of shared memory more")
        later = app.source.frame()
        await app.give(replace(later, now_ns=later.now_ns + READ_NS))
        await app.press("K")
        assert app.source.orders["tensor_checks"][-1] == RecordOrder(ALL, longer=True)
        longer = replace(now, slots=65_536, ring_bytes=8_172_800)
        app.source.given["tensor_checks"] = JobNumbers({0: RankControl(longer)}, {}, {})
        app.app.tick()
        await app.sees("the last 65,536 ops, 8.17 MB")


def test_the_cost_of_a_longer_ring_is_that_of_the_ring() -> None:
    full, small = layout.FULL, layout.SMALL
    assert f"{full.more:,} ops instead of {full.slots:,}" in LONGER
    assert f"{(full.longest - full.size) / 1e6:.1f} MB of shared memory more" in LONGER
    cost = (small.longest - small.size) / 1e6
    assert f"{small.more:,} instead of {small.slots:,}, {cost:.1f} MB" in LONGER


async def test_a_notes_something_on_the_marked_ranks() -> None:
    async with driven(scenes.hung()) as app:
        app.app.marked.update((3, 5))
        await app.press("a", *"loss", "space", *"jumped", "enter")
        assert app.source.orders["tensor_checks"] == [RecordOrder((3, 5), note="loss jumped")]


async def test_who_may_only_read_is_told_so() -> None:
    frame = replace(scenes.hung(), read_only=answer_scenes.READ_ONLY)
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        await app.sees("The ranks may not be asked")
        await app.press("S", "S")
        assert app.source.orders["tensor_checks"] == []
