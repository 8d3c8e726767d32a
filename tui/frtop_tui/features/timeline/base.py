"""What the timeline and the queues have in common: the histories of ranks."""

from __future__ import annotations

from collections.abc import Mapping

from frtop_tui.connect.followers import Order
from frtop_tui.features.timeline.follow import FollowHistories
from frtop_tui.features.timeline.histories import Histories
from frtop_tui.screens.base import FrameScreen


class HistoriesScreen(FrameScreen):
    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self.histories = Histories()
        """The ops of the ranks in `followed`, as far as the source has them."""

    @property
    def followed(self) -> tuple[tuple[int, ...], int | None]:
        """Ranks whose histories are fetched, and the time from which they are."""
        raise NotImplementedError

    @property
    def orders(self) -> Mapping[type[Order], Order]:
        return {FollowHistories: FollowHistories(*self.followed)}

    def take_news(self) -> None:
        # In a frame of the past, histories no longer change once all are there.
        ranks, _ = self.followed
        there = bool(ranks) and all(rank in self.histories.ops for rank in ranks)
        if not ((self.badge or self.past) and there):
            self.histories = self.news["timeline"]
