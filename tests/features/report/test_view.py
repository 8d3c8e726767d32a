"""`:report`: a row for each name, its findings and values; values beside the steps."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from features.report.scenes import LR, OTHER_LR, loss, sent
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.metrics.families import MOST_NAMES, reported_values
from frtop_tui.features.report.view import ReportedScreen
from screens.driving import driven
from screens.statistics_scenes import straggling


def reporting() -> Frame:
    frame = straggling()
    ranks = {
        number: replace(
            view,
            reported=(
                sent("loss", [*loss(number)[:4], math.nan] if number == 1 else loss(number)),
                sent("lr", OTHER_LR if number == 2 else LR),
                sent("[bold]", [-1.5] * 5),
            ),
        )
        for number, view in frame.ranks.items()
    }
    return replace(frame, ranks=ranks)


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
async def test_each_name_has_a_row_and_its_findings_below(size: tuple[int, int]) -> None:
    async with driven(reporting(), size=size) as app:
        await app.press("colon", *"report", "enter")
        assert isinstance(app.screen, ReportedScreen)
        await app.sees("reported by the job: 2 findings", "[bold]", "nan: rank 1, step 5")
        await app.sees("loss: rank 1 reported nan at step 5")
        await app.press("j")
        await app.sees("lr: rank 2 differs in 2 of 5 steps")
        await app.press("enter")
        await app.sees("> rank 2")


async def test_without_values_it_says_how_to_report_some() -> None:
    async with driven(straggling(), size=(80, 24)) as app:
        await app.press("colon", *"report", "enter")
        await app.sees("no values are reported: see frtop_probe.report(), or frtop run --report")


async def test_the_screen_of_a_rank_shows_its_newest_values() -> None:
    async with driven(reporting(), size=(150, 40)) as app:
        await app.press("colon", *"rank 2", "enter")
        await app.sees("reported at step 5: loss 0.485714, lr 0.02, [bold] -1.5")


async def test_statistics_show_medians_beside_the_steps() -> None:
    async with driven(reporting(), size=(150, 40)) as app:
        await app.press("5")
        await app.sees("reported by the job: loss ", "(2 findings: :report)")


def test_metrics_are_bounded() -> None:
    frame = reporting()
    found = dict(reported_values(frame.ranks.values()))
    assert found["lr", "2"] == OTHER_LR[-1]
    assert math.isnan(found["loss", "1"] or 0.0)
    many = [
        replace(view, reported=tuple(sent(f"{view.rank}.{n}", [1.0]) for n in range(30)))
        for view in frame.ranks.values()
    ]
    assert len(dict(reported_values(many))) == MOST_NAMES
