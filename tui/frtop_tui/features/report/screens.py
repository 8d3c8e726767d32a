"""The view of values that the job reports."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.report.view import ReportedScreen
from frtop_tui.screens.contributed import Screens, View

SCREENS: Final = Screens(
    views=(
        View("report", ReportedScreen,
             "loss, learning rate and other values that the job reports, compared between ranks",
             place=55),
    ),
    styles=("report/view.tcss",),
)  # fmt: skip
