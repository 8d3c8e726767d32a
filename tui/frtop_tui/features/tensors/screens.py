"""The screen of a rank's tensors, its key and its command."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.tensors.target import tensor_target
from frtop_tui.features.tensors.view import TensorsScreen
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.completion import CommandScope, Outcome, TypedCommand, rank_numbers, rank_of
from frtop_tui.screens.contributed import (
    FeatureApp,
    FeatureKey,
    PlacedCommand,
    Screens,
    rank_of_screen,
)


async def _press(app: FeatureApp, screen: FrameScreen) -> None:
    """Opens the tensors of the rank, or, from a list, of one that waits for it."""
    rank = rank_of_screen(screen)
    if rank is None or screen.frame is None or not screen.check_available("tensors"):
        return
    target = rank if screen.target is not None else tensor_target(screen.frame, rank)
    await app.open(TensorsScreen(app.marked, target, rank if target != rank else None))


def _tensors(text: str, situation: CommandScope) -> Outcome:
    return TensorsScreen(situation.marked, rank_of(text, situation))


SCREENS: Final = Screens(
    commands=(
        PlacedCommand(10, TypedCommand("tensors", "tensors of a rank's pending ops", _tensors, "N",
                                       rank_numbers, needs="tensors")),
    ),
    keys=(
        FeatureKey("t", "tensors", "tensors", "statistics of the rank's tensors", _press,
                   on_ranks=True, comes_first=True),
    ),
    styles=("tensors/view.tcss",),
)  # fmt: skip
