"""The key and the command of the profiler."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.profile.view import ProfileScreen
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.completion import Action, TypedCommand
from frtop_tui.screens.contributed import (
    FeatureApp,
    FeatureKey,
    PlacedCommand,
    Screens,
    chosen_ranks,
)


async def _press(app: FeatureApp, screen: FrameScreen) -> None:
    """Opens the question for the marked ranks, or the one under the cursor."""
    if not isinstance(screen, ProfileScreen) and (ranks := chosen_ranks(app, screen)):
        await app.open(ProfileScreen(app.marked, ranks))


SCREENS: Final = Screens(
    commands=(
        PlacedCommand(30, TypedCommand("profile", "torch's profiler in the marked ranks",
                                       lambda *_: Action("feature('profile')"), key="P",
                                       needs="profile")),
    ),
    keys=(
        FeatureKey("P", "profile", "profile",
                   "torch's profiler in the marked ranks: asks first, with its cost", _press),
    ),
    styles=("profile/view.tcss",),
)  # fmt: skip
