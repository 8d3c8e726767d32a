"""Frames with something missing or unusual: each has its own sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from files.flightrecorder.writer import make_recorders, write_dumps
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.loader import open_paths
from frtop_tui.screens.rank import RankScreen

from . import answer_scenes, rare_scenes, scenes
from .driving import driven


async def test_a_dump_without_ops_shows_no_age(tmp_path: Path) -> None:
    """Its times are absent, not of 1970."""
    frame = open_paths([write_dumps(tmp_path, make_recorders(3))])
    async with driven(frame, size=(200, 50)) as app:
        for keys in (["1"], ["2"], ["enter"], ["colon", *"waits", "enter"]):
            await app.press(*keys)
            assert not re.search(r"\d{4,}d\d\dh", app.text()), app.text()


async def test_a_healthy_job_is_called_healthy() -> None:
    async with driven(scenes.healthy()) as app:
        await app.sees("HEALTHY for 3h03m", "no rank waits unusually long", ". moving 64")


async def test_a_partly_reported_healthy_job_says_so() -> None:
    frame = replace(scenes.healthy(), coverage=replace(scenes.healthy().coverage, reporting=60))
    async with driven(frame) as app:
        await app.sees("HEALTHY (as far as reported) for 3h03m", "60/64 reporting")


async def test_connecting_hosts_are_listed() -> None:
    async with driven(scenes.connecting()) as app:
        await app.sees("CONNECTING", "no report yet", "node3  no answer yet", "no ranks yet")


async def test_a_missing_agent_is_a_sentence_with_a_next_step() -> None:
    async with driven(scenes.no_agent()) as app:
        await app.sees("nobody answers at node0:7790", "frtop attach", "connection refused")


async def test_a_refused_connection_is_shown_once() -> None:
    said = "connection refused at node0:7790: start an agent there"
    frame = scenes.no_agent()
    frame = replace(frame, problem=said, hosts=(replace(frame.hosts[0], problem=said),))
    async with driven(frame, size=(120, 30)) as app:
        await app.sees(said)
        assert app.text().count("connection refused") == 1


async def test_an_unknown_job_name_shows_the_way_to_other_jobs() -> None:
    frame = rare_scenes.another_job()
    async with driven(frame) as app:
        await app.sees("NO JOB · no job is called 'gpt'", "+1 job (J)", "agents answer")
        await app.sees("jobs  1 ended; J shows it")
        assert "no report" not in app.text()
        await app.give(replace(frame, running_jobs=frame.other_jobs))
        await app.sees("jobs  1 live; J shows it, or frtop --job llama-70b")
        await app.press("J")
        await app.sees("llama-70b", "node0:29500")


async def test_a_job_name_with_a_space_is_quoted() -> None:
    frame = rare_scenes.pipeline()
    async with driven(frame, size=(100, 60)) as app:
        await app.sees("llama-70b · +1 other job (J) · 64 ranks", "other jobs  1 ended; J shows it")
        await app.give(replace(frame, running_jobs=frame.other_jobs))
        await app.sees("other jobs  1 live; J shows it, or frtop --job 'llama 13b'")


async def test_a_group_of_p2p_ops_shows_their_number() -> None:
    async with driven(rare_scenes.pipeline(), size=(100, 40)) as app:
        await app.sees("81 p2p", "send/recv")
        assert "no op yet" not in app.text()


async def test_groups_of_an_ended_job_are_not_idle() -> None:
    async with driven(rare_scenes.over(), size=(120, 30)) as app:
        await app.sees("tp:* x8", "ended")
        assert "idle" not in app.text()


async def test_notes_of_the_frame_are_shown() -> None:
    frame = replace(scenes.healthy(), notes=("rank 9 of an earlier attempt died",))
    async with driven(frame, size=(100, 40)) as app:
        await app.sees("rank 9 of an earlier attempt died")


async def test_all_keys_work_on_an_empty_frame() -> None:
    async with driven(Frame(scenes.NOW, scenes.WALL, "empty")) as app:
        await app.sees("NO JOB")
        for key in ("enter", "j", "l", "space", "2", "enter", "4", "b", "space", "1", "y", "b"):
            await app.press(key)
        assert app.source.dumped == []


@pytest.mark.parametrize("scene", sorted(rare_scenes.SCENES))
@pytest.mark.parametrize(
    "size",
    [(60, 15), *(pytest.param(one, marks=pytest.mark.long) for one in ((80, 24), (200, 60)))],
)
async def test_every_scene_is_drawn_on_every_screen(scene: str, size: tuple[int, int]) -> None:
    if scene == "many":
        pytest.skip("has its own test of cost")
    async with driven(rare_scenes.SCENES[scene](), size=size) as app:
        for key in ("enter", "escape", "2", "4", "question_mark", "1"):
            await app.press(key)
            await app.sees("?")


@pytest.mark.parametrize("scene", sorted(answer_scenes.SCENES.keys() - rare_scenes.SCENES.keys()))
async def test_every_answer_scene_is_drawn_on_every_screen(scene: str) -> None:
    async with driven(answer_scenes.SCENES[scene](), size=(60, 15)) as app:
        for key in ("enter", "t", "2", "3", "4", "J", "question_mark"):
            await app.press(key)
            await app.sees("?")
        await app.resize(200, 60)
        await app.press("1")
        await app.sees("most relevant ranks")


async def test_two_verdicts_are_shown_below_each_other() -> None:
    async with driven(scenes.two_roots(), size=(120, 50)) as app:
        await app.sees("2 verdicts, root causes first", "1 of 2  died", "2 of 2  not entered")
        await app.sees("56/64 reporting, 3 updates lost", "node7 has not reported for 41s")
        await app.sees("below c10d: not seen", "????????")


async def test_an_uncaught_exception_is_shown_first() -> None:
    async with driven(scenes.dead(), size=(120, 32)) as app:
        await app.press("enter")
        await app.sees("RuntimeError: CUDA error: an illegal memory access", "ended the program")
        await app.sees("ended with exit code 1, 30s ago", "its process is gone", "train.py:226")


async def test_a_refused_stack_shows_reason_and_command() -> None:
    async with driven(scenes.refused(), size=(100, 40)) as app:
        await app.press("enter")
        await app.sees("ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0")
        await app.press("4")
        await app.sees("no stack  1 rank 37: the kernel refused")


async def test_an_unreachable_rank_shows_for_how_long() -> None:
    async with driven(scenes.two_roots(), size=(100, 40)) as app:
        await app.press("2", "slash", *"60", "enter", "enter")
        await app.sees("unreachable for 41s; its last known state is shown")


async def test_a_rank_that_leaves_the_job_keeps_its_last_state() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("enter")
        await app.sees("rank 37")
        ranks = {n: view for n, view in scenes.hung().ranks.items() if n != 37}
        await app.give(replace(scenes.hung(), ranks=ranks))
        assert isinstance(app.screen, RankScreen)
        await app.sees("no longer in the job", "threading.py")
        await app.press("n")
        await app.sees("rank 1 ")


async def test_a_rank_that_was_never_reported_can_be_opened() -> None:
    ranks = {n: view for n, view in scenes.hung().ranks.items() if n != 12}
    async with driven(replace(scenes.hung(), ranks=ranks, verdicts=())) as app:
        await app.sees("? unreachable 1")
        await app.press("G", "enter")
        await app.sees("rank 12 has never reported")


async def test_a_too_small_terminal_shows_both_sizes_and_recovers() -> None:
    async with driven(scenes.hung()) as app:
        await app.resize(50, 12)
        await app.sees("60x15", "50x12")
        await app.resize(80, 24)
        await app.sees("rank 37 (node4)", "bbbbbLbb")
        await app.press("enter")
        await app.sees("job > dp:0 > rank 37")


async def test_screens_follow_the_terminal_from_small_to_large_and_back() -> None:
    async with driven(scenes.hung()) as app:
        await app.resize(200, 60)
        await app.sees("most relevant ranks", "train.py:231", "rank 37 (node4)")
        await app.resize(80, 24)
        await app.wait_for(lambda: "most relevant ranks" not in app.text())
        await app.sees("rank 37 (node4)", "bbbbbLbb")


async def test_brackets_in_names_are_not_markup() -> None:
    verdict = replace(scenes.hung().verdicts[0], headline="[bold]rank[/bold] [37] waits")
    async with driven(replace(scenes.hung(), verdicts=(verdict,))) as app:
        await app.sees("[bold]rank[/bold] [37] waits")
        await app.press("slash", *"host:node[1-2]")
        await app.sees("ranks 16 of 64, filter host:node[1-2]")


async def test_a_dead_rank_is_not_shown_as_if_it_still_ran() -> None:
    frame = scenes.dead()
    ranks = dict(frame.ranks)
    seen = scenes.snapshot(5, ())
    process = seen.processes[0]
    ranks[5] = replace(ranks[5], snapshot=seen, process=process, exception=None)
    async with driven(replace(frame, ranks=ranks), size=(120, 32)) as app:
        await app.press("enter")
        await app.sees(
            "its process is gone", "its process has ended: no stack", "ended with exit code 1"
        )
        assert "sleeping" not in app.text()
        assert "beat" not in app.text()
