"""A screen that is about one rank, keeps it watched, and goes to its neighbours."""

from __future__ import annotations

from frtop_tui.diagnosis.model import JudgedRank
from frtop_tui.screens.base import FrameScreen


class OneRankScreen(FrameScreen):
    """`known` is its last known state: it stays when the rank is gone from the job."""

    def __init__(self, marked: set[int], rank: int) -> None:
        super().__init__(marked)
        self.rank = rank
        self.known: JudgedRank | None = None

    @property
    def watches(self) -> tuple[int, ...]:
        return (self.rank,)

    @property
    def host(self) -> str:
        return self.known.host if self.known is not None else ""

    def action_neighbour(self, by: int) -> None:
        """To the rank beside this one, around the end."""
        if self.frame is None or not self.frame.ranks:
            return
        ranks = sorted(self.frame.ranks)
        index = ranks.index(self.rank) if self.rank in self.frame.ranks else 0
        self.rank = ranks[(index + by) % len(ranks)]
        self.known = self.frame.ranks[self.rank]
        self.turned()
        self.draw_all()

    def turned(self) -> None:
        """It is about another rank now: whatever belonged to the one before goes."""
