"""`J` lists the jobs, `enter` shows another one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.job.job_activity import other_jobs_line
from frtop_tui.job.naming import job_address, job_key
from frtop_tui.screens.overview import Overview
from frtop_tui.widgets.jobs import job_rows
from frtop_tui.widgets.rank_grid import RankGrid

from . import answer_scenes, rare_scenes, scenes
from .driving import driven


async def test_jobs_are_distinguished_and_the_shown_one_is_marked() -> None:
    async with driven(answer_scenes.jobs(), size=(120, 24)) as app:
        await app.sees("llama-70b · attempt 1 · +2 other jobs (J)")
        await app.press("J")
        await app.sees("jobs 3", "> llama-70b", "live, shown", "llama 13b", "node1:29511", "ended")
        assert [
            (row.job.attempt, row.lives, row.shown) for row in job_rows(answer_scenes.jobs())
        ] == [
            (1, True, True),
            (0, True, False),
            (0, False, False),
        ]
        await app.resize(80, 24)
        await app.sees(
            "live, shown", "age", "2h00m", "waits 4m12s", "0.4s ago", "node1:29511", "llama-70b#1"
        )


def test_a_job_without_an_address_has_an_empty_cell() -> None:
    """It was found from outside, and talks through a file or its parent."""
    frame = answer_scenes.jobs()
    alone = replace(frame.other_jobs[0], master_addr="", master_port=0)
    rows = job_rows(replace(frame, other_jobs=(alone,), running_jobs=()))
    assert [job_address(row.job) for row in rows] == ["node0:29500", ""]


async def test_enter_chooses_a_job_and_opens_its_overview() -> None:
    frame = answer_scenes.jobs()
    async with driven(frame) as app:
        await app.press("space", "2", "J", "j")
        new = wire.Job("node9", 29500, 8, name="new")
        await app.give(
            replace(
                frame, other_jobs=(new, *frame.other_jobs), running_jobs=(new, *frame.running_jobs)
            )
        )
        await app.press("enter")  # the cursor stays on its job
        assert app.source.chosen == [job_key(frame.other_jobs[1])]
        assert isinstance(app.screen, Overview)
        assert len(app.app.screen_stack) == 1
        # Marks belong to the ranks of the previous job.
        assert app.app.marked == set()


async def test_while_no_job_is_shown_others_can_be_chosen_or_it_says_how_to_start_one() -> None:
    async with driven(scenes.connecting()) as app:
        await app.press("J")
        await app.sees("no job yet; `frtop run -- torchrun ...` starts one")
        await app.press("enter", "escape")
        assert isinstance(app.screen, Overview)
        assert app.source.chosen == []
        await app.give(rare_scenes.another_job())
        await app.sees("+1 job (J)", "J shows it")
        await app.press("J", "enter")
        assert app.source.chosen == [job_key(scenes.JOB)]


@pytest.mark.parametrize("how", ["ended", "dead"])
async def test_a_job_whose_ranks_have_all_ended_is_not_live(how: str) -> None:
    frame = rare_scenes.over() if how == "dead" else replace(scenes.healthy(), health="ended")
    assert not job_rows(frame)[0].lives
    async with driven(frame, size=(80, 24)) as app:
        await app.press("J")
        await app.sees("ended, shown")


async def test_the_cursor_moves_to_the_culprit_of_the_next_job() -> None:
    async with driven(scenes.hung()) as app:
        grid = app.screen.query_one(RankGrid)
        await app.press("l")
        assert grid.chosen == 38
        await app.give(replace(scenes.hung(), job=wire.Job("node0", 29501, 64)))
        assert grid.chosen == scenes.CULPRIT


async def test_many_other_jobs_take_one_line_with_a_way_to_one_of_them() -> None:
    frame = answer_scenes.jobs()
    old = tuple(wire.Job("node0", 29500, 64, name="llama 13b", nonce=f"o{n}") for n in range(9))
    frame = replace(frame, other_jobs=(*frame.other_jobs, *old))
    assert len(other_jobs_line(frame).splitlines()) == 1
    recorded = replace(answer_scenes.recorded(), other_jobs=frame.other_jobs)
    async with driven(frame, size=(120, 40)) as app:
        await app.sees(
            "other jobs  1 live (waits 4m12s), 10 ended; J shows them, or frtop --job r2"
        )
        await app.give(recorded)
        await app.sees("other jobs  11 ended; J lists them")
        assert "--job" not in app.text()
        await app.press("J", "j", "enter")
        await app.sees("A capture holds one job")
        assert app.source.chosen == []
