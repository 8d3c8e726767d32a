"""The screen of a rank's output, its key and command, and the line below a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frtop_tui.features.output.telling import ranks_to_read
from frtop_tui.features.output.view import OutputScreen
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.completion import (
    CommandError,
    CommandScope,
    Outcome,
    TypedCommand,
    rank_numbers,
    rank_of,
)
from frtop_tui.screens.contributed import (
    NOBODY,
    FeatureApp,
    FeatureKey,
    PlacedCommand,
    Screens,
    rank_of_screen,
)
from frtop_tui.text.lines import WordLine


async def _press(app: FeatureApp, screen: FrameScreen) -> None:
    rank = rank_of_screen(screen)
    if rank is None:
        app.notify(NOBODY, timeout=4)
    elif not isinstance(screen, OutputScreen):
        await app.open(OutputScreen(app.marked, rank))


def _output(text: str, situation: CommandScope) -> Outcome:
    """Without a rank: of the first that a verdict names, else of the first one."""
    frame = situation.frame
    first = next(iter((*ranks_to_read(frame), *sorted(frame.ranks))), None)
    if not text and first is None:
        raise CommandError(NOBODY)
    return OutputScreen(situation.marked, rank_of(text or str(first), situation))


def _remark(news: Mapping[str, Any]) -> WordLine | None:
    lines: tuple[str, ...] = news["output"]
    return WordLine("output", f"{lines[0]}: `:output`", "warn") if lines else None


SCREENS: Final = Screens(
    commands=(
        PlacedCommand(15, TypedCommand("output", "the last lines that a rank wrote to files",
                                       _output, "[N]", rank_numbers, key="O")),
    ),
    keys=(
        FeatureKey("O", "output", "output", "the last lines that the rank wrote to files", _press,
                   on_ranks=True),
    ),
    styles=("output/view.tcss",),
    remark=_remark,
)  # fmt: skip
