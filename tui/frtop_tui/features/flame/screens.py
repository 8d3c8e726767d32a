"""The key and the command of sampled stacks."""

from __future__ import annotations

from functools import partial
from typing import Final

from frtop_probe.proc import daemon_thread
from frtop_tui.features.flame.file import write_samples
from frtop_tui.features.flame.view import FlameScreen, SaveSamples
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
    """Samples the stacks of the marked ranks, or of the one under the cursor."""
    if not isinstance(screen, FlameScreen) and (ranks := chosen_ranks(app, screen)):
        await app.open(FlameScreen(app.marked, ranks))


async def _save(app: FeatureApp, event: SaveSamples) -> None:
    """Writes both forms beside each other."""
    write = partial(write_samples, event.samples.ranks, app.source.frame(), app.preferences.folder)
    try:
        paths = await daemon_thread.run(write, "frtop samples")
    except OSError as error:
        app.notify(f"Not written: {error.strerror}", severity="warning")
    else:
        app.notify(f"Written: {', '.join(map(str, paths))}", timeout=8)


SCREENS: Final = Screens(
    commands=(
        PlacedCommand(40, TypedCommand("flame", "sampled stacks of the marked ranks",
                                       lambda *_: Action("feature('flame')"), key="r")),
    ),
    keys=(
        FeatureKey("r", "flame", "sampled stacks",
                   "of the marked ranks: ten seconds as a flame tree, from outside", _press),
    ),
    handlers={SaveSamples: _save},
)  # fmt: skip
