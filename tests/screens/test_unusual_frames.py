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
        for keys in (["1"], ["2"], ["enter"], ["colon", *"waits", "enter"], ["3"]):
            await app.press(*keys)
            assert not re.search(r"\d{4,}d\d\dh|<1s", app.text()), app.text()
            assert "b takes one" not in app.text()
        await app.sees("no hosts: Flight Recorder dumps do not name them")


def partly_reported() -> Frame:
    frame = scenes.healthy()
    return replace(frame, coverage=replace(frame.coverage, reporting=60))


def never_reported() -> Frame:
    ranks = {n: view for n, view in scenes.hung().ranks.items() if n != 12}
    return replace(scenes.hung(), ranks=ranks, verdicts=())


def dead_with_a_process() -> Frame:
    frame = scenes.dead()
    seen = scenes.snapshot(5, ())
    rank = replace(frame.ranks[5], snapshot=seen, process=seen.processes[0], exception=None)
    return replace(frame, ranks={**frame.ranks, 5: rank})


LOOKS: list[tuple[Frame, list[str], list[str], list[str]]] = [
    # the frame, keys, what is seen then, and what is not
    (scenes.connecting(), [],
     ["CONNECTING", "no report yet", "node3  no answer yet", "no ranks yet"], []),
    (scenes.no_agent(), [],
     ["nobody answers at node0:7790", "frtop attach", "connection refused"], []),
    (scenes.healthy(), [],
     ["HEALTHY for 3h03m", "no rank waits unusually long", " .  moving 64"], []),
    (partly_reported(), [],
     ["HEALTHY (as far as reported) for 3h03m", "60/64 reporting"], []),
    (replace(scenes.healthy(), notes=("rank 9 of an earlier attempt died",)), [],
     ["rank 9 of an earlier attempt died"], []),
    (rare_scenes.over(), [], ["tp:* x8", "ended"], ["idle"]),
    (scenes.two_roots(), [],
     ["2 verdicts, root causes first", "1 of 2  died", "2 of 2  not entered", " ?   ?   ?   ?",
      "56/64 reporting, 3 updates lost", "node7 has not reported for 41s",
      "below c10d: not seen"], []),
    (scenes.two_roots(), ["2", "slash", *"60", "enter", "enter"],
     ["unreachable for 41s; its last known state is shown"], []),
    (scenes.dead(), ["enter"],
     ["RuntimeError: CUDA error: an illegal memory access", "ended the program",
      "ended with exit status 1, 30s ago", "its process is gone", "train.py:226"], []),
    (dead_with_a_process(), ["enter"],
     ["its process is gone", "its process has ended: no stack", "ended with exit status 1"],
     ["sleeping", "beat"]),
    (scenes.refused(), ["enter"],
     ["ptrace_scope is 1", "sysctl kernel.yama.ptrace_scope=0"], []),
    (scenes.refused(), ["4"], ["no stack  1 rank 37: the kernel refused"], []),
    (never_reported(), [], ["?  unreachable 1"], []),
    (never_reported(), ["G", "enter"], ["rank 12 has never reported"], []),
]  # fmt: skip


async def test_each_of_them_has_its_own_sentence() -> None:
    async with driven(LOOKS[0][0], size=(120, 50)) as app:
        for frame, keys, words, absent in LOOKS:
            await app.press("1")
            await app.give(frame)
            await app.press(*keys)
            await app.sees(*words)
            assert not [word for word in absent if word in app.text()], app.text()


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


async def test_a_job_name_with_a_space_is_quoted_and_p2p_ops_are_counted() -> None:
    frame = rare_scenes.pipeline()
    async with driven(frame, size=(100, 60)) as app:
        await app.sees("llama-70b · +1 other job (J) · 64 ranks", "other jobs  1 ended; J shows it")
        await app.sees("81 p2p", "send/recv")
        assert "no op yet" not in app.text()
        await app.give(replace(frame, running_jobs=frame.other_jobs))
        await app.sees("other jobs  1 live; J shows it, or frtop --job 'llama 13b'")


async def test_all_keys_work_on_an_empty_frame() -> None:
    async with driven(Frame(scenes.NOW, scenes.WALL, "empty")) as app:
        await app.sees("NO JOB")
        for key in ("enter", "j", "l", "space", "2", "enter", "4", "b", "space", "1", "y", "b"):
            await app.press(key)
        assert app.source.dumped == []


EVERY_SCREEN = ("enter", "escape", "t", "2", "3", "4", "J", "question_mark", "1")


@pytest.mark.parametrize(("size", "keys"), [
    ((60, 15), ("enter", "4", "1")),
    *(pytest.param(size, EVERY_SCREEN, marks=pytest.mark.long)
      for size in ((60, 15), (80, 24), (200, 60))),
])  # fmt: skip
async def test_every_scene_is_drawn_on_every_screen(
    size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    async with driven(scenes.connecting(), size=size) as app:
        for scene, frame in answer_scenes.SCENES.items():
            if scene == "many":  # has its own test of cost
                continue
            await app.give(frame())
            for key in keys:
                await app.press(key)
                assert "?" in app.text(), (scene, key)


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


async def test_screens_follow_the_terminal_also_where_it_is_too_small() -> None:
    async with driven(scenes.hung()) as app:
        await app.resize(200, 60)
        await app.sees("most relevant ranks", "train.py:231", "rank 37 (node4)")
        await app.resize(50, 12)
        await app.sees("60x15", "50x12")
        await app.resize(80, 24)
        await app.wait_for(lambda: "most relevant ranks" not in app.text())
        await app.sees("rank 37 (node4)", "[L]")
        await app.press("enter")
        await app.sees("job > rank 37  dp:0 · ")


async def test_brackets_in_names_are_not_markup() -> None:
    verdict = replace(scenes.hung().verdicts[0], headline="[bold]rank[/bold] [37] waits")
    async with driven(replace(scenes.hung(), verdicts=(verdict,))) as app:
        await app.sees("[bold]rank[/bold] [37] waits")
        await app.press("slash", *"host:node[1-2]")
        await app.sees("ranks 16 of 64, filter host:node[1-2]")
