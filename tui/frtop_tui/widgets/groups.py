"""Process groups, the troubled ones first; quiet ones of a kind fold into one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, repeat
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.model import GroupView
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, fit, plain
from frtop_tui.widgets.wording import age, group_name, kind

IDLE_S = 2.0
"""Below this a group counts as active: most steps take less."""


class Row(Struct, frozen=True):
    """One line: a group, or several quiet ones that look alike."""

    label: str
    groups: tuple[GroupView, ...]
    over: bool = False
    """All members have ended: nothing is idle, and nothing will come."""
    p2p: int = 0
    """Sends and receives of its most diligent member; 0 where collectives tell more."""

    @property
    def first(self) -> GroupView:
        return self.groups[0]


def rows_of(groups: Sequence[GroupView]) -> list[Row]:
    """Groups with late members, then those with waiting ones, then the rest by kind."""
    troubled = sorted(
        (group for group in groups if group.late or group.waiting),
        key=lambda group: (not group.late, -len(group.waiting), -len(group.members)),
    )
    rows = [Row(group_name(group), (group,)) for group in troubled]
    quiet = sorted(
        (group for group in groups if not group.late and not group.waiting),
        key=lambda group: (-len(group.members), _family(group), group.key.name),
    )
    for (_, family), alike in groupby(quiet, lambda g: (len(g.members), _family(g))):
        members = tuple(alike)
        many = len(members) > 1
        rows.append(Row(f"{family}:* x{len(members)}" if many else group_name(members[0]), members))
    return rows


def completed(rows: Sequence[Row], ranks: Mapping[int, JudgedRank]) -> list[Row]:
    """The rows with what only the ranks tell: that all have ended, and their p2p ops."""
    ended = {number for number, rank in ranks.items() if rank.exit_info is not None}
    found: list[Row] = []
    for row in rows:
        over = bool(ended) and all(ended.issuperset(group.members) for group in row.groups)
        silent = all(group.number <= 0 for group in row.groups)
        p2p = max(map(p2p_ops, row.groups, repeat(ranks))) if silent else 0
        found.append(replace(row, over=over, p2p=p2p) if over or p2p else row)
    return found


def p2p_ops(view: GroupView, ranks: Mapping[int, JudgedRank]) -> int:
    """How many sends and receives the most diligent member has issued there."""
    name = (view.key.name, view.key.ranks, view.key.epoch)
    return max(
        (
            rank.group_progress[number].p2p
            for rank in map(ranks.get, view.members)
            if rank is not None
            for number, group in rank.groups.items()
            if number in rank.group_progress and (group.name, group.ranks, group.epoch) == name
        ),
        default=0,
    )


def _family(group: GroupView) -> str:
    """`tp` of `tp:4`: what numbered groups of one purpose have in common."""
    return group_name(group).rstrip("0123456789").rstrip(":_-[]. ") or group_name(group)


def state_of(row: Row, now_ns: int) -> Span:
    """What its members do, late ones first."""
    group = row.first
    if group.late or group.waiting:
        late = f"{len(group.late)} late" if group.late else ""
        waiting = f"{len(group.waiting)} wait" if group.waiting else ""
        return (", ".join(filter(None, (late, waiting))), "late" if group.late else "blocked")
    if row.over:
        return ("ended", "dim")
    idle = min(member.idle_s(now_ns) for member in row.groups)
    return ("active", "moving") if idle < IDLE_S else (f"idle {age(idle)}", "dim")


def row_line(row: Row, label_width: int, width: int, now_ns: int) -> Line:
    """label, size, number and kind, state; the kind gives way in a narrow pane."""
    group = row.first
    state = state_of(row, now_ns)
    furthest = max(member.number for member in row.groups)
    if row.p2p:
        number, what = f"{row.p2p} p2p", "send/recv"
    else:
        number = f"{'' if group.exact else '~'}#{furthest}" if furthest > 0 else "no op yet"
        what = kind(group.last) if group.last is not None and len(row.groups) == 1 else ""
    head = f"{fit(row.label, label_width)} {len(group.members):>5}  {number:<9} "
    return (
        (head, "strong" if group.late else ""),
        (fit(what, max(0, min(28, width - len(head) - 19))) + " ", ""),
        (fit(state[0], 18), state[1]),
    )


class GroupPanel(LineView):
    """The table of groups; a chosen line is a question about its ranks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "its ranks", tooltip="the ranks of this group", id="group.open"),
    ]

    def __init__(self) -> None:
        super().__init__(id="groups", classes="pane", has_cursor=True)
        self.entitle("groups")
        self.rows: list[Row] = []
        self._now_ns = 0

    def show(self, frame: Frame) -> None:
        self._now_ns = frame.now_ns
        self.rows = completed(rows_of(frame.groups), frame.ranks)
        self.entitle(f"groups {len(frame.groups)}" if frame.groups else "groups")
        self.redraw()

    @property
    def chosen(self) -> Row | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def content(self, width: int) -> Sequence[Line]:
        if not self.rows:
            return (plain("no group known", "dim"),)
        label = min(16, max(len(row.label) for row in self.rows))
        return [row_line(row, label, width, self._now_ns) for row in self.rows]
