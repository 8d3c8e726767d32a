"""Opens the screens that other screens ask for."""

from __future__ import annotations

from textual import on

from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.commands import view_of
from frtop_tui.screens.contributed import of_features
from frtop_tui.screens.group import GroupScreen
from frtop_tui.screens.messages import (
    FeatureMessage,
    LookThrough,
    OpenGroup,
    OpenRank,
    OpenRanks,
    OpenView,
)
from frtop_tui.screens.navigation import NavigatedApp
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.widgets.rank_grid import RankGrid


class OpeningApp(NavigatedApp, inherit_bindings=False):
    """An application that opens a screen for each message that asks for one."""

    async def on_open_rank(self, event: OpenRank) -> None:
        await self.open(RankScreen(self.marked, event.rank))

    async def on_open_ranks(self, event: OpenRanks) -> None:
        await self.open(RanksScreen(self.marked, event.filter_text, editing=event.editing))

    async def on_open_group(self, event: OpenGroup) -> None:
        await self.open(GroupScreen(self.marked, event.keys))

    async def on_open_view(self, event: OpenView) -> None:
        await self.open(view_of(event.name).screen(self.marked))

    @on(FeatureMessage)
    async def _do_for_feature(self, event: FeatureMessage) -> None:
        for screens in of_features():
            if (handler := screens.handlers.get(type(event))) is not None:
                await handler(self, event)

    async def action_feature(self, name: str) -> None:
        """Runs the feature's key of this name."""
        screen = self.screen
        keys = (key for screens in of_features() for key in screens.keys if key.name == name)
        press = next((key.press for key in keys), None)
        if press is not None and isinstance(screen, FrameScreen):
            await press(self, screen)

    async def on_look_through(self, event: LookThrough) -> None:
        await self.action_view("job")
        self.screen.query_one(RankGrid).look_through(event.lens)
