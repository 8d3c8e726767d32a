"""Process groups: those of a verdict, of late and of waiting ranks first, others by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, repeat
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank, Verdict
from frtop_tui.job.groups import identifier
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import rank_words
from frtop_tui.job.units import duration
from frtop_tui.text.rank_words import number_in, op_kind
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, fit, plain

IDLE_S = 2.0
"""A group that is idle for less counts as active: most training steps take less."""


class GroupSummary(Struct, frozen=True):
    """One line: a group, or several alike without late or waiting ranks."""

    label: str
    groups: tuple[GroupView, ...]
    ended: bool = False
    """All members have ended."""
    p2p: int = 0
    """Sends and receives of the member that issued most; 0 in groups with collectives."""
    ops: tuple[str, ...] = ()
    """`3 all_reduce`, `1 barrier`: where members wait in different collectives."""
    stragglers: str = ""
    """Ranks that a verdict calls slow in it."""

    @property
    def first(self) -> GroupView:
        return self.groups[0]


def group_rows(groups: Sequence[GroupView], verdicts: Sequence[Verdict] = ()) -> list[GroupSummary]:
    """Those of culprits, then those with late or waiting ranks, then the others by kind."""
    blamed = {one.group: one for one in verdicts if one.culprits and one.group is not None}
    alone = sorted(
        (group for group in groups if group.late or group.waiting or group.key in blamed),
        key=lambda g: (g.key not in blamed, not g.late, -len(g.waiting), -len(g.members)),
    )
    slow = {key: fold(one.culprits) for key, one in blamed.items() if one.kind == "slow"}
    rows = [GroupSummary(one.label, (one,), stragglers=slow.get(one.key, "")) for one in alone]
    others = sorted(
        (one for one in groups if not (one.late or one.waiting or one.key in blamed)),
        key=lambda group: (-len(group.members), _family(group), group.key.name),
    )
    for (_, family), similar in groupby(others, lambda g: (len(g.members), _family(g))):
        folded = tuple(similar)
        label = f"{family}:* x{len(folded)}" if len(folded) > 1 else folded[0].label
        rows.append(GroupSummary(label, folded))
    return rows


def with_rank_details(
    rows: Sequence[GroupSummary], ranks: Mapping[int, JudgedRank]
) -> list[GroupSummary]:
    """Adds to each row what its ranks know: `ended`, `p2p` and `ops`."""
    exited = {number for number, rank in ranks.items() if rank.exit_info is not None}
    found: list[GroupSummary] = []
    for row in rows:
        ended = bool(exited) and all(exited.issuperset(group.members) for group in row.groups)
        no_collectives = all(group.number <= 0 for group in row.groups)
        p2p = max(map(p2p_ops, row.groups, repeat(ranks))) if no_collectives else 0
        ops = _different_ops(row.first.waiting, ranks)
        found.append(replace(row, ended=ended, p2p=p2p, ops=ops) if ended or p2p or ops else row)
    return found


def _different_ops(waiting: Iterable[int], ranks: Mapping[int, JudgedRank]) -> tuple[str, ...]:
    """The collectives that `waiting` ranks wait in, the most frequent first; () if all agree."""
    views = (ranks[rank] for rank in waiting if rank in ranks)
    ops = (view.blocked_on for view in views)
    kinds = Counter(op_kind(op) for op in ops if op is not None and not op.p2p)
    return tuple(f"{n} {kind}" for kind, n in kinds.most_common()) if len(kinds) > 1 else ()


def p2p_ops(view: GroupView, ranks: Mapping[int, JudgedRank]) -> int:
    """Sends and receives of the member that issued most."""
    key = identifier(view.key)
    return max(
        (
            rank.group_progress[number].p2p
            for rank in map(ranks.get, view.members)
            if rank is not None
            for number, group in rank.groups.items()
            if number in rank.group_progress and identifier(group) == key
        ),
        default=0,
    )


def _family(group: GroupView) -> str:
    """`tp` of `tp:4`: the common name of numbered groups."""
    return group.label.rstrip("0123456789").rstrip(":_-[]. ") or group.label


def group_state(row: GroupSummary, now_ns: int) -> Span:
    """`1 late, 63 wait`, `active`, `idle 12s` or `ended`."""
    group = row.first
    if row.stragglers:
        return (f"slow: {rank_words(row.stragglers, 14)}", "late")
    if group.late or group.waiting:
        late = f"{len(group.late)} late" if group.late else ""
        waiting = f"{len(group.waiting)} wait" if group.waiting else ""
        return (", ".join(filter(None, (late, waiting))), "late" if group.late else "blocked")
    if row.ended:
        return ("ended", "dim")
    idle = min(member.idle_s(now_ns) for member in row.groups)
    return ("active", "moving") if idle < IDLE_S else (f"idle {duration(idle)}", "dim")


def group_line(row: GroupSummary, label_width: int, width: int, now_ns: int) -> Line:
    """Label, size, number, kind and state; narrow panes cut the kind."""
    group = row.first
    state = group_state(row, now_ns)
    furthest = max(member.number for member in row.groups)
    if row.p2p:
        number, kind = f"{row.p2p} p2p", "send/recv"
    else:
        number = number_in(group, furthest)
        last = group.last if len(row.groups) == 1 else None
        # Without a recorder, only the number of a completed op is known.
        kind = op_kind(last) if last is not None and (last.signature or last.sequence) else ""
    head = f"{fit(row.label, label_width)} {len(group.members):>5}  {number:<9} "
    kind_width = max(0, min(28, width - len(head) - 21))
    if row.ops:
        kind = ", ".join(row.ops)
        kind = kind if len(kind) <= kind_width else "different ops"
    return (
        (head, "strong" if group.late or row.stragglers else ""),
        (fit(kind, kind_width) + " ", ""),
        (fit(state[0], 20), state[1]),
    )


class GroupPanel(LineView):
    """The list of groups; `enter` opens a group."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "group", tooltip="how far its members are", id="group.open"),
    ]

    def __init__(self) -> None:
        super().__init__(id="groups", classes="pane", has_cursor=True)
        self.entitle("groups")
        self.rows: list[GroupSummary] = []
        self._now_ns = 0

    def show(self, frame: Frame) -> None:
        self._now_ns = frame.now_ns
        self.rows = with_rank_details(group_rows(frame.groups, frame.verdicts), frame.ranks)
        self.entitle(f"groups {len(frame.groups)}" if frame.groups else "groups")
        self.redraw()

    @property
    def chosen(self) -> GroupSummary | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def content(self, width: int) -> Sequence[Line]:
        if not self.rows:
            return (plain("no groups known", "dim"),)
        label = min(16, max(len(row.label) for row in self.rows))
        return [group_line(row, label, width, self._now_ns) for row in self.rows]
