"""`R` shows the risk of asking NCCL's RAS; only a second `R` asks."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.ras.json_answer import parse_json
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.ras import READ_NS
from ras.answers import as_json, communicator, rank

from . import answer_scenes, scenes
from .driving import Driven, driven

CULPRIT = 37
LOOK = wire.RasResponse(
    1, "node4", 38, 1, version="2.28.9", version_source="the data of its file",
    address="[::1]:28028", checked=("stacks of 8 ranks",), unchecked=("ranks on other hosts",),
)  # fmt: skip


def with_ras(frame: Frame, later_ns: int = 0, **responses: wire.RasResponse) -> Frame:
    view = replace(frame.ranks[CULPRIT], **responses)
    ranks = {**frame.ranks, CULPRIT: view}
    return replace(frame, ranks=ranks, now_ns=frame.now_ns + later_ns)


async def looked(app: Driven, look: wire.RasResponse = LOOK) -> Frame:
    """The risk is on the screen, and has been for long enough to be read."""
    await app.press("R")
    await app.sees(f"NCCL's RAS, through rank {CULPRIT}", "looking for reasons not to ask")
    assert app.source.ras_asked == [(CULPRIT, True)]
    frame = with_ras(scenes.hung(), ras_look=look)
    await app.give(frame)
    return replace(frame, now_ns=frame.now_ns + READ_NS)


async def test_the_first_press_shows_the_risk_and_the_second_asks() -> None:
    async with driven(scenes.hung(), size=(120, 40)) as app:
        later = await looked(app)
        await app.sees("RISK", "NCCL 2.28.9", "nccl#1762", "R asks now, once", "unchecked")
        await app.press("R")  # held down: nobody has read the risk
        assert app.source.ras_asked == [(CULPRIT, True)]
        await app.give(later)
        await app.press("R")
        assert app.source.ras_asked == [(CULPRIT, True), (CULPRIT, False)]
        await app.sees("RAS may take some 10 seconds")
        await app.press("R")  # one is under way
        assert len(app.source.ras_asked) == 2
        report = parse_json(as_json(communicator([rank(0, 1), rank(1, 2, 8811)])))
        said = wire.RasResponse(2, "node4", 38, 1, asked=True, report=report)
        await app.give(with_ras(later, ras=said))
        await app.sees("AllReduce", "8,811 (1 fewer)", "R shows the risk of asking again")
        await app.press("R")
        assert app.source.ras_asked[-1] == (CULPRIT, True)  # each answer has its own risk


async def test_esc_leaves_without_asking() -> None:
    async with driven(scenes.hung()) as app:
        await looked(app)
        await app.press("escape")
        assert isinstance(app.screen, Overview)
        assert app.source.ras_asked == [(CULPRIT, True)]


async def test_what_is_in_the_way_is_shown_and_looked_at_again() -> None:
    async with driven(scenes.hung(), size=(100, 30)) as app:
        refusal = "process 7 may be making a communicator; ask again when it is over"
        later = await looked(app, wire.RasResponse(1, "node4", 38, 1, error="making", help=refusal))
        await app.sees("RAS is not asked: process 7 may be making a communicator")
        await app.give(later)
        await app.press("R")
        assert app.source.ras_asked == [(CULPRIT, True), (CULPRIT, True)]


async def test_it_opens_from_a_rank_and_fits_a_narrow_terminal() -> None:
    async with driven(scenes.hung(), size=(60, 20)) as app:
        await app.press("enter")
        await looked(app)
        await app.sees("job > rank 37 > RAS at rank 37", "RISK")
        assert all(len(line) <= 60 for line in app.text().split("\n"))


async def test_a_recording_and_a_read_only_screen_ask_nobody() -> None:
    for scene, words in (
        (answer_scenes.recorded, "There is no live job to ask"),
        (answer_scenes.read_only, "read-only"),
    ):
        async with driven(scene(), size=(120, 30)) as app:
            await app.press("R")
            await app.sees(words)
            await app.press("R")
            assert app.source.ras_asked == []
