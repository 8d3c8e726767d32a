"""Writes the tables of keys and commands into dist/docs/, from the program's bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from textual.binding import Binding
from textual.dom import DOMNode

from frtop_tui.app import FrtopApp
from frtop_tui.features.flame.pane import FlamePane
from frtop_tui.features.flame.view import FlameScreen
from frtop_tui.features.modules.pane import ModuleTreePane
from frtop_tui.features.modules.view import ModulesScreen
from frtop_tui.features.profile.view import ProfileScreen
from frtop_tui.features.statistics.table import CallStatisticsTable
from frtop_tui.features.statistics.view import StatisticsScreen
from frtop_tui.features.tensor_checks.view import RecordScreen
from frtop_tui.features.tensors.view import TensorsScreen
from frtop_tui.features.timeline.pane import LanePane
from frtop_tui.features.timeline.queue_table import QueueTable
from frtop_tui.features.timeline.queues_view import QueuesScreen
from frtop_tui.features.timeline.view import TimelineScreen
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.command_line import CommandInput
from frtop_tui.screens.commands import COMMANDS
from frtop_tui.screens.group import GroupScreen
from frtop_tui.screens.hosts import HostsScreen
from frtop_tui.screens.jobs import JobsScreen
from frtop_tui.screens.overview import Overview
from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen
from frtop_tui.screens.settings import SettingsScreen
from frtop_tui.screens.stacks import StacksScreen
from frtop_tui.screens.waits import WaitsScreen
from frtop_tui.widgets.fields import FilterField, PathField
from frtop_tui.widgets.format_list import FormatList
from frtop_tui.widgets.group_pane import MemberTable
from frtop_tui.widgets.groups import GroupPanel
from frtop_tui.widgets.host_table import HostTable
from frtop_tui.widgets.jobs import JobTable
from frtop_tui.widgets.keyline import key_name
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.question import Question
from frtop_tui.widgets.rank_grid import RankGrid
from frtop_tui.widgets.rank_table import RankTable
from frtop_tui.widgets.settings_pane import SettingsPane
from frtop_tui.widgets.stack_tree import StackTree
from frtop_tui.widgets.wait_tree_pane import WaitTreePane

OUT: Final = Path(__file__).parents[1] / "dist" / "docs"
OWNERS: Final[tuple[tuple[str, tuple[type[DOMNode], ...]], ...]] = (
    ("everywhere", (FrtopApp, FrameScreen, LineView)),
    ("overview", (Overview, RankGrid, GroupPanel)),
    ("ranks", (RanksScreen, RankTable)),
    ("one rank", (RankScreen,)),
    ("group", (GroupScreen, MemberTable)),
    ("waits", (WaitsScreen, WaitTreePane)),
    ("settings", (SettingsScreen, SettingsPane)),
    ("timeline", (TimelineScreen, LanePane)),
    ("queues", (QueuesScreen, QueueTable)),
    ("tensors", (TensorsScreen, Question)),
    ("record", (RecordScreen,)),
    ("hosts", (HostsScreen, HostTable)),
    ("jobs", (JobsScreen, JobTable)),
    ("stacks", (StacksScreen, StackTree)),
    ("statistics", (StatisticsScreen, CallStatisticsTable)),
    ("modules", (ModulesScreen, ModuleTreePane)),
    ("profile", (ProfileScreen,)),
    ("sampled stacks", (FlameScreen, FlamePane)),
    ("command", (CommandInput,)),
    ("filter", (FilterField,)),
    ("export", (FormatList, PathField)),
)


def table() -> str:
    """The table in Markdown, one row per binding."""
    rows = ["| screen | key | action |", "|---|---|---|"]
    for screen, owners in OWNERS:
        for owner in owners:
            for binding in owner.__dict__.get("BINDINGS", ()):
                assert isinstance(binding, Binding)
                keys = " ".join(f"`{key_name(k)}`" for k in binding.key.split(","))
                does = binding.description
                if binding.tooltip and binding.tooltip != does:
                    does += f": {binding.tooltip}"
                rows.append(f"| {screen} | {keys} | {does} |")
    rows += ["", "| command | key | |", "|---|---|---|"]
    for command in COMMANDS:
        key = f"`{command.key}`" if command.key else ""
        usage = command.usage.replace("|", "\\|")
        rows.append(f"| `:{usage}` | {key} | {command.summary} |")
    return "\n".join(rows)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "keys.md").write_text(f"# Keys and commands\n\n{table()}\n")
