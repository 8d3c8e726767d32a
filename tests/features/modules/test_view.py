"""The tree of modules: what each issued in which phase, as far as it is unfolded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.modules.pane import ModuleTreePane
from frtop_tui.features.modules.view import ModulesScreen
from frtop_tui.job.model import Recorded
from frtop_tui.job.statistics import ModuleRow
from screens.driving import Driven, driven
from screens.statistics_scenes import straggling

BUCKET = "DDP bucket 0: layers.0 ... layers.1 (4 parameters)"
ROWS = (
    *(
        ModuleRow(wire.Issuer(phase, f"layers.{n}.mlp", "Transformer"), "all_reduce", (0,), 8, 800)
        for n in range(12)
        for phase in ("forward", "backward")
    ),
    ModuleRow(wire.Issuer("backward", "", "Transformer", BUCKET), "all_reduce", (0,), 3, 3000),
)


def with_modules(rows: tuple[ModuleRow, ...] = ROWS) -> Frame:
    frame = straggling()
    assert frame.statistics is not None
    return replace(frame, statistics=replace(frame.statistics, modules=rows))


async def open_modules(app: Driven) -> ModulesScreen:
    await app.press("colon", *"modules", "enter")
    assert isinstance(app.screen, ModulesScreen)
    return app.screen


@pytest.mark.parametrize("size", [(60, 15), (150, 40)])
async def test_the_tree_folds_by_levels_and_by_node(size: tuple[int, int]) -> None:
    async with driven(with_modules(), size=size) as app:
        screen = await open_modules(app)
        await app.sees("job > modules", "- Transformer", "96", "99")
        pane = screen.query_one(ModuleTreePane)
        assert len(pane.rows) == 2 + 1 + 12 + 12 + 1
        assert pane.rows[0].name == "sum"
        await app.press("minus")
        assert [node.name for node in pane.rows][2:4] == ["layers", "0"]
        assert len(pane.rows) == 2 + 1 + 12 + 1
        await app.press("minus", "minus")
        assert [node.name for node in pane.rows] == ["sum", "Transformer"]
        await app.press("enter")  # the sum does not fold
        assert len(pane.rows) == 2
        await app.press("j", "enter")
        assert [node.name for node in pane.rows] == ["sum", "Transformer", "layers", BUCKET]
        await app.press("plus", "plus", "plus")
        assert len(pane.rows) == 28


async def test_a_long_name_shows_its_end_and_stands_in_full_below_the_tree() -> None:
    async with driven(with_modules(), size=(80, 24)) as app:
        await open_modules(app)
        await app.press("end")
        await app.sees("(4 parameters)", f"Transformer.{BUCKET}")


async def test_it_waits_for_the_ranks_and_then_says_how_modules_are_recorded() -> None:
    frame = with_modules(())
    assert frame.statistics is not None
    silent = replace(frame.statistics, ranks=(), missing=tuple(frame.ranks), calls=())
    before = replace(frame.statistics, with_calls=False, calls=())
    few = replace(frame.statistics, ranks=(0,), calls=())
    async with driven(replace(frame, statistics=None)) as app:
        await open_modules(app)
        for found, words in ((silent, "0 of 64"), (before, "0 of 64"), (few, "1 of 64")):
            await app.give(replace(frame, statistics=found))
            await app.sees(f"waiting for the ranks' answers ({words})")
            assert "no op" not in app.text()
        await app.give(frame)
        await app.sees(
            "modules are not recorded: `M` on `:record`, or `frtop recorder --modules on`"
        )


async def test_of_a_file_it_shows_the_files_window() -> None:
    frame = replace(with_modules(), recorded=Recorded("capture", "/tmp/a.cap", 0))
    async with driven(frame) as app:
        await open_modules(app)
        await app.sees("collectives by module · sum of 62 ranks, 2 missing · last 60 s")
        await app.press("W")
        await app.sees("The window is the one in the file.")


async def test_it_says_whose_window_it_still_shows() -> None:
    async with driven(with_modules(), size=(120, 24)) as app:
        await open_modules(app)
        await app.sees("window as far as rings reach, asked for: still last 60 s")
        await app.press("W")
        await app.sees("sum of 62 ranks, 2 missing · last 60 s")
