"""Opens the screens that other screens ask for."""

from __future__ import annotations

from frtop_tui.features.flame.view import FlameScreen
from frtop_tui.features.profile.view import ProfileScreen
from frtop_tui.features.tensors.view import TensorsScreen
from frtop_tui.features.timeline.queues_view import QueuesScreen
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.group import GroupScreen
from frtop_tui.screens.messages import (
    LookThrough,
    OpenGroup,
    OpenQueues,
    OpenRank,
    OpenRanks,
    OpenTensors,
    OpenTimeline,
)
from frtop_tui.screens.navigation import NavigatedApp
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.settings import SettingsScreen
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.waits import WaitsScreen
from frtop_tui.widgets.rank_grid import RankGrid


class OpeningApp(NavigatedApp, inherit_bindings=False):
    """An application that opens a screen for each message that asks for one."""

    async def on_open_rank(self, event: OpenRank) -> None:
        await self.open(RankScreen(self.marked, event.rank))

    async def on_open_ranks(self, event: OpenRanks) -> None:
        await self.open(RanksScreen(self.marked, event.filter_text, editing=event.editing))

    async def on_open_group(self, event: OpenGroup) -> None:
        await self.open(GroupScreen(self.marked, event.keys))

    async def on_open_waits(self) -> None:
        await self.open(WaitsScreen(self.marked))

    async def on_open_settings(self) -> None:
        await self.open(SettingsScreen(self.marked))

    async def on_open_timeline(self, event: OpenTimeline) -> None:
        await self.open(TimelineScreen(self.marked, event.rank, event.group, event.late))

    async def on_open_queues(self, event: OpenQueues) -> None:
        await self.open(QueuesScreen(self.marked, event.rank))

    async def on_open_stacks(self) -> None:
        await self.open(StacksScreen(self.marked))

    async def on_open_tensors(self, event: OpenTensors) -> None:
        await self.open(TensorsScreen(self.marked, event.rank, event.instead_of))

    async def action_profile(self) -> None:
        """Opens the question for the marked ranks, or the one under the cursor."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and not isinstance(screen, ProfileScreen):
            await self._open_of_ranks(ProfileScreen, screen)

    async def action_flame(self) -> None:
        """Samples the stacks of the marked ranks, or of the one under the cursor."""
        screen = self.screen
        if isinstance(screen, FrameScreen) and not isinstance(screen, FlameScreen):
            await self._open_of_ranks(FlameScreen, screen)

    async def _open_of_ranks(
        self, kind: type[ProfileScreen | FlameScreen], screen: FrameScreen
    ) -> None:
        frame = screen.frame
        known = set(frame.ranks) if frame is not None else set()
        one = getattr(screen, "rank", getattr(screen, "chosen", None))
        chosen = {one} if isinstance(one, int) else set()
        ranks = tuple(sorted((self.marked or chosen or known) & known))
        if ranks:
            await self.open(kind(self.marked, ranks))
        else:
            self.notify("No rank is known yet.", timeout=4)

    async def on_look_through(self, event: LookThrough) -> None:
        await self.action_view("job")
        self.screen.query_one(RankGrid).look_through(event.lens)
