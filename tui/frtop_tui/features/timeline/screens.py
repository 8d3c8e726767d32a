"""The timeline view, the queues view, and their keys."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.timeline.queues_view import QueuesScreen
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.contributed import FeatureApp, FeatureKey, Screens, View, rank_of_screen
from frtop_tui.screens.messages import OpenTimeline


async def _open_timeline(app: FeatureApp, event: OpenTimeline) -> None:
    await app.open(TimelineScreen(app.marked, event.rank, event.group, event.late))


async def _press_timeline(app: FeatureApp, screen: FrameScreen) -> None:
    await app.open(TimelineScreen(app.marked, rank_of_screen(screen), screen.group_of_interest))


async def _press_queues(app: FeatureApp, screen: FrameScreen) -> None:
    await app.open(QueuesScreen(app.marked, rank_of_screen(screen)))


SCREENS: Final = Screens(
    views=(
        View("timeline", TimelineScreen, "who did what when, on one clock", place=60),
        View("queues", QueuesScreen, "queues of some ranks side by side", place=70),
    ),
    keys=(
        FeatureKey("T", "timeline", "timeline", "who did what when, on one clock",
                   _press_timeline, id="when", on_ranks=True),
        FeatureKey("c", "queues", "compare", "queues of some ranks side by side",
                   _press_queues, on_ranks=True),
    ),
    handlers={OpenTimeline: _open_timeline},
    styles=("timeline/view.tcss", "timeline/queues_view.tcss"),
)  # fmt: skip
