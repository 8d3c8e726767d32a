"""`t` asks a rank for its tensors and compares them, `T` saves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.app import FrtopApp
from frtop_tui.features.tensors.follow import SaveOrder
from frtop_tui.features.tensors.pane import TensorsPane
from frtop_tui.features.tensors.view import TensorsScreen
from frtop_tui.features.tensors.words import error_lines
from frtop_tui.job.model import HostView, Problem, Writing
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.rank import RankScreen
from frtop_tui.widgets.spans import text_of
from screens import answer_scenes, scenes, test_requests
from screens.answer_scenes import ASKED, answer, summary, with_answers
from screens.driving import Driven, driven

TO_RANK_12 = ("slash", "1", "2", "enter", "t")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".safetensors"]


async def asked(app: Driven) -> None:
    """Rank 12 was asked, and its answer has come."""
    await app.press(*TO_RANK_12)
    await app.sees("rank 12  asked <1s ago, no answer yet")
    await app.give(answer_scenes.tensors())


async def test_t_asks_the_rank_under_the_cursor_and_esc_returns() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("l", "t")
        await app.sees("tensors of rank 38", "asked <1s ago, no answer yet")
        assert app.source.inspected == [38]
        await app.press("escape")
        assert isinstance(app.screen, Overview)
        await app.press("h", "enter", "t")
        await app.sees("job > rank 37 > tensors of rank 37")
        assert app.source.inspected == [38, 37]
        await app.press("s")
        await app.sees("Nothing to save")
        assert app.source.orders["tensors"] == []
        await app.give(replace(scenes.hung(), now_ns=scenes.NOW + 5 * scenes.S))
        await app.sees("asked 5s ago, no answer yet; a rank answers within two seconds")
        await app.press("escape")
        assert isinstance(app.screen, RankScreen)


async def test_the_answer_is_shown_compared_and_asked_for_again() -> None:
    async with driven(scenes.hung(), size=(120, 30)) as app:
        await asked(app)
        await app.sees("all_reduce #8812 dp:0 avg   pending 4m12s   blocked in it   train.py:231")
        await app.sees("input bf16[26214400]   cpu   52.4 MB", "2s old")
        await app.sees("only the first 12,000,000 of 26,214,400 values were read")
        await app.sees("NaN 3   Inf 0   min -3.17188   max 2.98438   mean 1.52588e-05   norm 412.5")
        await app.sees("first values 0.0014 -0.0312 nan 0.0007 ...", "checksum 9f86d081")
        assert "no answer yet" not in app.text()
        tones = {span for row in app.screen.query_one(TensorsPane)._lines for span in row}
        assert ("NaN 3", "bad") in tones
        assert ("Inf 0", "") in tones
        await app.sees("may be partly reduced already: values can differ between ranks")
        await app.sees("4 of 64 answered; not asked: ranks 0-11,16-63")
        await app.sees("bytes equal on ranks 12-13, others on rank 14 (no fault: what is reduced")
        await app.sees("rank 15 read another part of it")

        await app.press("t")
        await app.sees("asked <1s ago, no answer", "NaN 3")  # the old answer stays
        await app.press("t")
        assert app.source.inspected == [ASKED] * 3
        fresh = answer_scenes.tensors()
        response = structs.replace(answer(fresh.ranks[ASKED], summary("0" * 16)), id=99)
        await app.give(with_answers(fresh, {ASKED: response}))
        await app.sees("NaN 0")
        assert "no answer yet" not in app.text()


async def test_neighbours_are_asked_once() -> None:
    async with driven(scenes.hung()) as app:
        await asked(app)
        await app.press("n")
        await app.sees("tensors of rank 13", "NaN 3")
        assert app.source.inspected == [ASKED]
        await app.press("p", "p")
        await app.sees("tensors of rank 11", "no answer yet")
        assert app.source.inspected == [ASKED, 11]
        await app.wait_for(lambda: app.source.watched[-1] == (11,))


async def test_t_on_a_rank_without_tensors_opens_a_rank_waiting_for_it() -> None:
    frame = scenes.hung()
    culprit = replace(frame.ranks[scenes.CULPRIT], pending=(), blocked_on=None)
    frame = replace(frame, ranks={**frame.ranks, scenes.CULPRIT: culprit})
    async with driven(frame) as app:
        await app.press("t")
        await app.sees("tensors of rank 0, which waits for rank 37")
        await app.sees("rank 37  has no pending tensors; this is rank 0")
        assert app.source.inspected == [0]
        await app.press("n")
        await app.sees("tensors of the pending ops of rank 1")
        assert "which waits for" not in app.text()


async def test_m_asks_all_members_and_says_who_differs() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        await app.press(*TO_RANK_12)
        frame = answer_scenes.tensors()
        own = answer(frame.ranks[ASKED], summary("9f86d081", nans=3))
        await app.give(with_answers(scenes.hung(), {ASKED: own}))
        await app.sees("NaN 3")
        assert "members" not in app.text().partition("tensors of the pending")[2].splitlines()[1]
        app.source.inspected.clear()
        await app.press("m")
        await app.sees("Asking the members: 64 ranks.")
        assert app.source.inspected == [ASKED, *(n for n in range(64) if n != ASKED)]
        odd = with_answers(frame, {15: answer(frame.ranks[15], summary("60303ae2"))})
        await app.give(odd)
        await app.sees("members  4 of 64 answered; not asked: ranks 0-11,16-63")
        await app.sees("rank 12 has 3 NaN, rank 13 has 3 NaN; the other 2 none", "no side is the")


async def test_m_of_an_op_without_members_asks_nobody_and_says_so() -> None:
    frame = answer_scenes.tensors()
    rank = frame.ranks[ASKED]
    assert rank.blocked_on is not None
    send = structs.replace(rank.blocked_on, p2p=True)
    frame = replace(
        frame, ranks={**frame.ranks, ASKED: replace(rank, blocked_on=send, pending=(send,))}
    )
    async with driven(frame) as app:
        await app.press(*TO_RANK_12)
        app.source.inspected.clear()
        await app.press("m")
        await app.sees("No members to ask")
        assert app.source.inspected == []


async def test_a_read_only_session_asks_no_rank_and_says_why() -> None:
    async with driven(scenes.hung(), size=(100, 30)) as app:
        await asked(app)
        app.source.inspected.clear()
        await app.give(replace(answer_scenes.tensors(), read_only=answer_scenes.READ_ONLY))
        await app.sees("(m members)")
        await app.press("m")
        await app.sees("The ranks may not be asked")
        await app.give(answer_scenes.read_only())
        await app.press("1")
        await app.sees("(t tensors)", "read-only")
        await app.press("t")
        await app.sees("The ranks may not be asked", "key admit", "without --read")
        await app.press("enter", "t")
        assert isinstance(app.screen, RankScreen)
        assert app.source.inspected == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("silent", "it holds the GIL and cannot answer"),
        ("stopped", "its process is stopped; `kill -CONT` lets it answer"),
        ("deadline", "it did not answer in time"),
        ("gone", "its process has ended"),
        ("none", "it has no pending op"),
        ("missing", "it cannot be asked"),
        ("failed", "it failed to read its tensors"),
        ("of the future", "of the future"),
    ],
)
def test_the_reason_for_no_answer_is_shown(error: str, words: str) -> None:
    response = answer(scenes.hung().ranks[ASKED], error=error)
    (line,) = error_lines(response, ASKED, 200)
    assert text_of(line).startswith(f"rank 12  {words}")


async def test_errors_of_ranks_tensors_and_ops_are_shown() -> None:
    frame = scenes.hung()
    rank = frame.ranks[ASKED]
    assert rank.blocked_on is not None
    stuck = structs.replace(summary(""), error="the device does not answer: stuck?")
    empty = wire.TensorSummary("output", "float32", (0,), "cpu", 0, 0)
    ops = (
        wire.OpTensors(rank.blocked_on.sequence, (stuck, empty)),
        wire.OpTensors(5, (), "its tensors are gone"),
    )
    silent = structs.replace(answer(rank, error="silent"), help="matmul holds the GIL for 40s")
    async with driven(frame) as app:
        await app.press(*TO_RANK_12)
        await app.give(with_answers(frame, {ASKED: silent}))
        await app.sees("rank 12  matmul holds the GIL for 40s")
        assert "no answer yet" not in app.text()
        response = wire.TensorsResponse(1, rank.host, rank.key, scenes.HOST_NOW, ops)
        await app.give(with_answers(frame, {ASKED: response}))
        await app.sees("the device does not answer: stuck?", "output f32[0]", "no values")
        await app.sees("an op   no longer pending", "its tensors are gone")


async def test_saving_asks_first_with_size_and_path(folder: Path) -> None:
    path = folder / "frtop-llama-70b-rank12-op8812.safetensors"
    async with driven(scenes.hung()) as app:
        await asked(app)
        for no in ("escape", "n", "tab"):
            await app.press("s")
            await app.sees(
                "Save the tensors of all_reduce #8812 of rank 12, 52.4 MB (52,428,800 bytes),"
            )
            await app.sees(f"to {path.name} in this folder?", "enter save")
            await app.press(no)
            await app.wait_for(lambda: "Save the tensors" not in app.text())
            assert app.source.orders["tensors"] == []
            assert isinstance(app.screen, TensorsScreen)
            assert app.screen.rank == ASKED
        await app.press("s", "enter")
        assert app.source.orders["tensors"] == [SaveOrder(ASKED, 30_000, path)]
        assert "Save the tensors" not in app.text()
        writing = Writing("tensors", "collecting", str(path), 12 << 20, 50 << 20)
        await app.give(replace(answer_scenes.tensors(), writings=(writing,)))
        await app.sees(f"saving 12.6 MB of 52.4 MB to {path.name}")
        await app.press("s")
        await app.sees("One file at a time")
        done = replace(writing, state="written", size=52_428_800)
        await app.give(replace(answer_scenes.tensors(), writings=(done,)))
        await app.sees(f"file  saved: {path.name}, 52.4 MB")
        problem = Problem("no space left", "free 50 MB")
        failed = replace(writing, state="failed", problem=problem)
        await app.give(replace(answer_scenes.tensors(), writings=(failed,)))
        await app.sees("saving the tensors failed: no space left; free 50 MB")


async def test_a_job_cannot_choose_the_folder_and_no_file_is_overwritten(folder: Path) -> None:
    (folder / "frtop-x-y-rank12-op8812.safetensors").touch()
    named = structs.replace(scenes.JOB, name="../../etc/x y")
    async with driven(scenes.hung()) as app:
        await asked(app)
        await app.give(replace(answer_scenes.tensors(), job=named))
        await app.press("s", "y")
        (order,) = app.source.orders["tensors"]
        assert order.path == folder / "frtop-x-y-rank12-op8812-2.safetensors"


async def test_a_read_only_host_is_named() -> None:
    only = replace(
        scenes.hung(), hosts=(HostView("node4", "reporting", may_act=False), *scenes.hosts()[5:])
    )
    async with driven(only, size=(100, 30)) as app:
        await app.press("enter")
        await app.sees("(t tensors)")
        await app.press("t")
        await app.sees("Our key is read-only on node4")
        await app.press("n", "n", "n", "t")
        assert app.source.inspected == [40]


async def test_recorded_tensors_are_shown_but_not_saved() -> None:
    async with driven(answer_scenes.recorded(), size=(100, 30)) as app:
        await app.press(*TO_RANK_12)
        assert isinstance(app.screen, TensorsScreen)
        await app.sees("NaN 3", "2s old", "(t tensors again)", "(s save)")
        await app.press("s")
        await app.sees("There is no live job to ask")
        assert app.source.orders["tensors"] == []
        await app.press("1", "enter")
        await app.sees("t tensors", "threading.py")
        await app.press("t", "t")
        await app.sees("There is no live job to ask", "The capture holds no tensors of rank 37")
        assert app.source.inspected == []


async def test_an_opening_screen_sends_nothing_while_it_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrtopApp, "_send_requests", lambda *_: None)
    monkeypatch.setattr(TensorsScreen, "request", lambda *_: None)
    async with driven(scenes.hung()) as app:
        for keys in (("t",), ("enter", "t", "n")):
            await app.press("1", *keys)
            await app.give(replace(scenes.hung(), now_ns=scenes.NOW + scenes.S))
            await app.sees("64/64 reporting")
            assert (test_requests.sent(app.source), app.source.watched) == ([], [])
