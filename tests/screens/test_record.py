"""`:record` shows what ranks record; a second press changes it. `a` notes something."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.numbers.orders import JobNumbers, RankControl, RecordOrder
from frtop_tui.screens.record import NOTHING, READ_NS, SAMPLED

from . import answer_scenes, scenes
from .driving import driven

ALL = tuple(range(64))


async def test_the_cost_is_shown_before_ranks_sample() -> None:
    frame = scenes.hung()
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        await app.sees(
            "what ranks record", "orders go to 64 ranks", "s numbers", "s shows the cost"
        )
        assert app.source.orders == [RecordOrder(ALL)]
        app.source.given_numbers = JobNumbers(
            {0: RankControl(wire.RecordedNow(slots=8192, ring_bytes=2_405_632))}, {}, {}
        )
        await app.press("s")
        await app.sees("s again: sample now", "the last 8,192 ops, 2.4 MB: fixed", "MiB")
        await app.press("s")  # held down: nobody has read the cost
        assert len(app.source.orders) == 1
        await app.give(replace(frame, now_ns=frame.now_ns + READ_NS))
        await app.press("s")
        assert app.source.orders[1:] == [RecordOrder(ALL, SAMPLED)]
        await app.press("x")
        assert app.source.orders[-1] == RecordOrder(ALL, NOTHING)


async def test_a_small_terminal_shows_keys_findings_and_the_cost_that_matters() -> None:
    frame = scenes.hung()
    state = wire.NumberState(every=1, ops_left=9, seconds_left=5, samples=3)
    async with driven(frame, size=(80, 24)) as app:
        await app.press("colon", *"record", "enter")
        app.source.given_numbers = JobNumbers(
            {0: RankControl(wire.RecordedNow(slots=8192, ring_bytes=2_405_632))}, {0: state}, {}
        )
        app.app.tick()
        await app.sees("numbers: ", "o modules  ", " s sample  x stop  p phases  c call sites  o m")
        assert app.text().index("numbers: ") < app.text().index("recorded now")
        await app.press("s")
        await app.sees("s again: sample now", "waits for a copy", "a thread of low priority")


async def test_phases_are_switched_on_where_they_are_off() -> None:
    frame = scenes.hung()
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        app.source.given_numbers = JobNumbers(
            {n: RankControl(wire.RecordedNow(phases=n == 0)) for n in (0, 1)}, {}, {}
        )
        await app.sees("on: 4 us each on the host (rank 0)")
        await app.press("p")
        await app.give(replace(frame, now_ns=frame.now_ns + READ_NS))
        await app.press("p")
        assert app.source.orders[-1] == RecordOrder(ALL, phases=True)


async def test_a_notes_something_on_the_marked_ranks() -> None:
    async with driven(scenes.hung()) as app:
        app.app.marked.update((3, 5))
        await app.press("a", *"loss", "space", *"jumped", "enter")
        assert app.source.orders == [RecordOrder((3, 5), note="loss jumped")]


async def test_who_may_only_read_is_told_so() -> None:
    frame = replace(scenes.hung(), read_only=answer_scenes.READ_ONLY)
    async with driven(frame, size=(120, 40)) as app:
        await app.press("colon", *"record", "enter")
        await app.sees("The ranks may not be asked")
        await app.press("s", "s")
        assert app.source.orders == []
