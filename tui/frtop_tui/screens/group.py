"""One process group: who is ahead, who is late, where it is in the mesh, who arrives last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.arrivals import SkewSummary, sampled_group, summary_of
from frtop_tui.job.group_members import members
from frtop_tui.job.groups import identifier
from frtop_tui.job.mesh import Mesh, NoMesh, find_mesh
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import counted
from frtop_tui.screens.availability import action_name
from frtop_tui.screens.base import BACK, WAITS, FrameScreen
from frtop_tui.screens.messages import OpenRank, OpenRanks
from frtop_tui.widgets.group_pane import GroupFactsPane, MemberTable, group_facts
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, join, plain


class GroupScreen(FrameScreen):
    """`n` and `p` go to the groups chosen with it, such as all `tp:*`."""

    AUTO_FOCUS = "#members"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("n", "neighbour(1)", "next group", tooltip="next group alike", id="group.next"),
        Binding(
            "p", "neighbour(-1)", "previous", tooltip="previous group alike", id="group.previous"
        ),
        WAITS,
        Binding("slash", "filter", "filter", tooltip="list its ranks", id="filter"),
    ]

    def __init__(self, marked: set[int], keys: Sequence[GroupKey]) -> None:
        super().__init__(marked)
        self.keys = tuple(keys)
        self.index = 0
        self.view: GroupView | None = None
        self._mesh: Mesh | NoMesh = NoMesh("no groups known")
        self._mesh_of: tuple[GroupKey, ...] = ()
        self._arrivals: SkewSummary | None = None
        self._arrivals_of: tuple[JobStatistics | None, GroupKey] | None = None

    @property
    def key(self) -> GroupKey:
        return self.keys[self.index]

    @property
    def crumb(self) -> str:  # type: ignore[override]  # follows the group
        return self.view.label if self.view is not None else f"group {self.key.name}"

    def panes(self) -> ComposeResult:
        yield GroupFactsPane()
        yield MemberTable(self.marked)

    def crumbs(self) -> Line:
        view = self.view
        path = super().crumbs()
        if view is None:
            return path
        which = f"{self.index + 1} of {len(self.keys)} alike" if len(self.keys) > 1 else ""
        late = f"{len(view.late):,} late" if view.late else ""
        waiting = f"{len(view.waiting):,} wait" if view.waiting else ""
        parts = (
            plain(counted(len(view.members), "rank")),
            plain(view.backend),
            plain(which, "dim"),
            plain(late, "late"),
            plain(waiting, "blocked"),
        )
        return (*path, *plain("  "), *join(parts))

    def draw(self, frame: Frame) -> None:
        wanted = identifier(self.key)
        view = next((one for one in frame.groups if identifier(one.key) == wanted), None)
        facts, table = self.query_one(GroupFactsPane), self.query_one(MemberTable)
        if view is None:
            facts.empty = "the job no longer has this group: its members have destroyed it"
            facts.show(() if self.view is None else facts.facts)
            return
        self.view = view
        mesh, arrivals = self._mesh_in(frame), self._arrivals_in(frame)
        found = list(members(view, frame.ranks))
        facts.entitle(f"group {view.label}")
        facts.show(group_facts(frame, view, found, mesh, arrivals))
        table.entitle(f"members {len(found):,}")
        table.show_members(frame, view, found, arrivals)

    def _mesh_in(self, frame: Frame) -> Mesh | NoMesh:
        """The mesh; searched again only if the groups have changed."""
        keys = tuple([group.key for group in frame.groups])
        if keys != self._mesh_of:
            self._mesh_of, self._mesh = keys, find_mesh(frame.groups)
        return self._mesh

    def _arrivals_in(self, frame: Frame) -> SkewSummary | None:
        of = (frame.statistics, self.key)
        known = self._arrivals_of
        if known is None or known[0] is not of[0] or known[1] != of[1]:
            sampled = sampled_group(frame.statistics, self.key)
            self._arrivals = summary_of(sampled) if sampled is not None else None
            self._arrivals_of = of
        return self._arrivals

    def why_unavailable(self, action: str) -> str:
        if action_name(action) == "neighbour" and len(self.keys) < 2:
            return (
                "No other group was chosen with it: on the overview, press enter on a line with *."
            )
        return super().why_unavailable(action)

    def action_neighbour(self, by: int) -> None:
        if not self.check_available("neighbour"):
            return
        self.index = (self.index + by) % len(self.keys)
        self.view = None
        for pane in self.query(LineView):
            pane.scroll_to(y=0, animate=False)
        self.query_one(MemberTable).cursor = 1
        self.draw_all()

    def action_filter(self) -> None:
        if self.view is not None:
            self.post_message(OpenRanks(f"rank:{fold(self.view.members)}"))

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        table = self.query_one(MemberTable)
        if event.sender is table and table.chosen is not None:
            self.post_message(OpenRank(table.chosen.number))
