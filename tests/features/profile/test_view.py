"""`P` says what a profile costs, and orders nothing before a yes."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_tui.features.profile.model import (
    ProfileOptions,
    ProfileProgress,
    RankAllocations,
    RankProfile,
    Withdrawal,
)
from frtop_tui.job.model import Recorded
from screens import scenes
from screens.driving import driven


async def test_the_cost_is_shown_before_anything_is_ordered() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        app.app.marked.update((0, 1))
        await app.press("P")
        await app.sees("profile ranks 0-1?", "the rank stands still", "for 5 steps")
        await app.press("d", "b", "plus")
        await app.sees("[x] shapes of inputs", "twice as long", "for 10 steps")
        assert app.source.orders["profile"] == []
        await app.press("enter", "enter")
        (order,) = app.source.orders["profile"]
        ranks, options, path = order.ranks, order.options, order.path
        assert (ranks, options) == ((0, 1), ProfileOptions(steps=10, shapes=True, stacks=True))
        assert path.name.endswith("-profile.json.gz")
        states = (
            RankProfile(0, "node0", "running", 7, 9, 10**9),
            RankProfile(1, "node0", "failed", text="the script profiles itself"),
        )
        running = ProfileProgress(options, states, str(path))
        app.source.given["profile"] = running
        app.app.tick()
        await app.sees("1 recording", "steps 7-9", "the script profiles itself")
        await app.press("escape")
        assert app.source.orders["profile"].count(Withdrawal()) == 1
        written = (replace(states[0], stage="done"), states[1])
        app.source.given["profile"] = replace(running, ranks=written, state="written", size=10**6)
        app.app.tick()
        await app.sees("1.00 MB", "ui.perfetto.dev")
        await app.press("escape")
        assert app.source.orders["profile"].count(Withdrawal()) == 1


async def test_what_is_complete_is_written_on_request() -> None:
    async with driven(scenes.hung(), size=(80, 24)) as app:
        await app.press("P", "s", "enter")
        assert app.source.orders["profile"].count(Withdrawal(keep=True)) == 0
        options = ProfileOptions(memory=True)
        states = (RankProfile(0, "node0", "running"), RankProfile(1, "node0", "ordered"))
        running = ProfileProgress(options, states, "x.json.gz")
        app.source.given["profile"] = running
        app.app.tick()
        await app.sees("1 recording", "esc withdraws")
        await app.press("s")
        await app.sees("No rank is complete yet")
        states = (replace(states[0], stage="done"), states[1])
        app.source.given["profile"] = running = replace(running, ranks=states)
        app.app.tick()
        await app.sees("s saves 1 complete rank, without")
        await app.press("s")
        assert app.source.orders["profile"][-1:] == [Withdrawal(keep=True)]
        written = replace(
            running,
            state="written",
            ranks=(states[0], replace(states[1], stage="failed", text="it was ended")),
            allocations=(RankAllocations(0, "cuda:0", 1 << 30, 1 << 30, 3 << 30, 4 << 30),),
        )
        app.source.given["profile"] = written
        app.app.tick()
        await app.sees("rank 1: it was ended", "torch's allocator", "3.22 GB", "4.29 GB")
        await app.press("s")
        assert app.source.orders["profile"].count(Withdrawal(keep=True)) == 1


async def test_p_says_what_becomes_of_another_order() -> None:
    async with driven(scenes.hung(), size=(80, 24)) as app:
        app.app.marked.update((0, 1))
        await app.press("P", "P")
        await app.sees("Nothing is ordered yet: enter orders it")
        await app.press("enter", "d", "P")
        running = ProfileProgress(
            ProfileOptions(), (RankProfile(0, "node0", "running"),), "/tmp/x.json.gz"
        )
        app.source.given["profile"] = running
        app.app.tick()
        await app.press("P")
        await app.sees("One order at a time: esc withdraws this one")
        await app.press("plus")
        await app.sees("This is ordered already")
        await app.sees("ranks 0-1: nothing is ordered, as this order is under way")
        done = RankProfile(0, "node0", "done", stood_still_ns=4_315_000_000)
        app.source.given["profile"] = replace(running, ranks=(done,), state="written")
        app.app.tick()
        await app.sees("stood still for 4.32 s at most", "P asks for another one, of ranks 0-1")
        await app.press("P")
        await app.sees("profile ranks 0-1?", "The previous order was written: /tmp/x.json.gz")
        assert len([one for one in app.source.orders["profile"] if one != Withdrawal()]) == 1


async def test_of_a_withdrawn_order_no_rank_is_said_to_go_on() -> None:
    async with driven(scenes.hung(), size=(80, 24)) as app:
        await app.press("P", "enter")
        progress = ProfileProgress(ProfileOptions(), (RankProfile(37, "node4", "waiting"),), "x")
        app.source.given["profile"] = progress
        app.app.tick()
        await app.sees("1 rank: 1 waiting for a step")
        app.source.given["profile"] = replace(progress, state="withdrawn")
        app.app.tick()
        await app.sees("P asks for another one, of rank 37")
        assert "waiting" not in app.text()


async def test_a_capture_cannot_be_profiled() -> None:
    recorded = replace(scenes.hung(), recorded=Recorded("capture", "x.cap", scenes.WALL))
    async with driven(recorded, size=(120, 40)) as app:
        await app.press("P")
        await app.sees("There is no live job to ask")
        assert app.source.orders["profile"] == []


async def test_of_a_rank_that_hangs_it_says_that_no_step_will_come_and_leaving_orders_nothing() -> (
    None
):
    async with driven(scenes.hung(), size=(80, 24)) as app:
        await app.press("P")
        await app.sees("Rank 37 stands still, for 4m12s", "at the next step", "in 60 s the order")
        await app.press("u")
        await app.sees("at the next step or op")
        await app.press("d", "b", "A", "X")
        await app.sees("torch.profiler runs inside", "[x] execution trace", "esc leaves")
        await app.sees("-profile.json.gz", "esc back  ? help  Q quit  enter order")
        await app.press("question_mark")
        await app.sees("more steps, or seconds", "with an execution trace", "on every screen")
        await app.press("escape", "escape")
        app.app.marked.update((0, 1))
        await app.press("P")
        await app.sees("Ranks 0-1 stand still, for up to 4m1")
        await app.press("escape")
        assert app.source.orders["profile"] == []
