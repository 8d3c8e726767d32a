"""One process group on the screen: what it is and how far its members are, and its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual.binding import BindingType

from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.arrivals import SkewSummary
from frtop_tui.job.group_members import Member
from frtop_tui.job.model import GroupView
from frtop_tui.job.units import live_duration, timing
from frtop_tui.text.activity import blame_reasons, describe_activity_and_line
from frtop_tui.text.rank_states import LETTERS
from frtop_tui.widgets.formats import shorten_ranks
from frtop_tui.widgets.grid_layout import natural_key
from frtop_tui.widgets.group_facts import Fact
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, plain, width_of, wrap
from frtop_tui.widgets.table import RANK_KEYS, Column, LineTable

LABEL: Final = 11


def fact_lines(facts: Sequence[Fact], width: int) -> list[Line]:
    """Each fact on a line with its ranks; without ranks, long ones are wrapped."""
    rows: list[Line] = []
    for fact in facts:
        label = f"{fact.label:<{LABEL}}"
        if not fact.ranks:
            rows += wrap(fact.text, width, fact.tone, (label, "dim"))
            continue
        head: Line = ((label, fact.tone or "dim"), (f"{fact.text}  ", fact.tone))
        room = max(8, width - width_of(head))
        rows.append((*head, (shorten_ranks(fact.ranks, room), fact.tone)))
    return rows


class GroupFactsPane(LineView):
    """What is known of the group, a fact a line."""

    def __init__(self) -> None:
        super().__init__(id="group-facts", classes="pane")
        self.facts: Sequence[Fact] = ()
        self.empty = ""

    def show(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if not self.facts:
            return (plain(self.empty, "dim"),)
        return fact_lines(self.facts, width)


class MemberTable(LineTable[Member[JudgedRank]]):
    """The members, those that are behind first. The cursor stays on its rank."""

    BINDINGS: ClassVar[list[BindingType]] = [*RANK_KEYS]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(
            (
                Column("rank", 6, self._rank, lambda m: m.number, right=True),
                Column("state", 9, _state, lambda m: m.number),
                Column("issued", 9, self._issued, lambda m: m.number, right=True),
                Column("behind", 6, self._lag, lambda m: m.number, right=True),
                Column("completed", 9, _completed, lambda m: m.number, right=True, needs=96),
                Column("for", 7, self._for, lambda m: m.number, right=True),
                Column("comes after", 11, self._late, lambda m: m.number, right=True, needs=120),
                Column("host", 8, _host, lambda m: natural_key(_host(m)[0]), wide=16),
                Column("activity", 0, self._activity, lambda m: m.number),
            ),
            "no members",
            id="members",
            classes="pane",
        )
        self.marked = marked
        self.frame: Frame | None = None
        self.furthest = 0
        self.exact = True
        self.delays: Mapping[int, int] = {}

    def show_members(
        self,
        frame: Frame,
        view: GroupView,
        members: Sequence[Member[JudgedRank]],
        arrivals: SkewSummary | None,
    ) -> None:
        """Shows these members of a group, those that are behind first."""
        selected = self.chosen if self.cursor > 1 else None
        self.frame, self.furthest, self.exact = frame, view.number, view.exact
        self.delays = arrivals.delays if arrivals is not None else {}
        self._reasons = blame_reasons(frame)
        lags = {
            member.number: view.number - issued
            for member in members
            if view.exact and (issued := member.issued) is not None and issued < view.number
        }
        if lags:
            first = [member for member in members if member.number in lags]
            first.sort(key=lambda member: -lags[member.number])
            rest = (member for member in members if member.number not in lags)
            members = [*first, *rest]
        self.rows = members
        if selected is not None:
            lines = (n for n, one in enumerate(members, 1) if one.number == selected.number)
            self.move_to(next(lines, self.cursor))
        self.redraw()

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.marked ^= {self.chosen.number}
            self.action_down()
            self.redraw()

    def _rank(self, member: Member[JudgedRank]) -> Span:
        is_marked = member.number in self.marked
        return (f"{'*' * is_marked}{member.number}", "mark" if is_marked else "strong")

    def _issued(self, member: Member[JudgedRank]) -> Span:
        if (issued := member.issued) is None:
            return ("-", "dim")
        return (f"{'' if self.exact else '~'}#{issued}" if issued else "none yet", "")

    def _lag(self, member: Member[JudgedRank]) -> Span:
        issued = member.issued
        if issued is None or not self.exact or issued >= self.furthest:
            return ("", "")
        return (f"{self.furthest - issued:,}", "late")

    def _for(self, member: Member[JudgedRank]) -> Span:
        if member.rank is None or self.frame is None:
            return ("", "")
        seconds = member.rank.state_age_s(self.frame.now_ns)
        return ("" if seconds is None else live_duration(seconds), "")

    def _late(self, member: Member[JudgedRank]) -> Span:
        delay = self.delays.get(member.number)
        return ("" if delay is None else timing(delay), "dim")

    def _activity(self, member: Member[JudgedRank]) -> Span:
        if member.rank is None or self.frame is None:
            return ("never reported", "unreachable")
        return (describe_activity_and_line(member.rank, self.frame.now_ns, self._reasons), "")


def _state(member: Member[JudgedRank]) -> Span:
    state = "unreachable" if member.rank is None else member.rank.state
    return (f"{LETTERS[state]} {state}", state)


def _completed(member: Member[JudgedRank]) -> Span:
    done = member.completed
    return ("-" if done is None else f"#{done}" if done else "none yet", "dim")


def _host(member: Member[JudgedRank]) -> Span:
    return ("" if member.rank is None else member.rank.host, "")
