"""The view of modules."""

from __future__ import annotations

from typing import Final

from frtop_tui.features.modules.view import ModulesScreen
from frtop_tui.screens.contributed import Screens, View

SCREENS: Final = Screens(
    views=(
        View("modules", ModulesScreen, "ops by the module and phase that issued them, as a tree",
             place=90),
    ),
    styles=("modules/view.tcss",),
)  # fmt: skip
