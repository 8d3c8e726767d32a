"""The screen of waits where nobody waits any more: who ended in which order, and where it stood."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, NodeTrace, Slowness, Trace, Verdict, Why
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.widgets.spans import text_of
from frtop_tui.widgets.wait_tree_pane import NOBODY, rows_without_waits

from . import scenes
from .driving import driven
from .scenes import HOST_NOW, S


def all_ended() -> Frame:
    """Rank 5 raised an exception; the launcher killed the others half a second later."""
    frame = scenes.dead()
    killed = wire.ExitInfo(HOST_NOW - 29 * S - S // 2, signal=15)
    ranks = {
        number: view
        if number == 5
        else replace(view, state="dead", pending=(), blocked_on=None, exit_info=killed)
        for number, view in frame.ranks.items()
    }
    return replace(frame, ranks=ranks, trace=Trace())


def test_who_ended_first_and_why_is_told_and_then_the_others() -> None:
    rows = rows_without_waits(all_ended(), 120)
    lines = [text_of(line) for _, line in rows]
    assert lines[0] == f"{NOBODY} now: 64 of 64 ranks ended"
    first = next(n for n, line in enumerate(lines) if line.startswith("  rank 5 · RuntimeError"))
    text = " ".join(lines[first:])
    assert "an illegal memory access was encountered at train.py:226" in text
    assert "ended with exit status 1" in text
    assert "first, 31s ago" in text
    assert "ranks 0-4,6-63 · ended by signal 15 · 1.5s later" in text
    assert rows[first][0] == (5,)


def test_of_a_job_that_goes_on_it_is_said_that_nobody_waits() -> None:
    frame = scenes.healthy()
    assert [text_of(line) for _, line in rows_without_waits(frame, 80)] == [NOBODY]


def test_every_line_fits() -> None:
    for width in (40, 80):
        for _, line in rows_without_waits(all_ended(), width):
            assert len(text_of(line)) <= width


def slow(frame: Frame, culprits: tuple[int, ...], *parties: tuple[int, ...]) -> Frame:
    verdict = Verdict(
        "slow", "confirmed", "active", culprits, "comes late", Why.of("unknown"), "",
        parties=parties, slow=Slowness(9, 9, 1, 0, 0.1, 63, 0),
    )  # fmt: skip
    return replace(frame, verdicts=(verdict,))


async def test_of_a_slow_job_it_is_said_first_that_these_waits_are_of_the_moment() -> None:
    """The rank that all wait for now need not be the one that is late in each step."""
    frame = replace(scenes.healthy(), trace=Trace())
    async with driven(slow(frame, (37,)), size=(120, 40)) as app:
        await app.press("w")
        await app.sees("slow · confirmed: rank 37", "The waits below are those of this moment")
        lines = app.text().splitlines()
        note = next(n for n, line in enumerate(lines) if "slow · confirmed" in line)
        assert note < next(n for n, line in enumerate(lines) if "who waits for whom" in line)
        await app.give(slow(frame, (), (3,), (7,)))
        await app.sees("slow · confirmed: ranks 3,7")
        await app.give(frame)
        await app.wait_for(lambda: "of this moment" not in app.text())
        await app.resize(60, 20)
        await app.give(slow(frame, tuple(range(0, 64, 2))))
        await app.sees("slow · confirmed: ranks 0,2,", " after step.")


async def test_a_cause_that_its_line_cuts_is_told_whole_above_the_tree() -> None:
    hung = scenes.hung()
    (verdict,) = hung.verdicts
    cause = "in the data loader: the queue of its worker process is empty, and the worker is gone"
    verdict = replace(verdict, why=Why.of("data", cause))
    graph = (NodeTrace("all_reduce", "0-36,38-63", overdue=True, free="37"),)
    frame = replace(hung, verdicts=(verdict,), trace=Trace(graph=graph))
    async with driven(frame, size=(80, 24)) as app:
        await app.press("w")
        await app.sees("rank 37  data: in the data loader:", "worker is gone")
        await app.resize(160, 40)
        await app.wait_for(lambda: app.text().count("in the data loader") == 1)


async def test_enter_leads_to_the_ranks_of_a_line() -> None:
    async with driven(all_ended(), size=(130, 40)) as app:
        await app.press("w")
        await app.sees("64 of 64 ranks ended", "ranks 0-4,6-63")
        lines = app.text().splitlines()
        top = next(n for n, line in enumerate(lines) if NOBODY in line)
        at = next(n for n, line in enumerate(lines) if "rank 5 · RuntimeError" in line)
        await app.press(*"j" * (at - top), "enter")
        assert isinstance(app.screen, RankScreen)
        await app.press("escape", "G", "enter")
        assert isinstance(app.screen, RanksScreen)


async def test_its_rank_is_looked_at_on_the_timeline_and_back() -> None:
    async with driven(all_ended(), size=(130, 40)) as app:
        await app.press("w")
        await app.sees("rank 5 · RuntimeError")
        await app.press("j", "T")
        await app.sees("job > waits > timeline")
        assert app.screen.about == 5
        await app.press("w")
        await app.sees("job > waits > timeline > waits")
