"""One process group on the screen: what it is and how far its members are, and its members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.arrivals import SkewSummary
from frtop_tui.job.group_members import Member, by_number
from frtop_tui.job.groups import identifier
from frtop_tui.job.issuer_words import issuer_text
from frtop_tui.job.mesh import Mesh, NoMesh
from frtop_tui.job.model import GroupView
from frtop_tui.job.naming import folded_hosts, listed
from frtop_tui.job.stack_frames import site_name
from frtop_tui.job.units import counted, duration, how_often, live_duration, timing
from frtop_tui.text.activity import blame_reasons, describe_activity_and_line
from frtop_tui.text.lines import WordLine
from frtop_tui.text.rank_states import LETTERS
from frtop_tui.text.rank_words import number_in, op_kind
from frtop_tui.widgets.grid_layout import natural_key
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, plain, word_rows
from frtop_tui.widgets.table import Column, RankRows, rank_column

MOST_NUMBERS: Final = 6
"""Lines of members by number: the furthest, and those furthest behind."""
MOST_HOSTS: Final = 6


def group_facts(
    frame: Frame,
    view: GroupView,
    members: Sequence[Member[JudgedRank]],
    mesh: Mesh | NoMesh,
    arrivals: SkewSummary | None,
) -> list[WordLine]:
    """All facts about a group, how far its members are first."""
    return [
        *front_facts(view, members),
        *_host_facts(view, members),
        *_about(frame, view, members, mesh),
        *skew_facts(frame, view, arrivals),
    ]


def front_facts(view: GroupView, members: Sequence[Member[JudgedRank]]) -> list[WordLine]:
    """Members by the last op that they issued, and by the last that ended, completed or not."""
    rows: list[WordLine] = []
    fronts = by_number([(member.number, member.issued) for member in members])
    furthest = max((number for number, _ in fronts if number is not None), default=0)
    for number, ranks in _some(fronts):
        if number is None:
            rows.append(WordLine("not known", f"{len(ranks):,}", "warn", fold(ranks)))
            continue
        lag = furthest - number
        late = lag > 0 and view.exact
        words = f"{number_in(view, number):<10} {len(ranks):>6,}"
        label = "issued" if not lag else f"{lag:,} behind" if view.exact else ""
        rows.append(WordLine(label, words, "late" if late else "", fold(ranks)))
    completed = by_number([(member.number, member.completed) for member in members])
    if [number for number, _ in completed] == [None]:
        return [*rows, WordLine("ended", "not recorded", "dim")]
    for index, (number, ranks) in enumerate(_some(completed)):
        words = number_in(view, number) if number is not None else "not known"
        label = "ended" if not index else ""
        rows.append(WordLine(label, f"{words:<10} {len(ranks):>6,}", "dim", fold(ranks)))
    return rows


def _some(
    fronts: Sequence[tuple[int | None, tuple[int, ...]]],
) -> list[tuple[int | None, tuple[int, ...]]]:
    """The furthest, and those furthest behind; all in between are one line."""
    if len(fronts) <= MOST_NUMBERS:
        return list(fronts)
    middle = fronts[1 : len(fronts) - MOST_NUMBERS + 2]
    between = tuple(sorted(rank for _, ranks in middle for rank in ranks))
    return [fronts[0], (middle[0][0], between), *fronts[len(fronts) - MOST_NUMBERS + 2 :]]


def _host_facts(view: GroupView, members: Iterable[Member[JudgedRank]]) -> list[WordLine]:
    """How far each host is, those behind first; hosts that are equally far share a line."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for member in members:
        if member.rank is not None and member.issued is not None:
            numbers[member.rank.host].append(member.issued)
    if len(numbers) < 2:
        return []
    alike: dict[tuple[int, int], list[str]] = defaultdict(list)
    for host, ones in numbers.items():
        alike[min(ones), max(ones)].append(host)
    furthest = max(last for _, last in alike)
    rows: list[WordLine] = []
    ordered = sorted(alike)
    for low, high in ordered[:MOST_HOSTS]:
        label = "" if rows else "hosts"
        span = number_in(view, low) if low == high else f"{number_in(view, low)} to #{high}"
        where = folded_hosts(tuple(sorted(alike[low, high])))
        tone = "late" if low < furthest and view.exact else ""
        rows.append(WordLine(label, f"{span:<17} {where}", tone))
    if len(ordered) > MOST_HOSTS:
        rows.append(WordLine("", f"and {len(ordered) - MOST_HOSTS} more kinds of hosts", "dim"))
    return rows


def _about(
    frame: Frame,
    view: GroupView,
    members: Sequence[Member[JudgedRank]],
    mesh: Mesh | NoMesh,
) -> list[WordLine]:
    rows: list[WordLine] = []
    if view.last is not None:
        rows += _last_op(view, frame.now_ns)
    if isinstance(mesh, NoMesh):
        rows.append(WordLine("mesh", f"no mesh: {mesh.reason}", "dim"))
    else:
        rows.append(WordLine("mesh", mesh_words(view, mesh)))
        if mesh.others:
            words = listed([f"{name} is {what}" for name, what in mesh.others], 4)
            rows.append(WordLine("", f"beside it {words}", "dim"))
    return [*rows, *_settings(view, members)]


def mesh_words(view: GroupView, mesh: Mesh) -> str:
    """`dp 8 x tp 4 x pp 2; this is tp at dp 3, pp 0`."""
    axis = mesh.axes.get(identifier(view.key))
    if axis is None:
        return f"{mesh.shape}; this group is no part of it"
    place = mesh.place(view.members)
    return f"{mesh.shape}; this is {axis}" + (f" at {place}" if place else "")


def _last_op(view: GroupView, now_ns: int) -> list[WordLine]:
    op = view.last
    assert op is not None
    parts = [f"{op_kind(op)} {number_in(view, view.number)}"]
    if op.site is not None:
        parts.append(site_name(op.site))
    parts += filter(None, [issuer_text(op.issuer)])
    if view.issued_ns:
        parts.append(f"issued {duration(view.idle_s(now_ns))} ago")
    if op.usual_count:
        parts.append(f"usually takes {timing(op.usual_ns)}")
    return [WordLine("last op", ", ".join(parts))]


def _settings(view: GroupView, members: Iterable[Member[JudgedRank]]) -> list[WordLine]:
    """Backend, timeout and what its recorder says; where members differ, with their ranks."""
    alike: dict[tuple[float, str, str, str], list[int]] = defaultdict(list)
    hosts: set[str] = set()
    for member in members:
        if (group := member.group) is not None and member.rank is not None:
            alike[group.timeout_s, group.backend, group.blind, group.error].append(member.number)
            hosts.add(member.rank.host)
    timeouts: dict[float, list[int]] = defaultdict(list)
    blind: dict[str, list[int]] = defaultdict(list)
    errors: dict[str, list[int]] = defaultdict(list)
    backends: dict[str, list[int]] = defaultdict(list)
    for (timeout_s, backend, why_blind, error), numbers in alike.items():
        timeouts[timeout_s] += numbers
        backends[backend] += numbers
        if why_blind:
            blind[why_blind] += numbers
        if error:
            errors[error] += numbers
    about = f"{_by_value(backends) if alike else view.backend}, "
    texts = {duration(at) if at else "not known": ranks for at, ranks in timeouts.items()}
    about += f"timeout {_by_value(texts)}" if texts else "timeout not known"
    about += f", {counted(len(view.members), 'member')} on {counted(len(hosts), 'host')}, called "
    about += f"{view.label} ({view.key.name})"
    about += f", made {how_often(view.key.epoch + 1)}" if view.key.epoch else ""
    rows = [WordLine("group", about, "warn" if len(texts) > 1 or len(backends) > 1 else "")]
    if not view.exact:
        text = "members do not count from its creation, so numbers (~#) cannot be compared"
        rows.append(WordLine("", text, "warn"))
    for what, tone in ((blind, "dim"), (errors, "bad")):
        head = "its device is not followed" if what is blind else "error"
        rows += [WordLine("", f"{head}: {text}", tone, fold(ranks)) for text, ranks in what.items()]
    return rows


def _by_value(values: Mapping[str, Sequence[int]]) -> str:
    """The one value, or each value with its ranks."""
    if len(values) == 1:
        return next(iter(values))
    return listed([f"{value} on {fold(ranks)}" for value, ranks in values.items()], 3)


def skew_facts(frame: Frame, view: GroupView, arrivals: SkewSummary | None) -> list[WordLine]:
    """Which rank arrives last at its ops, and by how much; or why that is unknown."""
    if arrivals is None:
        if frame.statistics is None:
            why = "no statistics yet"
        elif len(view.members) < 2:
            return []
        else:
            why = "no op of it was sampled at all members"
        return [WordLine("arrivals", why, "dim")]
    error = arrivals.error_ns
    clocks = "clocks not measured" if error is None else f"clocks ±{timing(error)}"
    which = f"one of {arrivals.stride} ops, " if arrivals.stride > 1 else ""
    text = (
        f"{which}{arrivals.ops:,} sampled: from first to last {timing(arrivals.skew_ns)}"
        f" (median), {timing(arrivals.longest_ns)} at most; {clocks}"
    )
    rows = [WordLine("arrivals", text)]
    if error is not None and arrivals.skew_ns <= error:
        return [
            *rows,
            WordLine("", "the last to arrive is unknown: the clocks' error is larger", "dim"),
        ]
    ones = [
        f"rank {rank} in {count:,} of {arrivals.ops:,}"
        f" ({timing(arrivals.delays[rank])} after the first)"
        for rank, count in arrivals.last
    ]
    often = arrivals.last[0][1] * 2 > arrivals.ops
    return [*rows, WordLine("last", listed(ones, 3), "late" if often else "")]


class GroupFactsPane(LineView):
    """What is known of the group, a fact a line."""

    def __init__(self) -> None:
        super().__init__(id="group-facts", classes="pane")
        self.facts: Sequence[WordLine] = ()
        self.empty = ""

    def show(self, facts: Sequence[WordLine]) -> None:
        self.facts = facts
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if not self.facts:
            return (plain(self.empty, "dim"),)
        return word_rows(self.facts, width, 11)


class MemberTable(RankRows[Member[JudgedRank]]):
    """The members, those that are behind first."""

    def __init__(self, marked: set[int]) -> None:
        super().__init__(
            (
                rank_column(self.number, marked),
                Column("state", 9, _state, lambda m: m.number),
                Column("issued", 9, self._issued, lambda m: m.number, right=True),
                Column("behind", 6, self._lag, lambda m: m.number, right=True),
                Column("ended", 9, _completed, lambda m: m.number, right=True, needs=96),
                Column("for", 7, self._for, lambda m: m.number, right=True),
                Column("arrives after", 13, self._late, lambda m: m.number, right=True, needs=120),
                Column("host", 8, _host, lambda m: natural_key(_host(m)[0]), wide=16),
                Column("activity", 0, self._activity, lambda m: m.number),
            ),
            "no members",
            marked,
            id="members",
            classes="pane",
        )
        self.frame: Frame | None = None
        self.furthest = 0
        self.exact = True
        self.delays: Mapping[int, int] = {}

    def number(self, row: Member[JudgedRank]) -> int:
        return row.number

    def show_members(
        self,
        frame: Frame,
        view: GroupView,
        members: Sequence[Member[JudgedRank]],
        arrivals: SkewSummary | None,
    ) -> None:
        """Shows these members of a group, those that are behind first."""
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
        self.show(members, self.number)

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
