"""The view of statistics."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.statistics.view import StatisticsScreen
from frtop_tui.screens.completion import CommandError, CommandScope, Outcome, nearest
from frtop_tui.screens.contributed import Screens, View

WINDOWS: Final = {"10s": 10.0, "60s": 60.0, "all": 0.0}


def _stats(text: str, situation: CommandScope) -> Outcome:
    if text not in WINDOWS:
        raise CommandError(f"no window {text}{nearest(text, tuple(WINDOWS))}")
    return StatisticsScreen(situation.marked, WINDOWS[text])


SCREENS: Final = Screens(
    views=(
        View("stats", StatisticsScreen, "what ops cost, who arrives last, where a step goes", "5",
             argument="[10s|60s|all]", run=_stats, values=lambda _: WINDOWS, place=50),
    ),
    styles=("statistics/view.tcss",),
)  # fmt: skip
